//! What do the aggregated subresources answer (control-plane.md 6.e)?

use serde_json::{Value, json};

use super::{REFUSED, VirtApi};
use crate::api::{Failure, SubresourceRequest};
use crate::kubevirt::fields::{ended, text};
use crate::kubevirt::names::kind;

type Answer = Result<(u16, Vec<u8>), Failure>;

/// Answers one request to `subresources.kubevirt.io`.
pub(crate) async fn answer(api: &VirtApi, request: SubresourceRequest) -> Answer {
    if !api.process.is_up() {
        return Err(Failure::text(
            503,
            format!("error trying to reach service: {REFUSED}"),
        ));
    }
    if !api.answers.is_up() {
        api.answers.wait_up().await;
    }
    if request.resource.is_empty() {
        return match request.sub.as_str() {
            "healthz" => Ok((200, br#"{"apiserver":{"connectivity":"ok"}}"#.to_vec())),
            _ => Err(Failure::text(404, "404: Page Not Found")),
        };
    }
    if request.method != "PUT" {
        return Err(Failure::text(405, "405: Method Not Allowed"));
    }
    match (request.resource.as_str(), request.sub.as_str()) {
        (kind::VMIS | kind::VMS, "evacuate/cancel") if api.settings.since(1, 7) => {
            evacuate_cancel(api, &request)
        }
        (kind::VMS, "restart") => restart(api, &request),
        (kind::VMS, "stop") => stop(api, &request),
        (kind::VMS, "start") => start(api, &request),
        (kind::VMS, "migrate") => migrate(api, &request),
        _ => Err(Failure::text(404, "404: Page Not Found")),
    }
}

fn evacuate_cancel(api: &VirtApi, request: &SubresourceRequest) -> Answer {
    let vmi = instance(api, request)?;
    let options = options(&request.body)?;
    let wanted = text(&options, "evacuationNodeName");
    refuse_drain_taint(api, wanted)?;
    let marked = text(&vmi, "status.evacuationNodeName");
    if marked.is_empty() {
        return Ok((200, Vec::new()));
    }
    if marked != wanted {
        return Err(Failure::internal(
            "the server rejected our request due to an error in our request",
        ));
    }
    if options["dryRun"].as_array().is_none_or(Vec::is_empty) {
        let changed = api
            .store
            .update(kind::VMIS, &request.namespace, &request.name, |vmi| {
                crate::kubevirt::fields::remove(&mut vmi["status"], "evacuationNodeName");
            });
        if let Some(vmi) = changed {
            api.note_cancel(&vmi);
        }
    }
    Ok((200, Vec::new()))
}

/// The VMI that the request is about, by either route.
fn instance(api: &VirtApi, request: &SubresourceRequest) -> Result<Value, Failure> {
    let group = "kubevirt.io";
    if request.resource == kind::VMS {
        machine(api, request)?;
    }
    api.store
        .get(kind::VMIS, &request.namespace, &request.name)
        .ok_or_else(|| {
            if request.resource == kind::VMS {
                Failure::conflict(group, "virtualmachine", &request.name, "VMI is not started")
            } else {
                Failure::not_found(group, "virtualmachineinstance", &request.name)
            }
        })
}

fn machine(api: &VirtApi, request: &SubresourceRequest) -> Result<Value, Failure> {
    let missing = || Failure::not_found("kubevirt.io", "virtualmachine", &request.name);
    api.store
        .get(kind::VMS, &request.namespace, &request.name)
        .ok_or_else(missing)
}

fn options(body: &[u8]) -> Result<Value, Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(json!({}));
    }
    let parsed = serde_json::from_slice::<Value>(body)
        .ok()
        .filter(Value::is_object);
    parsed.ok_or_else(|| {
        Failure::bad_request("Can not unmarshal Request body to struct, error: invalid character")
    })
}

/// A node that carries the drain taint would mark everything again.
fn refuse_drain_taint(api: &VirtApi, node: &str) -> Result<(), Failure> {
    let key = &api.settings.drain_taint_key;
    let Some(found) = api.store.get_shared(kind::NODES, "", node) else {
        return Ok(());
    };
    let tainted = found["spec"]["taints"]
        .as_array()
        .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == json!(key)));
    if tainted {
        return Err(Failure::bad_request(format!(
            "Node {node:?} has NodeDrainTaintKey \"&Taint{{Key:{key},Value:,Effect:NoSchedule,TimeAdded:<nil>,}}\""
        )));
    }
    Ok(())
}

