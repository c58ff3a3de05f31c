//! Who restarts a VM whose guest has ended (control-plane.md 6.f)?

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Looks, launcher};
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    deleting, ended, flag, has, is_migrating, name, namespace, phase, push, remove, text, uid,
};
use crate::kubevirt::names::kind;
use crate::kubevirt::virt_api::{VirtApi, subresources, writes};

const LOOKS: Looks = Looks {
    key: "vm",
    resource: kind::VMS,
    owned: kind::VMIS,
    kind: "VirtualMachine",
};

pub(super) struct Machines {
    api: VirtApi,
}

/// What to do about the VMI of a VM.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Leave,
    Start,
    /// Delete the VMI; `again` leaves a request to start a new one.
    Stop {
        again: bool,
    },
}

impl Machines {
    pub(super) fn new(api: VirtApi) -> Self {
        Self { api }
    }

    fn step(&self, store: &Store, vm: &Arc<Value>) -> Result<(), Unavailable> {
        let vmi = store.get_shared(kind::VMIS, namespace(vm), name(vm));
        if deleting(vm) {
            return self.delete(store, vm, vmi.as_deref());
        }
        match verdict(vm, vmi.as_deref()) {
            Verdict::Leave => {}
            Verdict::Start => return self.start(store, vm),
            Verdict::Stop { again } => return self.stop(store, vm, again),
        }
        self.tell(store, vm, vmi.as_deref())
    }

    fn start(&self, store: &Store, vm: &Value) -> Result<(), Unavailable> {
        self.api.check()?;
        let mut vmi = launcher::instance(&vm["spec"]["template"], vm, Some(name(vm)));
        writes::vmi_create(&self.api, &mut vmi);
        if store.create(kind::VMIS, vmi).is_ok() {
            store.record_event(
                vm,
                "Normal",
                "SuccessfulCreate",
                &format!(
                    "Started the virtual machine by creating the new virtual machine instance {}",
                    name(vm)
                ),
            );
        }
        store.update(kind::VMS, namespace(vm), name(vm), |vm| {
            remove(&mut vm["status"], "stateChangeRequests");
            vm["status"]["created"] = json!(true);
        });
        Ok(())
    }

    fn stop(&self, store: &Store, vm: &Value, again: bool) -> Result<(), Unavailable> {
        self.api.check()?;
        store.update(kind::VMS, namespace(vm), name(vm), |vm| {
            let requests = &mut vm["status"]["stateChangeRequests"];
            let starts = again
                || requests
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["action"] == "Start"));
            remove(&mut vm["status"], "stateChangeRequests");
            if starts {
                push(
                    &mut vm["status"]["stateChangeRequests"],
                    json!({"action": "Start"}),
                );
            }
        });
        store.delete(kind::VMIS, namespace(vm), name(vm));
        store.record_event(
            vm,
            "Normal",
            "SuccessfulDelete",
            &format!(
                "Stopped the virtual machine by deleting the virtual machine instance {}",
                name(vm)
            ),
        );
        Ok(())
    }

    /// The VMI goes first.
    fn delete(&self, store: &Store, vm: &Value, vmi: Option<&Value>) -> Result<(), Unavailable> {
        self.api.check()?;
        match vmi {
            Some(vmi) if !deleting(vmi) => {
                store.delete(kind::VMIS, namespace(vmi), name(vmi));
            }
            Some(_) => {}
            None => {
                store.update(kind::VMS, namespace(vm), name(vm), |vm| {
                    vm["metadata"]["finalizers"] = json!([]);
                });
            }
        }
        Ok(())
    }

    fn tell(&self, store: &Store, vm: &Value, vmi: Option<&Value>) -> Result<(), Unavailable> {
        let status = printable(vm, vmi);
        let ready = vmi.is_some_and(|vmi| crate::kubevirt::fields::is_true(vmi, "Ready"));
        if text(vm, "status.printableStatus") == status
            && flag(vm, "status.ready") == ready
            && flag(vm, "status.created") == vmi.is_some()
        {
            return Ok(());
        }
        self.api.check()?;
        store.update(kind::VMS, namespace(vm), name(vm), |vm| {
            vm["status"]["printableStatus"] = json!(status);
            vm["status"]["ready"] = json!(ready);
            vm["status"]["created"] = json!(vmi.is_some());
        });
        Ok(())
    }
}

