//! What is switched for the whole of a cluster: rights that are granted, and the way to virt-api. When does the API server follow?
//!
//! It learns of policies, webhooks and APIServices through watches of its own, one to several seconds later on a busy machine. So each
//! switch is probed until it has its effect, on the real servers; the model follows at once.

use std::time::Duration;

use serde_json::{Value, json};

use super::manifests;
use super::side::{Ask, LOOK, Reach, Side, Who, get};
use crate::api::Rights;
use crate::clock::SimClock;

/// No switch takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// A probe has to say the same so many times: the API server has several informers.
const SURE: usize = 3;
/// Where virt-api's port is kept while it is out of reach.
const KEPT: &str = "differential.vmdrain.io/port";
/// Nobody listens here.
const DEAD: u64 = 1;

impl Side {
    /// Applies parts of `packaging/rbac/`, and waits until they count.
    pub async fn grant(&self, parts: &[String]) -> anyhow::Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        if let Reach::Model(cluster) = &self.reach {
            cluster.server.set_rights(manifests::rights(parts)?);
            return Ok(());
        }
        for part in parts {
            for object in manifests::objects(part)? {
                let ask = Ask {
                    line: format!("POST {}", manifests::path(&object)?),
                    body: object.to_string(),
                    headers: vec![("content-type", "application/json".to_owned())],
                };
                let code = self.ask(&Who::Admin, &ask).await?.code;
                anyhow::ensure!(
                    code == 201 || code == 409,
                    "packaging/rbac/{part}.yaml: {code}"
                );
            }
        }
        self.until_rights(parts, true).await
    }

    /// Takes them away again, and waits until they are gone.
    pub async fn revoke(&self, parts: &[String]) -> anyhow::Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        if let Reach::Model(cluster) = &self.reach {
            cluster.server.set_rights(Rights::base());
            return Ok(());
        }
        for part in parts {
            for object in manifests::objects(part)? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let line = format!("DELETE {}/{name}", manifests::path(&object)?);
                self.ask(
                    &Who::Admin,
                    &Ask {
                        line,
                        ..Ask::default()
                    },
                )
                .await?;
            }
        }
        self.until_rights(parts, false).await
    }

    async fn until_rights(&self, parts: &[String], given: bool) -> anyhow::Result<()> {
        for part in parts {
            let objects = manifests::objects(part)?;
            for object in &objects {
                match object["kind"].as_str() {
                    Some("ClusterRole") => {
                        let review = review(object);
                        self.until(part, given, async || self.allowed(&review).await)
                            .await?;
                    }
                    Some("ValidatingAdmissionPolicyBinding") => {
                        self.until(part, given, async || self.confined().await)
                            .await?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn allowed(&self, review: &Value) -> anyhow::Result<bool> {
        const REVIEWS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
        let said = self
            .must(REVIEWS, &review.to_string(), "application/json")
            .await?;
        Ok(said["status"]["allowed"] == true)
    }

    /// Whether the policy keeps a service account of the agent, here one with every right, from another's Node.
    async fn confined(&self) -> anyhow::Result<bool> {
        let ask = Ask {
            line: format!("PATCH /api/v1/nodes/{}?dryRun=All", super::side::NODES[0]),
            body: json!({"metadata": {"annotations": {"differential.vmdrain.io/probe": "policy"}}})
                .to_string(),
            headers: vec![("content-type", "application/merge-patch+json".to_owned())],
        };
        let code = self.ask(&Who::Mighty, &ask).await?.code;
        anyhow::ensure!(code == 200 || code == 422, "the policy's probe says {code}");
        Ok(code == 422)
    }

    /// Breaks or mends the way to virt-api, for webhooks and for the aggregated API: connections are refused meanwhile.
    pub async fn reach_virt_api(&self, reachable: bool) -> anyhow::Result<()> {
        if let Reach::Model(cluster) = &self.reach {
            let until = if reachable {
                Duration::ZERO
            } else {
                Duration::MAX
            };
            cluster.world.virt_api.down(until);
            return Ok(());
        }
        self.move_virt_api(reachable).await?;
        // A mutating webhook, a validating one (VMIReplicaSets have no other), the aggregated API.
        for plural in [
            ("virtualmachineinstances", "VirtualMachineInstance"),
            (
                "virtualmachineinstancereplicasets",
                "VirtualMachineInstanceReplicaSet",
            ),
        ] {
            self.until("webhooks", reachable, async || self.hooked(plural).await)
                .await?;
        }
        self.until("aggregated API", reachable, async || {
            let healthy = get("/apis/subresources.kubevirt.io/v1/healthz");
            Ok(self.ask(&Who::Admin, &healthy).await?.code == 200)
        })
        .await
    }

    /// Whether the webhooks of a kind are asked and answer.
    async fn hooked(&self, (plural, kind): (&str, &str)) -> anyhow::Result<bool> {
        let spec = json!({"domain": {"devices": {}}});
        let template = json!({"metadata": {"labels": {"probe": "webhook"}}, "spec": spec});
        let spec = if plural == "virtualmachineinstances" {
            spec
        } else {
            json!({"selector": {"matchLabels": {"probe": "webhook"}}, "template": template})
        };
        let ask = Ask {
            line: format!(
                "POST /apis/kubevirt.io/v1/namespaces/default/{plural}?dryRun=All"
            ),
            body: json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "probe"}, "spec": spec}).to_string(),
            headers: vec![("content-type", "application/json".to_owned())],
        };
        let reply = self.ask(&Who::Admin, &ask).await?;
        Ok(!String::from_utf8_lossy(&reply.body).contains("failed calling webhook"))
    }

    /// Waits until a probe says so, several times running.
    async fn until(
        &self,
        what: &str,
        wanted: bool,
        probe: impl AsyncFn() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let clock = SimClock::new(1.0);
        let mut sure = 0;
        while sure < SURE {
            if probe().await? == wanted {
                sure += 1;
            } else {
                sure = 0;
            }
            anyhow::ensure!(
                clock.elapsed() < PATIENCE,
                "{}: {what}: the API server does not follow within {} s",
                self.name,
                PATIENCE.as_secs()
            );
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Lets the real servers look for virt-api on a port where nobody listens, or where it was before. The old port travels as an
    /// annotation.
    async fn move_virt_api(&self, reachable: bool) -> anyhow::Result<()> {
        const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
        const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        for list in [
            format!("{HOOKS}/validatingwebhookconfigurations"),
            format!("{HOOKS}/mutatingwebhookconfigurations"),
            SERVICES.to_owned(),
        ] {
            let found = self
                .must(&format!("GET {list}"), "", "application/json")
                .await?;
            for object in found["items"].as_array().into_iter().flatten() {
                let mut object = object.clone();
                if redirect(&mut object, reachable) {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let line = format!("PUT {list}/{name}");
                    self.must(&line, &object.to_string(), "application/json")
                        .await?;
                }
            }
        }
        Ok(())
    }
}

/// Asks whether a kubelet's group, or that of the agent's service accounts, may do the first thing that a role allows.
fn review(role: &Value) -> Value {
    let rule = &role["rules"][0];
    let resource = rule["resources"][0].as_str().unwrap_or_default();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "probe",
        "groups": ["system:nodes", "system:serviceaccounts:vmdrain"],
        "resourceAttributes": {
            "verb": rule["verbs"][0], "group": rule["apiGroups"][0],
            "resource": resource, "subresource": subresource,
        },
    }})
}

