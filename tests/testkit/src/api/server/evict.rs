//! POST pods/eviction, in the order of the real server.
//!
//! Rights · namespace being terminated · NodeRestriction · name in the body · webhooks (which may mark the VM) · disruption budgets (not
//! for ended pods) · UID precondition, *after* a budget has given one disruption away · condition `DisruptionTarget` · deletion.
//! Compared with kube-apiserver 1.34.2.

use serde_json::{Value, json};

use super::delete::Options;
use super::{Answer, Context, Server, read_json};
use crate::api::admission::EvictionRequest;
use crate::api::answer;
use crate::api::failure::Failure;
use crate::api::kinds;
use crate::api::rights::restriction;
use crate::api::selectors::LabelSelector;

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const TWO_BUDGETS: &str = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
/// What the server asks for while the disruption controller has not looked at a budget.
const UNOBSERVED_RETRY: u32 = 10;

impl Server {
    pub(super) async fn evict(&self, context: &Context<'_>) -> Answer {
        let Context {
            identity,
            call,
            body,
            ..
        } = context;
        self.check_namespace(call, &Value::Null)?;
        restriction::check_eviction(identity, call, &self.store)?;
        let eviction = read_json("Eviction", body)?;
        check_kind(&eviction)?;
        if eviction["metadata"]["name"] != call.path_name {
            return Err(Failure::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = Options::read(call, &eviction["deleteOptions"]);
        let request = EvictionRequest {
            namespace: call.namespace.clone(),
            name: call.path_name.clone(),
            eviction,
            dry_run: options.dry_run,
            user: identity.user.clone(),
        };
        self.admission.evict(&request).await?;
        let pod = self.stored(call)?;
        if !ignores_budgets(&pod) {
            self.pass_budgets(&pod, options.dry_run)?;
        }
        if let Some(kind) = kinds::by_plural("pods") {
            options.check(kind, &pod)?;
        }
        if !options.dry_run {
            self.end_pod(&pod, &options);
        }
        Ok(answer::json(
            201,
            &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        ))
    }

    /// Marks a pod as disrupted and deletes it; one that is terminating already stays as it is.
    fn end_pod(&self, pod: &Value, options: &Options) {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let now = self.store.stamp();
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                "lastProbeTime": null, "lastTransitionTime": now,
            });
            self.store
                .update("pods", namespace, name, |pod| set_condition(pod, condition));
        }
        self.store
            .delete_with_grace("pods", namespace, name, options.grace);
    }

    /// Asks the disruption budgets of a pod, and takes one disruption from the one that allows it.
    fn pass_budgets(&self, pod: &Value, dry_run: bool) -> Result<(), Failure> {
        let mut budgets = self.store.list_shared("poddisruptionbudgets");
        budgets.retain(|budget| {
            let same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"];
            same_namespace
                && LabelSelector::from_object(&budget["spec"]["selector"])
                    .matches(&pod["metadata"]["labels"])
        });
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget.clone(),
            _ => {
                return Err(Failure {
                    code: 500,
                    message: TWO_BUDGETS.to_owned(),
                    ..Failure::default()
                });
            }
        };
        if !is_ready(pod) && lets_unhealthy_go(&budget) {
            return Ok(());
        }
        judge(&budget)?;
        if dry_run {
            return Ok(());
        }
        let text = |object: &Value, field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let (pod_name, now) = (text(pod, "name"), self.store.stamp());
        let taken = self.store.try_update(
            "poddisruptionbudgets",
            &text(&budget, "namespace"),
            &text(&budget, "name"),
            |budget| {
                // Another eviction may have been faster.
                judge(budget)?;
                take_one(budget, &pod_name, &now);
                Ok::<(), Failure>(())
            },
        );
        taken.unwrap_or(Ok(Value::Null)).map(|_| ())
    }
}

/// 400 for an object that is no Eviction.
fn check_kind(eviction: &Value) -> Result<(), Failure> {
    let text = |field: &str| eviction[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() || kind == "Eviction" && version.starts_with("policy/") {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a Eviction: converting ({version}.{kind}) to (policy.Eviction): unknown conversion"
    )))
}

/// Pods that have ended, have not begun or are on their way out are no disruption.
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str();
    matches!(phase, Some("Succeeded" | "Failed" | "Pending"))
        || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

fn number(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or(0)
}

/// `unhealthyPodEvictionPolicy`: always, or (by default) when the budget is met without this pod.
fn lets_unhealthy_go(budget: &Value) -> bool {
    let (current, desired) = (
        number(budget, "currentHealthy"),
        number(budget, "desiredHealthy"),
    );
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (desired > 0 && current >= desired)
}

fn judge(budget: &Value) -> Result<(), Failure> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |cause: &str| {
        Failure {
            details: Some(json!({})),
            ..Failure::new(429, "TooManyRequests", VIOLATES)
        }
        .with_cause("DisruptionBudget", cause, "")
    };
    if number(budget, "observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0)
    {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refuse(&cause).with_retry_after(UNOBSERVED_RETRY));
    }
    if number(budget, "disruptionsAllowed") > 0 {
        return Ok(());
    }
    let (current, desired) = (
        number(budget, "currentHealthy"),
        number(budget, "desiredHealthy"),
    );
    Err(refuse(&format!(
        "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
    )))
}

/// One disruption less, until the disruption controller has counted again.
fn take_one(budget: &mut Value, pod: &str, now: &str) {
    let left = number(budget, "disruptionsAllowed") - 1;
    budget["status"]["disruptionsAllowed"] = json!(left);
    budget["status"]["disruptedPods"][pod] = json!(now);
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "", "lastTransitionTime": now,
            "observedGeneration": budget["status"]["observedGeneration"],
        });
        set_condition(budget, condition);
    }
}

fn set_condition(object: &mut Value, condition: Value) {
    let list = &mut object["status"]["conditions"];
    let Some(conditions) = list.as_array_mut() else {
        *list = json!([condition]);
        return;
    };
    let same = |own: &&mut Value| own["type"] == condition["type"];
    let Some(own) = conditions.iter_mut().find(same) else {
        conditions.push(condition);
        return;
    };
    let (status, since) = (own["status"].clone(), own["lastTransitionTime"].clone());
    *own = condition;
    if own["status"] == status {
        own["lastTransitionTime"] = since;
    }
}
