//! May this pod be evicted? (kubevirt-semantics 1.2, step by step; control-plane-versions 1 for the versions)

use serde_json::{Value, json};

use super::{VirtApi, call_failed};
use crate::api::{EvictionRequest, Failure};
use crate::kubevirt::fields::{annotation, at, ended, has, is_true, label, namespace, owner, text};
use crate::kubevirt::names::{self, kind};

const LAUNCHER_ENTRY: &str = "virt-launcher-eviction-interceptor.kubevirt.io";
const HOTPLUG_ENTRY: &str = "hotplug-pod-eviction-interceptor.kubevirt.io";

/// The webhook entries on `pods/eviction`.
pub(super) async fn evict(api: &VirtApi, request: &EvictionRequest) -> Result<(), Failure> {
    let Some(entry) = entry_for(api, &request.name) else {
        return Ok(());
    };
    let path = if api.settings.since(1, 6) {
        "/pod-eviction-validate"
    } else {
        "/launcher-eviction-validate"
    };
    if let Some(failure) = api.unreachable(entry, path).await {
        // failurePolicy was Ignore until 1.4.
        return if api.settings.since(1, 5) {
            Err(failure)
        } else {
            Ok(())
        };
    }
    // virt-api goes on after the API server has given up, so the mark may be written although the client saw a 500.
    let decision = tokio::spawn({
        let (api, request) = (api.clone(), request.clone());
        async move { decide(&api, &request).await }
    });
    tokio::select! {
        outcome = decision => match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(text)) => Err(Failure::webhook(429, entry, &text)),
            Err(_) => Err(call_failed(entry, path, "EOF")),
        },
        () = api.store.clock().sleep(api.settings.timings.webhook_timeout) => {
            if api.settings.since(1, 5) { Err(call_failed(entry, path, "context deadline exceeded")) } else { Ok(()) }
        }
    }
}

/// Which entry a pod name matches: none before 1.7 for attachment pods; 1.4 asks about every pod.
fn entry_for(api: &VirtApi, pod: &str) -> Option<&'static str> {
    if pod.starts_with("hp-volume-") && api.settings.since(1, 7) {
        return Some(HOTPLUG_ENTRY);
    }
    (pod.starts_with("virt-launcher") || !api.settings.since(1, 5)).then_some(LAUNCHER_ENTRY)
}

/// Allows, or denies with a text.
async fn decide(api: &VirtApi, request: &EvictionRequest) -> Result<(), String> {
    api.one_request().await;
    let Some(pod) = api
        .store
        .get_shared(kind::PODS, &request.namespace, &request.name)
    else {
        return Ok(());
    };
    if label(&pod, names::ROLE) == "hotplug-disk" {
        return if api.settings.since(1, 7) {
            attachment(api, &pod)
        } else {
            Ok(())
        };
    }
    if label(&pod, names::ROLE) != names::LAUNCHER || ended(&pod) {
        return Ok(());
    }
    let Some(domain) = annotation(&pod, names::DOMAIN) else {
        return Ok(());
    };
    api.one_request().await;
    let Some(vmi) = api.store.get_shared(kind::VMIS, &request.namespace, domain) else {
        return Err(format!(
            "kubevirt failed getting the vmi: virtualmachineinstances.kubevirt.io {domain:?} not found"
        ));
    };
    if !wants_migration(api, &vmi, domain)? {
        return Ok(());
    }
    mark(api, request, &pod, &vmi).await
}

/// Whether the eviction strategy turns the eviction into an evacuation; the denial when it must not be evicted at all.
fn wants_migration(api: &VirtApi, vmi: &Value, name: &str) -> Result<bool, String> {
    let own = text(vmi, "spec.evictionStrategy");
    let strategy = if own.is_empty() {
        api.settings.cluster_eviction_strategy.as_str()
    } else {
        own
    };
    let migratable = is_true(vmi, "LiveMigratable");
    match strategy {
        "LiveMigrate" if migratable => Ok(true),
        "LiveMigrate" => Err(format!(
            "VMI {name} is configured with an eviction strategy but is not live-migratable"
        )),
        "LiveMigrateIfPossible" => Ok(migratable),
        "External" => Ok(true),
        _ => Ok(false),
    }
}

/// Steps 7 to 10: already marked, on another node, mark it.
async fn mark(
    api: &VirtApi,
    request: &EvictionRequest,
    pod: &Value,
    vmi: &Value,
) -> Result<(), String> {
    let name = text(vmi, "metadata.name");
    let triggered = format!(
        "Eviction triggered evacuation of VMI \"{}/{name}\"",
        namespace(vmi)
    );
    if !text(vmi, "status.evacuationNodeName").is_empty() {
        // Until 1.4 a marked VMI was left to its budget.
        return if api.settings.since(1, 5) {
            Err(format!("Evacuation in progress: {triggered}"))
        } else {
            Ok(())
        };
    }
    let node = text(pod, "spec.nodeName");
    if text(vmi, "status.nodeName") != node {
        return if api.settings.since(1, 5) {
            Err("Eviction request for target Pod".to_owned())
        } else {
            Ok(())
        };
    }
    api.one_request().await;
    if !request.dry_run {
        let descheduler = at(&request.eviction, "metadata.annotations.requested-by")
            .is_some_and(|by| by == "sigs.k8s.io/descheduler");
        let marked = api.store.update(kind::VMIS, namespace(vmi), name, |vmi| {
            vmi["status"]["evacuationNodeName"] = json!(node);
            if descheduler {
                vmi["metadata"]["annotations"][names::EVICTION_SOURCE] = json!("descheduler");
            }
        });
        if marked.is_none() {
            return Err(format!(
                "kubevirt failed marking the vmi for eviction: virtualmachineinstances.kubevirt.io {name:?} not found"
            ));
        }
    }
    Err(triggered)
}

/// An attachment pod may only go when its launcher pod does not need it.
fn attachment(api: &VirtApi, pod: &Value) -> Result<(), String> {
    if pod["metadata"]["ownerReferences"]
        .as_array()
        .is_none_or(|owners| owners.len() != 1)
    {
        return Ok(());
    }
    let Some((_, launcher, _)) = owner(pod) else {
        return Ok(());
    };
    let Some(launcher) = api.store.get_shared(kind::PODS, namespace(pod), launcher) else {
        return Ok(());
    };
    if label(&launcher, names::ROLE) != names::LAUNCHER
        || ended(&launcher)
        || !has(&launcher, "metadata.annotations")
    {
        return Ok(());
    }
    let Some(domain) = annotation(&launcher, names::DOMAIN) else {
        return Ok(());
    };
    if api
        .store
        .get_shared(kind::VMIS, namespace(pod), domain)
        .is_none()
    {
        return Ok(());
    }
    let (pod, space) = (text(pod, "metadata.name"), namespace(pod));
    Err(format!(
        "cannot evict hotplug pod: {pod} associated with running vmi: {domain} in namespace {space}"
    ))
}
