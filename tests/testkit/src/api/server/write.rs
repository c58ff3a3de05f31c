//! create, update and patch: checks in the order of the real server, then one change of the store.

use std::sync::Arc;

use serde_json::{Value, json};

use super::read::known;
use super::shape::Shape;
use super::{Answer, Context, Server, checks, read_json};
use crate::api::answer;
use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::kinds::Kind;
use crate::api::patch::Patch;
use crate::api::rights::restriction;

/// How often a write without a resourceVersion is tried again when somebody else was faster.
const ATTEMPTS: usize = 10;

impl Server {
    pub(super) async fn create(&self, context: &Context<'_>) -> Answer {
        let kind = known(context.call)?;
        let object = read_object(context, kind)?;
        self.create_object(context, kind, object).await
    }

    async fn create_object(&self, context: &Context<'_>, kind: &Kind, mut object: Value) -> Answer {
        let Context { identity, call, .. } = context;
        self.check_namespace(call, &object)?;
        set_initial_status(kind, &mut object);
        restriction::check(identity, call, None, Some(&object))?;
        if kind.is_kubevirt() {
            self.admission
                .admit(
                    "create",
                    kind.plural,
                    &identity.user,
                    None,
                    Some(&mut object),
                )
                .await?;
        }
        checks::name(kind, &object)?;
        if kind.plural == "events" {
            self.name_event(&mut object)?;
        }
        check_event(kind, &object)?;
        let made = if call.is_dry_run() {
            self.store.preview_create(kind.plural, object)?
        } else {
            self.store.create(kind.plural, object)?
        };
        Ok(self.show(context, kind, 201, &made))
    }

    /// A generated name is there before an Event is validated, and its refusal shows it.
    fn name_event(&self, event: &mut Value) -> Result<(), Failure> {
        if text_of(&event["metadata"]["name"]).is_empty() {
            let named = self.store.preview_create("events", event.clone())?;
            event["metadata"]["name"] = named["metadata"]["name"].clone();
        }
        Ok(())
    }

    pub(super) async fn update(&self, context: &Context<'_>) -> Answer {
        let call = context.call;
        let kind = known(call)?;
        let object = read_object(context, kind)?;
        check_name(call, &object)?;
        if self.stored(call).is_err() && matches!(kind.plural, "events" | "leases") {
            return self.create_object(context, kind, object).await;
        }
        let unconditional = !kind.is_kubevirt()
            || !object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .is_empty();
        if !unconditional {
            let why = "Invalid value: 0: must be specified for an update";
            let failure = Failure::invalid_field(
                kind.group,
                kind.plural,
                &call.path_name,
                "metadata.resourceVersion",
                why,
            );
            return Err(failure);
        }
        self.write(context, kind, |_| Ok(object.clone())).await
    }

    pub(super) async fn patch(&self, context: &Context<'_>) -> Answer {
        let call = context.call;
        let kind = known(call)?;
        let patch = Patch::read(context.content_type, context.body, kind)?;
        if patch.is_apply() && self.stored(call).is_err() {
            let mut object = patch.apply(&json!({}))?;
            place(call, kind, &mut object)?;
            return self.create_object(context, kind, object).await;
        }
        self.write(context, kind, |old| patch.apply(old)).await
    }

    /// Replaces an object by what `change` makes of it; repeated when somebody else wrote in between and the client did not insist
    /// on a revision.
    async fn write(
        &self,
        context: &Context<'_>,
        kind: &Kind,
        change: impl Fn(&Value) -> Result<Value, Failure>,
    ) -> Answer {
        let Context { identity, call, .. } = context;
        for _ in 0..ATTEMPTS {
            let old = self.stored(call)?;
            let proposed = change(&old)?;
            if call.verb == "patch" && !kind.is_kubevirt() {
                check_patched_uid(kind, &old, &proposed)?;
            }
            check_identity(call, &old, &proposed)?;
            let mut new = combine(kind, &call.subresource, &old, proposed);
            restriction::check(identity, call, Some(&old), Some(&new))?;
            if kind.is_kubevirt() {
                self.admission
                    .admit(
                        "update",
                        kind.plural,
                        &identity.user,
                        Some(&old),
                        Some(&mut new),
                    )
                    .await?;
            }
            check_event(kind, &new)?;
            if call.is_dry_run() {
                return Ok(self.show(context, kind, 200, &new));
            }
            match self.commit(call, kind, &old, new)? {
                Some(written) => return Ok(self.show(context, kind, 200, &written)),
                None => tokio::task::yield_now().await,
            }
        }
        Err(Failure::modified(kind.group, kind.plural, &call.path_name))
    }