/// Changes the port of every reference to virt-api in a webhook configuration or an APIService; whether there is one.
fn redirect(object: &mut Value, reachable: bool) -> bool {
    let kept = object["metadata"]["annotations"][KEPT]
        .as_str()
        .and_then(|port| port.parse().ok());
    let to = if reachable { kept } else { Some(DEAD) };
    let Some(to) = to else { return false };
    let mut from = None;
    for hook in object["webhooks"].as_array_mut().into_iter().flatten() {
        let Some(url) = hook["clientConfig"]["url"]
            .as_str()
            .and_then(|url| url.parse::<http::Uri>().ok())
        else {
            continue;
        };
        let (Some(host), Some(port)) = (url.host(), url.port_u16()) else {
            continue;
        };
        from = Some(u64::from(port));
        let path = url
            .path_and_query()
            .map_or("", http::uri::PathAndQuery::as_str);
        hook["clientConfig"]["url"] = json!(format!("https://{host}:{to}{path}"));
    }
    let service = &mut object["spec"]["service"];
    if service["name"] == "virt-api" {
        from = service["port"].as_u64();
        service["port"] = json!(to);
    }
    let Some(from) = from else { return false };
    object["metadata"]["annotations"][KEPT] = if reachable {
        Value::Null
    } else {
        json!(from.to_string())
    };
    true
}