/// `spec.runStrategy`, or what `spec.running` means.
pub(crate) fn run_strategy(vm: &Value) -> &str {
    match text(vm, "spec.runStrategy") {
        "" if vm["spec"]["running"] == true => "Always",
        "" => "Halted",
        strategy => strategy,
    }
}

fn restart(api: &VirtApi, request: &SubresourceRequest) -> Answer {
    let vm = machine(api, request)?;
    let strategy = run_strategy(&vm);
    if matches!(strategy, "Halted" | "Once") {
        let why = format!("{strategy} does not support manual restart requests");
        return Err(Failure::conflict(
            "kubevirt.io",
            "virtualmachine",
            &request.name,
            &why,
        ));
    }
    let vmi = api
        .store
        .get(kind::VMIS, &request.namespace, &request.name)
        .filter(|vmi| !ended(vmi));
    let Some(vmi) = vmi else {
        return Err(Failure::conflict(
            "kubevirt.io",
            "virtualmachine",
            &request.name,
            "VM is not running: Halted",
        ));
    };
    let requests = json!([{"action": "Stop", "uid": vmi["metadata"]["uid"]}, {"action": "Start"}]);
    api.store
        .update(kind::VMS, &request.namespace, &request.name, |vm| {
            vm["status"]["stateChangeRequests"] = requests;
        });
    Ok((202, Vec::new()))
}

fn stop(api: &VirtApi, request: &SubresourceRequest) -> Answer {
    let vm = machine(api, request)?;
    let strategy = run_strategy(&vm).to_owned();
    let vmi = api.store.get(kind::VMIS, &request.namespace, &request.name);
    if strategy == "Halted" {
        return Err(Failure::conflict(
            "kubevirt.io",
            "virtualmachine",
            &request.name,
            "VM is not running: Halted",
        ));
    }
    api.store
        .update(kind::VMS, &request.namespace, &request.name, |vm| {
            if matches!(strategy.as_str(), "Always" | "Once") {
                vm["spec"]["runStrategy"] = json!("Halted");
                crate::kubevirt::fields::remove(&mut vm["spec"], "running");
            } else if let Some(vmi) = &vmi {
                vm["status"]["stateChangeRequests"] =
                    json!([{"action": "Stop", "uid": vmi["metadata"]["uid"]}]);
            }
        });
    Ok((202, Vec::new()))
}

fn start(api: &VirtApi, request: &SubresourceRequest) -> Answer {
    let vm = machine(api, request)?;
    let strategy = run_strategy(&vm).to_owned();
    let vmi = api.store.get(kind::VMIS, &request.namespace, &request.name);
    let running = vmi.as_ref().is_some_and(|vmi| !ended(vmi));
    let failed = vmi
        .as_ref()
        .is_some_and(|vmi| text(vmi, "status.phase") == "Failed");
    let refusal = match strategy.as_str() {
        _ if running => "VM is already running".to_owned(),
        "Always" | "Once" => format!("{strategy} does not support manual start requests"),
        "RerunOnFailure" if failed => {
            format!("{strategy} does not support starting VM from failed state")
        }
        _ => String::new(),
    };
    if !refusal.is_empty() {
        return Err(Failure::conflict(
            "kubevirt.io",
            "virtualmachine",
            &request.name,
            &refusal,
        ));
    }
    api.store
        .update(kind::VMS, &request.namespace, &request.name, |vm| {
            if strategy == "Halted" {
                vm["spec"]["runStrategy"] = json!("Always");
            } else {
                vm["status"]["stateChangeRequests"] = json!([{"action": "Start"}]);
            }
        });
    Ok((202, Vec::new()))
}

fn migrate(api: &VirtApi, request: &SubresourceRequest) -> Answer {
    let vmi = instance(api, request)?;
    if text(&vmi, "status.phase") != "Running" {
        return Err(Failure::conflict(
            "kubevirt.io",
            "virtualmachine",
            &request.name,
            "VM is not running",
        ));
    }
    let mut vmim = json!({
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": request.namespace},
        "spec": {"vmiName": request.name},
    });
    super::writes::check_migration(api, &vmim).map_err(|why| {
        Failure::internal(format!(
            "admission webhook \"migration-create-validator.kubevirt.io\" denied the request: {why}"
        ))
    })?;
    super::writes::complete_migration(&mut vmim);
    api.store.create(kind::VMIMS, vmim)?;
    Ok((202, Vec::new()))
}