    /// Stores `new` if `old` is still what is stored; `None` when it is not.
    fn commit(
        &self,
        call: &Call,
        kind: &Kind,
        old: &Arc<Value>,
        new: Value,
    ) -> Result<Option<Value>, Failure> {
        let namespace = if kind.namespaced {
            call.namespace.as_str()
        } else {
            ""
        };
        let attempt = |current: &mut Value| {
            if current["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] {
                return Err(());
            }
            *current = new;
            Ok(())
        };
        match self
            .store
            .try_update(kind.plural, namespace, &call.path_name, attempt)
        {
            Some(Ok(written)) => Ok(Some(written)),
            Some(Err(())) => Ok(None),
            None => Err(Failure::not_found(kind.group, kind.plural, &call.path_name)),
        }
    }

    /// NamespaceLifecycle: nothing new in a namespace that ends, or that does not exist.
    pub(super) fn check_namespace(&self, call: &Call, object: &Value) -> Result<(), Failure> {
        if call.namespace.is_empty() || call.resource == "namespaces" {
            return Ok(());
        }
        let namespace = &call.namespace;
        match self.store.get_shared("namespaces", "", namespace) {
            Some(found) if !found["metadata"]["deletionTimestamp"].is_null() => {
                let name = restriction::shown_name(call, object);
                let why = format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                );
                Err(
                    Failure::forbidden(&call.group, &call.resource, name, &why).with_cause(
                        "NamespaceTerminating",
                        &format!("namespace {namespace} is being terminated"),
                        "metadata.namespace",
                    ),
                )
            }
            // Worlds are built without Namespace objects for their VMs.
            None if !self.store.is_namespace_used(namespace) => {
                Err(Failure::not_found("", "namespaces", namespace))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn show(
        &self,
        context: &Context<'_>,
        kind: &Kind,
        code: u16,
        object: &Value,
    ) -> http::Response<answer::Body> {
        let shape = Shape::from_accept(context.accept);
        answer::json(code, &shape.object(kind, object, self.clock().now()))
    }
}

/// The object in the body, put where the path says.
fn read_object(context: &Context<'_>, kind: &Kind) -> Result<Value, Failure> {
    let mut object = read_json(kind.kind, context.body)?;
    place(context.call, kind, &mut object)?;
    Ok(object)
}

fn place(call: &Call, kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (own_version, own_kind) = (text("apiVersion"), text("kind"));
    if kind.is_kubevirt() && !own_version.is_empty() && own_version != kind.api_version() {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({own_version}) does not match the expected API version ({})",
            kind.api_version()
        )));
    }
    if !own_kind.is_empty() && (own_kind != kind.kind || own_version != kind.api_version()) {
        let message = format!(
            "{own_kind} in version {own_version:?} cannot be handled as a {}: converting ({own_version}.{own_kind}) to ({}.{}): unknown conversion",
            kind.kind,
            if kind.group.is_empty() {
                "core"
            } else {
                kind.group
            },
            kind.kind,
        );
        return Err(Failure::bad_request(message));
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if !kind.namespaced {
        return Ok(());
    }
    match object["metadata"]["namespace"].as_str().unwrap_or_default() {
        "" => object["metadata"]["namespace"] = json!(call.namespace),
        own if own != call.namespace => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        _ => {}
    }
    Ok(())
}

fn check_name(call: &Call, object: &Value) -> Result<(), Failure> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name == call.path_name {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        call.path_name
    )))
}

/// A patch has no uid precondition: for it the uid is a field like others, and immutable (validated twice).
fn check_patched_uid(kind: &Kind, old: &Value, new: &Value) -> Result<(), Failure> {
    let (wanted, own) = (&new["metadata"]["uid"], &old["metadata"]["uid"]);
    if wanted.is_null() || wanted == own {
        return Ok(());
    }
    let why = format!("Invalid value: {:?}: field is immutable", text_of(wanted));
    let name = text_of(&old["metadata"]["name"]);
    let failure = Failure::invalid_field(kind.group, kind.kind, name, "metadata.uid", &why);
    Err(failure.with_cause("FieldValueInvalid", &why, "metadata.uid"))
}

