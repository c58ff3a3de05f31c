//! The two ends of a live migration: what does the source write, what the target, and when does it break?

use std::time::Duration;

use serde_json::{Value, json};

use super::feed::Objects;
use super::handler::{Effect, Handler, Write};
use super::knobs::{Outcome, attempt_of, gibibytes, transfer_time};
use super::machine::{Guest, Machine};
use crate::api::store::timestamp;
use crate::kubevirt::fields::{annotation, at, flag, has, label, namespace, remove, text, uid};
use crate::kubevirt::names::{self, knob};

impl Handler {
    /// One end's part of a VMI's newest migration.
    pub(super) fn migrate(&mut self, machine: &mut Machine, write: &mut Write) {
        let state = &write.vmi["status"]["migrationState"];
        let source = text(state, "sourceNode") == self.node;
        let target = text(state, "targetNode") == self.node;
        let over = has(state, "endTimestamp");
        if source {
            self.number(&write.vmi);
        }
        if target && over {
            self.clean_up(machine, write);
        } else if source && over && flag(state, "failed") {
            self.clean_label(write);
        } else if target {
            self.receive(machine, write);
        } else if source {
            self.send(machine, write);
        }
    }

    /// Remembers the order in which migrations of a VMI came, for servers that do not number them.
    fn number(&mut self, vmi: &Value) {
        let vmim = text(vmi, "status.migrationState.migrationUid");
        let seen = self.seen.entry(uid(vmi).to_owned()).or_default();
        if !seen.iter().any(|known| known == vmim) {
            seen.push(vmim.to_owned());
        }
    }

    /// The outcome of the running attempt: by the number on the VMI, else by what this source has seen.
    fn outcome(&self, vmi: &Value) -> Outcome {
        let Some(list) = annotation(vmi, knob::MIGRATION) else {
            return Outcome::Ok;
        };
        let vmim = text(vmi, "status.migrationState.migrationUid");
        let counted = || {
            self.seen
                .get(uid(vmi))
                .and_then(|all| all.iter().position(|known| known == vmim))
                .map_or(1, |index| index + 1)
        };
        Outcome::of_attempt(list, attempt_of(vmi, vmim).unwrap_or_else(counted))
    }

    /// Whether an end went away since the copy began.
    fn broken(&mut self, vmi: &Value) -> bool {
        let state = &vmi["status"]["migrationState"];
        let (source, target) = (
            self.fabric.host(text(state, "sourceNode")),
            self.fabric.host(text(state, "targetNode")),
        );
        let now = (source.losses, target.losses);
        let then = *self
            .spans
            .entry(text(state, "migrationUid").to_owned())
            .or_insert(now);
        let both_up = [source, target].iter().all(|host| host.on && host.handler);
        !both_up || then != now
    }

    /// Waits in its queue while the copy is younger than this.
    fn copied_for(&mut self, vmi: &Value, time: Duration) -> bool {
        let key = format!("run/{}", text(vmi, "status.migrationState.migrationUid"));
        self.timers.due(&key, time)
    }

    fn send(&mut self, machine: &mut Machine, write: &mut Write) {
        let state = &write.vmi["status"]["migrationState"];
        let vmim = text(state, "migrationUid").to_owned();
        if machine.holding(uid(&write.vmi)).is_none() || !has(state, "targetNodeAddress") {
            return;
        }
        if !has(state, "startTimestamp") {
            let stopping = machine
                .holding(uid(&write.vmi))
                .is_some_and(|launcher| launcher.guest != Guest::Running);
            if !stopping && self.timers.due(&format!("begin/{vmim}"), self.pace.begin) {
                self.begin(write);
            }
            return;
        }
        if let Some((reason, aborted)) = self.why_failed(&write.vmi) {
            self.fail(write, &reason, aborted);
        }
    }

