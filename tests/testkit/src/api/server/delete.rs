//! delete and deletecollection: options, preconditions, and what is shown afterwards.

use serde_json::{Value, json};

use super::read::known;
use super::{Answer, Context, Server, read_json};
use crate::api::answer;
use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::identity::Identity;
use crate::api::kinds::Kind;
use crate::api::rights::restriction;
use crate::api::selectors::Selection;

/// The DeleteOptions that matter here.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) grace: Option<i64>,
    pub(super) dry_run: bool,
    pub(super) uid: Option<String>,
    pub(super) revision: Option<String>,
}

impl Options {
    pub(super) fn read(call: &Call, body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            grace: body["gracePeriodSeconds"]
                .as_i64()
                .or_else(|| call.param("gracePeriodSeconds").parse().ok()),
            dry_run: call.is_dry_run() || body["dryRun"][0] == "All",
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
        }
    }

    /// 409 when the object is not the one that was meant. The real server names the kind here, not the resource.
    pub(super) fn check(&self, kind: &Kind, object: &Value) -> Result<(), Failure> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let differs = |wanted: &Option<String>, field: &str| {
            wanted
                .as_ref()
                .is_some_and(|wanted| metadata[field] != *wanted)
        };
        let refuse = |what: &str, wanted: &Option<String>, field: &str| {
            let found = metadata[field].as_str().unwrap_or_default();
            let wanted = wanted.as_deref().unwrap_or_default();
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {}",
                if field == "uid" {
                    "deleted and then recreated"
                } else {
                    "modified"
                }
            );
            let mut failure = Failure::conflict(kind.group, kind.plural, name, &why);
            failure.message = format!(
                "Operation cannot be fulfilled on {} {name:?}: {why}",
                if kind.group.is_empty() {
                    kind.kind.to_owned()
                } else {
                    format!("{}.{}", kind.kind, kind.group)
                }
            );
            Err(failure.with_object(kind.group, kind.kind, name))
        };
        if differs(&self.uid, "uid") {
            return refuse("UID", &self.uid, "uid");
        }
        if differs(&self.revision, "resourceVersion") {
            return refuse("ResourceVersion", &self.revision, "resourceVersion");
        }
        Ok(())
    }
}

/// What is told of an object that is gone at once.
fn gone(kind: &Kind, old: &Value) -> http::Response<answer::Body> {
    let metadata = &old["metadata"];
    let mut details =
        json!({"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    answer::json(
        200,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    )
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
}

impl Server {
    pub(super) async fn delete(&self, context: &Context<'_>) -> Answer {
        let Context {
            identity,
            call,
            body,
            ..
        } = context;
        let kind = known(call)?;
        let options = Options::read(call, &read_options(body)?);
        let old = self.stored(call)?;
        self.check_delete(identity, call, kind, &old).await?;
        options.check(kind, &old)?;
        if options.dry_run {
            let stays = kind.plural == "pods" || has_finalizers(&old);
            return Ok(if stays {
                self.show(context, kind, 200, &old)
            } else {
                gone(kind, &old)
            });
        }
        let (namespace, name) = place_of(&old);
        let after = self
            .store
            .delete_with_grace(kind.plural, namespace, name, options.grace);
        match after {
            None => Err(Failure::not_found(kind.group, kind.plural, name)),
            Some(object)
                if kind.plural == "pods"
                    || self
                        .store
                        .get_shared(kind.plural, namespace, name)
                        .is_some() =>
            {
                Ok(self.show(context, kind, 200, &object))
            }
            Some(_) => Ok(gone(kind, &old)),
        }
    }

    pub(super) async fn delete_collection(&self, context: &Context<'_>) -> Answer {
        let Context {
            identity,
            call,
            body,
            ..
        } = context;
        let kind = known(call)?;
        let selection = Selection::of(call)?;
        let options = Options::read(call, &read_options(body)?);
        let mut deleted = Vec::new();
        for object in self.store.list_shared(kind.plural) {
            if !selection.matches(&object) {
                continue;
            }
            self.check_delete(identity, call, kind, &object).await?;
            let (namespace, name) = place_of(&object);
            if !options.dry_run {
                self.store
                    .delete_with_grace(kind.plural, namespace, name, options.grace);
            }
            deleted.push((*object).clone());
        }
        let list = json!({
            "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.store.revision().to_string()}, "items": deleted,
        });
        Ok(answer::json(200, &list))
    }

    async fn check_delete(
        &self,
        identity: &Identity,
        call: &Call,
        kind: &Kind,
        old: &Value,
    ) -> Result<(), Failure> {
        restriction::check(identity, call, Some(old), None)?;
        if self.rights().own_vms_only() {
            own_vms_policy(identity, kind, old)?;
        }
        if kind.is_kubevirt() {
            self.admission
                .admit("delete", kind.plural, &identity.user, Some(old), None)
                .await?;
        }
        Ok(())
    }
}

/// The policy of `packaging/rbac/own-node-policy.yaml`.
const POLICY: &str =
    "ValidatingAdmissionPolicy 'vmdrain-agent-own-node' with binding 'vmdrain-agent-own-node'";

/// The admission policy of the full tier (control-plane.md 6.b): a denial is 422, not 403.
fn own_vms_policy(identity: &Identity, kind: &Kind, old: &Value) -> Result<(), Failure> {
    let Some(node) = identity.node() else {
        return Ok(());
    };
    let evacuated = &old["metadata"]["annotations"]["kubevirt.io/evacuationMigration"];
    let why = match kind.plural {
        "virtualmachineinstancemigrations" if evacuated == node => return Ok(()),
        "virtualmachineinstancemigrations" => "may only delete migrations that evacuate it",
        "virtualmachineinstances" | "virtualmachines" => "may write no VMs",
        _ => return Ok(()),
    };
    let (_, name) = place_of(old);
    let why = format!("{POLICY} denied request: node {node} {why}");
    let message = format!(
        "{}.{} {name:?} is forbidden: {why}",
        kind.plural, kind.group
    );
    let failure = Failure::invalid(message).with_object(kind.group, kind.plural, name);
    Err(failure.with_cause("", &why, ""))
}

fn place_of(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn read_options(body: &[u8]) -> Result<Value, Failure> {
    if body.is_empty() {
        Ok(json!({}))
    } else {
        read_json("DeleteOptions", body)
    }
}