/// 409 for a write that insists on another revision or another object.
fn check_identity(call: &Call, old: &Value, new: &Value) -> Result<(), Failure> {
    let differs = |field: &str| {
        let wanted = &new["metadata"][field];
        !wanted.is_null() && wanted != "" && *wanted != old["metadata"][field]
    };
    if differs("uid") {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {}, UID in object meta: {}",
            storage_key(call),
            text_of(&new["metadata"]["uid"]),
            text_of(&old["metadata"]["uid"])
        );
        return Err(Failure::conflict(
            &call.group,
            &call.resource,
            &call.path_name,
            &why,
        ));
    }
    if differs("resourceVersion") {
        return Err(Failure::modified(
            &call.group,
            &call.resource,
            &call.path_name,
        ));
    }
    Ok(())
}

/// Where etcd keeps an object; conflicts of uids show it.
fn storage_key(call: &Call) -> String {
    let resource = if call.resource == "nodes" {
        "minions"
    } else {
        &call.resource
    };
    let parts = [&call.group, resource, &call.namespace, &call.path_name];
    let group_is_shown = call.kind().is_some_and(Kind::is_kubevirt);
    let shown = parts
        .iter()
        .skip(usize::from(!group_is_shown))
        .filter(|part| !part.is_empty());
    shown.fold("/registry".to_owned(), |key, part| format!("{key}/{part}"))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a write through this (sub)resource may change of an object.
fn combine(kind: &Kind, subresource: &str, old: &Value, proposed: Value) -> Value {
    let mut new = match subresource {
        "status" => {
            let mut new = old.clone();
            new["status"] = proposed["status"].clone();
            // The strategies of pods and nodes let metadata through, custom resources do not.
            if matches!(kind.plural, "pods" | "nodes") {
                new["metadata"] = proposed["metadata"].clone();
            }
            new
        }
        "finalize" => {
            let mut new = old.clone();
            new["spec"]["finalizers"] = proposed["spec"]["finalizers"].clone();
            new
        }
        _ => {
            let mut new = proposed;
            if kind.status {
                new["status"] = old["status"].clone();
            }
            new
        }
    };
    if new["status"].is_null()
        && let Some(fields) = new.as_object_mut()
    {
        fields.remove("status");
    }
    // An empty spec.unschedulable is left out, as the typed server does.
    if new["spec"]["unschedulable"] == json!(false) || new["spec"]["unschedulable"].is_null() {
        if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("unschedulable");
        }
        if new["spec"].is_null() && old.get("spec").is_none() {
            new.as_object_mut().map(|fields| fields.remove("spec"));
        }
    }
    new
}

/// What a create does with the status in the body, and the defaults of a pod.
fn set_initial_status(kind: &Kind, object: &mut Value) {
    match kind.plural {
        "nodes" | "namespaces" => {}
        "pods" => {
            object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
            for (field, default) in [
                ("terminationGracePeriodSeconds", json!(30)),
                ("restartPolicy", json!("Always")),
                ("schedulerName", json!("default-scheduler")),
            ] {
                if object["spec"][field].is_null() {
                    object["spec"][field] = default;
                }
            }
        }
        "secrets" if object["type"].is_null() => object["type"] = json!("Opaque"),
        "poddisruptionbudgets" => {
            object["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        }
        _ if kind.status => {
            object.as_object_mut().map(|fields| fields.remove("status"));
        }
        _ => {}
    }
}

/// An Event about a cluster-scoped object belongs in `default`.
fn check_event(kind: &Kind, event: &Value) -> Result<(), Failure> {
    if kind.plural != "events" {
        return Ok(());
    }
    let own = text_of(&event["metadata"]["namespace"]);
    let involved = text_of(&event["involvedObject"]["namespace"]);
    if involved == own || involved.is_empty() && own == "default" {
        return Ok(());
    }
    let name = text_of(&event["metadata"]["name"]);
    let why = format!("Invalid value: {involved:?}: does not match event.namespace");
    Err(Failure::invalid_field(
        "",
        "Event",
        name,
        "involvedObject.namespace",
        &why,
    ))
}