    fn begin(&mut self, write: &mut Write) {
        let vmi = &mut write.vmi;
        vmi["status"]["migrationState"]["startTimestamp"] = json!(timestamp(self.clock.date()));
        vmi["status"]["migrationState"]["mode"] = json!("PreCopy");
        let vmim = text(vmi, "status.migrationState.migrationUid").to_owned();
        if attempt_of(vmi, &vmim).is_none() {
            let number = self.seen.get(uid(vmi)).map_or(1, Vec::len);
            vmi["metadata"]["annotations"][knob::ATTEMPT] = json!(format!("{vmim}/{number}"));
        }
        write.events.push((
            "Normal",
            "Migrating",
            "VirtualMachineInstance is migrating.".to_owned(),
        ));
    }

    /// Reason, and whether it was an abort.
    fn why_failed(&mut self, vmi: &Value) -> Option<(String, bool)> {
        let aborted = || Some(("Live migration has been aborted".to_owned(), true));
        if vmi["status"]["migrationState"]["abortRequested"] == true {
            return aborted();
        }
        if self.broken(vmi) {
            return Some((
                "Live migration failed: the connection to the target was lost".to_owned(),
                false,
            ));
        }
        let (time, limit) = (transfer_time(vmi), time_limit(vmi));
        match self.outcome(vmi) {
            Outcome::Fail(reason) if self.copied_for(vmi, time.min(limit)) => Some((reason, false)),
            Outcome::Stuck if self.copied_for(vmi, limit) => aborted(),
            _ if time > limit && self.copied_for(vmi, limit) => aborted(),
            Outcome::Ok
            | Outcome::Fail(_)
            | Outcome::Stuck
            | Outcome::Unschedulable(_)
            | Outcome::Pending => None,
        }
    }

    fn fail(&mut self, write: &mut Write, reason: &str, aborted: bool) {
        let state = &mut write.vmi["status"]["migrationState"];
        state["failed"] = json!(true);
        state["completed"] = json!(true);
        state["endTimestamp"] = json!(timestamp(self.clock.date()));
        state["failureReason"] = json!(reason);
        if aborted {
            state["abortStatus"] = json!("Succeeded");
        }
        let text = format!(
            "VirtualMachineInstance migration uid {} failed. reason:{reason}",
            text(state, "migrationUid")
        );
        write.events.push(("Warning", "Migrated", text));
    }

    fn receive(&mut self, machine: &mut Machine, write: &mut Write) {
        let state = &write.vmi["status"]["migrationState"];
        let (vmim, pod) = (
            text(state, "migrationUid").to_owned(),
            text(state, "targetPod").to_owned(),
        );
        let space = namespace(&write.vmi).to_owned();
        let Some(launcher) = machine
            .of_pod(&space, &pod)
            .filter(|one| one.ends.is_none())
        else {
            return;
        };
        if !has(state, "targetNodeAddress") {
            if self
                .timers
                .due(&format!("prepare/{vmim}"), self.pace.prepare)
            {
                launcher.receiving = true;
                Self::prepare(write);
            }
            return;
        }
        if !has(state, "startTimestamp") {
            return;
        }
        if self.broken(&write.vmi) {
            launcher.ends = Some((self.timers.now() + self.pace.give_up, 1));
            return;
        }
        let (time, limit) = (transfer_time(&write.vmi), time_limit(&write.vmi));
        if self.outcome(&write.vmi) == Outcome::Ok
            && time <= limit
            && self.copied_for(&write.vmi, time)
        {
            self.arrive(write);
            write.then = Effect::Runs {
                namespace: space,
                pod,
            };
        } else if !flag(&write.vmi, "status.migrationState.targetNodeDomainDetected")
            && self.copied_for_detection(&vmim)
        {
            write.vmi["status"]["migrationState"]["targetNodeDomainDetected"] = json!(true);
        }
    }