fn requested(vm: &Value, action: &str, vmi: Option<&Value>) -> bool {
    vm["status"]["stateChangeRequests"]
        .as_array()
        .is_some_and(|all| {
            all.iter().any(|one| {
                one["action"] == action
                    && (action == "Start" || vmi.is_some_and(|vmi| text(one, "uid") == uid(vmi)))
            })
        })
}

/// The table of control-plane.md 6.f.
fn verdict(vm: &Value, vmi: Option<&Value>) -> Verdict {
    let strategy = subresources::run_strategy(vm);
    let Some(vmi) = vmi else {
        let starts = match strategy {
            "Always" | "Once" => true,
            "RerunOnFailure" | "Manual" => requested(vm, "Start", None),
            _ => false,
        };
        return if starts {
            Verdict::Start
        } else {
            Verdict::Leave
        };
    };
    if deleting(vmi) {
        return Verdict::Leave;
    }
    let over = ended(vmi);
    match strategy {
        "Halted" => Verdict::Stop { again: false },
        "Always" if over || requested(vm, "Stop", Some(vmi)) => Verdict::Stop { again: false },
        "RerunOnFailure" if over => Verdict::Stop {
            again: phase(vmi) == "Failed",
        },
        "RerunOnFailure" | "Manual" if requested(vm, "Stop", Some(vmi)) => {
            Verdict::Stop { again: false }
        }
        "Manual" if over && requested(vm, "Start", None) => Verdict::Stop { again: true },
        _ => Verdict::Leave,
    }
}

fn printable(vm: &Value, vmi: Option<&Value>) -> &'static str {
    let Some(vmi) = vmi else {
        return if subresources::run_strategy(vm) == "Always" {
            "Starting"
        } else {
            "Stopped"
        };
    };
    if deleting(vmi) {
        return "Stopping";
    }
    match phase(vmi) {
        "Succeeded" | "Failed" => "Stopped",
        "Running" if is_migrating(vmi) => "Migrating",
        "Running" => "Running",
        _ if has(vmi, "status.conditions")
            && crate::kubevirt::fields::condition(vmi, "PodScheduled").is_some() =>
        {
            "ErrorUnschedulable"
        }
        _ => "Starting",
    }
}

impl Controller for Machines {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn changed(&mut self, _store: &Store, change: &Change, queue: &mut Queue) {
        LOOKS.changed(change, queue);
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        _queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        match store.get_shared(kind::VMS, &key.namespace, &key.name) {
            Some(vm) => self.step(store, &vm),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(strategy: &str, requests: &Value) -> Value {
        json!({"spec": {"runStrategy": strategy}, "status": {"stateChangeRequests": requests}})
    }

    fn vmi(phase: &str) -> Value {
        json!({"metadata": {"uid": "u"}, "status": {"phase": phase}})
    }

    #[test]
    fn the_table_of_who_restarts() {
        let stop = |again| Verdict::Stop { again };
        let cases = [
            ("Always", stop(false), stop(false), Verdict::Start),
            ("RerunOnFailure", stop(false), stop(true), Verdict::Leave),
            ("Manual", Verdict::Leave, Verdict::Leave, Verdict::Leave),
            ("Once", Verdict::Leave, Verdict::Leave, Verdict::Start),
        ];
        for (strategy, succeeded, failed, missing) in cases {
            let vm = vm(strategy, &json!([]));
            assert_eq!(
                verdict(&vm, Some(&vmi("Succeeded"))),
                succeeded,
                "{strategy} succeeded"
            );
            assert_eq!(
                verdict(&vm, Some(&vmi("Failed"))),
                failed,
                "{strategy} failed"
            );
            assert_eq!(verdict(&vm, None), missing, "{strategy} missing");
            assert_eq!(
                verdict(&vm, Some(&vmi("Running"))),
                Verdict::Leave,
                "{strategy} running"
            );
        }
    }

    #[test]
    fn a_restart_request_is_a_stop_and_a_start() {
        let requests = json!([{"action": "Stop", "uid": "u"}, {"action": "Start"}]);
        for strategy in ["Always", "RerunOnFailure", "Manual"] {
            assert_eq!(
                verdict(&vm(strategy, &requests), Some(&vmi("Running"))),
                Verdict::Stop { again: false }
            );
        }
        assert_eq!(
            verdict(&vm("Manual", &json!([{"action": "Start"}])), None),
            Verdict::Start
        );
        let other = json!([{"action": "Stop", "uid": "older"}]);
        assert_eq!(
            verdict(&vm("Manual", &other), Some(&vmi("Running"))),
            Verdict::Leave
        );
    }
}
