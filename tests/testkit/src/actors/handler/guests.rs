//! How do guests start and end, as virt-handler tells their VMI?

use std::time::Duration;

use serde_json::{Value, json};

use super::super::knobs::seconds_or_never;
use super::super::ledger::DirtyKill;
use super::super::machine::{Guest, Launcher, Machine};
use super::{Effect, Handler, Write};
use crate::api::store::timestamp;
use crate::kubevirt::fields::{annotation, deleting, has, set_condition, set_phase, text, uid};
use crate::kubevirt::names::knob;

/// What a guest takes to shut down, unless a knob says otherwise.
const USUAL_SHUTDOWN: Duration = Duration::from_secs(5);

impl Handler {
    pub(super) fn scheduled(&mut self, machine: &mut Machine, write: &mut Write) {
        let Some(launcher) = machine
            .of_vmi(uid(&write.vmi))
            .filter(|one| one.terminated.is_none() && one.ends.is_none())
        else {
            return;
        };
        let now = timestamp(self.clock.now());
        let vmi = &mut write.vmi;
        set_phase(vmi, "Running", &now);
        match annotation(vmi, knob::NOT_MIGRATABLE).map(str::to_owned) {
            None => set_condition(vmi, "LiveMigratable", "True", "", "", &now),
            Some(reason) => {
                set_condition(
                    vmi,
                    "LiveMigratable",
                    "False",
                    &reason,
                    &not_migratable(&reason),
                    &now,
                );
                if text(vmi, "spec.evictionStrategy") == "LiveMigrate" {
                    let text = format!(
                        "EvictionStrategy is set but vmi is not migratable; {}",
                        not_migratable(&reason)
                    );
                    write.events.push(("Warning", "Migrated", text));
                }
            }
        }
        set_condition(vmi, "StorageLiveMigratable", "True", "", "", &now);
        vmi["status"]["migrationMethod"] = json!("LiveMigration");
        vmi["status"]["selinuxContext"] = json!("none");
        write.events.push((
            "Normal",
            "Started",
            "VirtualMachineInstance started.".to_owned(),
        ));
        write.then = Effect::Runs {
            namespace: launcher.namespace.clone(),
            pod: launcher.pod.clone(),
        };
    }

    pub(super) fn running(&mut self, machine: &mut Machine, write: &mut Write) {
        let vmi = &mut write.vmi;
        let now = timestamp(self.clock.now());
        let Some(launcher) = machine.of_vmi(uid(vmi)) else {
            set_phase(vmi, "Failed", &now);
            write.events.push((
                "Warning",
                "Stopped",
                "The VirtualMachineInstance crashed.".to_owned(),
            ));
            return;
        };
        // The guest was there before its virt-handler was.
        if launcher.guest == Guest::Found {
            launcher.guest = Guest::Running;
        }
        self.shut_down(launcher, vmi, &mut write.events);
        if let Guest::Gone { clean } = launcher.guest {
            set_phase(vmi, if clean { "Succeeded" } else { "Failed" }, &now);
            write.events.push(if clean {
                (
                    "Normal",
                    "Stopped",
                    "The VirtualMachineInstance was shut down.".to_owned(),
                )
            } else {
                (
                    "Warning",
                    "Stopped",
                    "The VirtualMachineInstance crashed.".to_owned(),
                )
            });
        }
    }

    /// ACPI, then the guest's own time, then the end of its grace period. A guest that migrates is left alone until that is over.
    pub(super) fn shut_down(
        &mut self,
        launcher: &mut Launcher,
        vmi: &Value,
        events: &mut Vec<(&'static str, &'static str, String)>,
    ) {
        let now = self.timers.now();
        if launcher.guest == Guest::Running
            && (launcher.terminated.is_some() || deleting(vmi))
            && !in_progress(vmi)
        {
            launcher.guest = Guest::ShuttingDown { since: now };
            events.push((
                "Normal",
                "ShuttingDown",
                "Signaled Graceful Shutdown".to_owned(),
            ));
            self.tell_later(vmi, events);
        }
        let Guest::ShuttingDown { since } = launcher.guest else {
            return;
        };
        let needs = seconds_or_never(vmi, knob::GUEST_SHUTDOWN, USUAL_SHUTDOWN);
        if needs.is_some_and(|needs| needs <= launcher.grace && self.timers.reached(since + needs))
        {
            launcher.guest = Guest::Gone { clean: true };
        } else if self.timers.reached(since + launcher.grace) {
            launcher.guest = Guest::Gone { clean: false };
            self.ledger.record(DirtyKill {
                at: now,
                namespace: launcher.namespace.clone(),
                name: launcher.vmi.clone(),
                node: self.node.clone(),
                reason: "it did not shut down within its grace period".to_owned(),
            });
        }
    }
}

/// Whether a migration of this VMI has begun and is not over.
pub(super) fn in_progress(vmi: &Value) -> bool {
    has(vmi, "status.migrationState.startTimestamp")
        && vmi["status"]["migrationState"]["completed"] != true
}

pub(super) fn not_migratable(reason: &str) -> String {
    match reason {
        "DisksNotLiveMigratable" => "cannot migrate VMI: PVC disk is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)".to_owned(),
        other => format!("cannot migrate VMI: {other}"),
    }
}