    /// Targets that were prepared and whose migration is over without them, unnoticed by this handler, end by themselves.
    pub(super) fn drop_targets(&self, machine: &mut Machine, coming: &Objects) {
        let at = self.timers.now() + self.pace.give_up;
        for launcher in machine
            .launchers
            .values_mut()
            .filter(|one| one.receiving && one.guest == Guest::Empty && one.ends.is_none())
        {
            let awaited = coming
                .get(&(launcher.namespace.clone(), launcher.vmi.clone()))
                .is_some_and(|vmi| {
                    uid(vmi) == launcher.vmi_uid
                        && text(vmi, "status.migrationState.targetPod") == launcher.pod
                });
            if !awaited {
                launcher.ends = Some((at, 1));
            }
        }
    }

    fn copied_for_detection(&mut self, vmim: &str) -> bool {
        self.timers.due(&format!("detect/{vmim}"), self.pace.detect)
    }

    fn prepare(write: &mut Write) {
        let state = &mut write.vmi["status"]["migrationState"];
        state["targetNodeAddress"] = json!("10.0.0.1");
        state["targetDirectMigrationNodePorts"] = json!({"49152": 0});
        write.events.push((
            "Normal",
            "PreparingTarget",
            "VirtualMachineInstance Migration Target Prepared.".to_owned(),
        ));
        let text = "Migration Target is listening at 10.0.0.1, on ports: 49152".to_owned();
        write.events.push(("Normal", "PreparingTarget", text));
    }

    /// Step 18: everything flips in one update.
    fn arrive(&self, write: &mut Write) {
        let (vmi, now) = (&mut write.vmi, timestamp(self.clock.date()));
        let state = &mut vmi["status"]["migrationState"];
        state["targetNodeDomainDetected"] = json!(true);
        state["targetNodeDomainReadyTimestamp"] = json!(now);
        state["endTimestamp"] = json!(now);
        vmi["status"]["nodeName"] = json!(self.node);
        vmi["status"]["launcherContainerImageVersion"] = json!("");
        vmi["status"]["migrationTransport"] = json!("Unix");
        remove(&mut vmi["status"], "evacuationNodeName");
        vmi["metadata"]["labels"][names::NODE_NAME] = json!(self.node);
        write.events.push((
            "Normal",
            "Migrated",
            format!("The VirtualMachineInstance migrated to node {}.", self.node),
        ));
    }

    /// After the end: completed, then the label; a target that got nothing gives up.
    fn clean_up(&mut self, machine: &mut Machine, write: &mut Write) {
        let state = &write.vmi["status"]["migrationState"];
        let (vmim, failed) = (
            text(state, "migrationUid").to_owned(),
            flag(state, "failed"),
        );
        if failed {
            let at = self.timers.now() + self.pace.give_up;
            if let Some(launcher) = machine
                .of_pod(namespace(&write.vmi), text(state, "targetPod"))
                .filter(|one| one.guest == Guest::Empty && one.ends.is_none())
            {
                launcher.ends = Some((at, 1));
            }
        } else if !flag(state, "completed") {
            if self
                .timers
                .due(&format!("complete/{vmim}"), self.pace.complete)
            {
                write.vmi["status"]["migrationState"]["completed"] = json!(true);
            }
            return;
        }
        self.clean_label(write);
    }

    fn clean_label(&mut self, write: &mut Write) {
        let vmim = text(&write.vmi, "status.migrationState.migrationUid").to_owned();
        let labelled = !label(&write.vmi, names::MIGRATION_TARGET).is_empty();
        if labelled && self.timers.due(&format!("clean/{vmim}"), self.pace.clean) {
            remove(
                &mut write.vmi["metadata"]["labels"],
                names::MIGRATION_TARGET,
            );
        }
    }
}

/// KubeVirt's `completionTimeoutPerGiB` for this guest, as the hand-off told it.
fn time_limit(vmi: &Value) -> Duration {
    let per_gib = at(
        vmi,
        "status.migrationState.migrationConfiguration.completionTimeoutPerGiB",
    )
    .and_then(Value::as_u64)
    .unwrap_or(150);
    Duration::from_secs(per_gib) * gibibytes(vmi)
}
