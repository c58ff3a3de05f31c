//! What others do with VMs: the events `vm.*`.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::cluster::{outcome, vm_spec};
use super::super::stage::NotPlayed;
use super::{Others, Played, condition};
use crate::kubevirt::names::knob;
use crate::scenario::event::cluster::{VmDo, VmSet};
use crate::scenario::words::Migratable;
use crate::scenario::world::Vm;

impl Others<'_> {
    pub(super) async fn vm(&self, what: &VmDo) -> Played {
        let world = &self.cluster.world;
        let space = |ns: &Option<String>, vm: &str| {
            self.namespace("virtualmachineinstances", ns.as_ref(), vm)
        };
        let done = match what {
            VmDo::Create(new) => {
                let made = world.vm_create(&vm_spec(new));
                self.not_yet_running(new);
                made
            }
            VmDo::Delete(vm) => {
                world.vm_delete(&space(&vm.namespace, &vm.vm), &vm.vm);
                Ok(())
            }
            VmDo::Set(set) => return self.vm_set(set),
            VmDo::Migrate(it) => world
                .migrate(&space(&it.namespace, &it.vm), &it.vm, it.to.as_deref())
                .map(drop),
            VmDo::Start(vm) => {
                let ns = self.namespace("virtualmachines", vm.namespace.as_ref(), &vm.vm);
                world.vm_start(&ns, &vm.vm).await
            }
            VmDo::Stop(vm) => world.vm_stop(&space(&vm.namespace, &vm.vm), &vm.vm).await,
        };
        done.map_err(|failure| NotPlayed::Cannot(failure.message))
    }

    /// A VM that appears on a node in mid-story is left one step before Running: only then does virt-handler wait for its pod.
    fn not_yet_running(&self, new: &Vm) {
        if new.node.is_some() {
            for name in new.names() {
                let store = self.cluster.store();
                store.update("virtualmachineinstances", &new.namespace, &name, |vmi| {
                    vmi["status"]["phase"] = json!("Scheduled");
                });
            }
        }
    }

    fn vm_set(&self, set: &VmSet) -> Played {
        let space = self.namespace("virtualmachineinstances", set.namespace.as_ref(), &set.vm);
        if let Some(marked) = set.marked {
            self.cluster.world.vm_mark(&space, &set.vm, marked);
        }
        let stamp = self.cluster.store().stamp();
        self.change("virtualmachineinstances", &space, &set.vm, |vmi| {
            turn_knobs(set, &mut vmi["metadata"]["annotations"]);
            for (key, value) in set.labels.iter().flatten() {
                vmi["metadata"]["labels"][key] = json!(value);
            }
            if let Some(memory) = set.memory {
                vmi["spec"]["domain"]["memory"]["guest"] = json!(memory.0.to_string());
                let rate = set.rate.map_or(1 << 30, |rate| rate.0);
                let time = Duration::from_millis(memory.0.saturating_mul(1000) / rate);
                vmi["metadata"]["annotations"][knob::MIGRATION_SECONDS] = seconds(time);
            }
            if let Some(strategy) = set.eviction_strategy {
                match strategy.name() {
                    Some(name) => vmi["spec"]["evictionStrategy"] = json!(name),
                    None => drop(
                        vmi["spec"]
                            .as_object_mut()
                            .map(|it| it.remove("evictionStrategy")),
                    ),
                }
            }
            let migratable = set.migratable.as_ref().map(|can| match can {
                Migratable::Yes => ("True", ""),
                Migratable::No(why) => ("False", why.as_str()),
            });
            if let Some((status, why)) = migratable {
                condition(vmi, "LiveMigratable", status, why, why, &stamp);
            }
            if let Some(it) = &set.condition {
                condition(vmi, &it.kind, &it.status, &it.reason, &it.message, &stamp);
            }
        })
    }
}

/// What the played virt-handler is to do with a VM from now on, as annotations of its VMI.
pub(super) fn turn_knobs(set: &VmSet, annotations: &mut Value) {
    let never = |span: Option<Duration>| span.map_or(json!("never"), seconds);
    if let Some(time) = set.migration_time {
        annotations[knob::MIGRATION_SECONDS] = seconds(time.0);
    }
    if let Some(list) = &set.migration {
        let list: Vec<String> = list.iter().map(outcome).collect();
        annotations[knob::MIGRATION] = json!(list.join("|"));
    }
    if let Some(time) = set.guest_shutdown {
        annotations[knob::GUEST_SHUTDOWN] = never(time.after());
    }
    if let Some(time) = set.source_pod_lingers {
        annotations[knob::SOURCE_LINGERS] = never(time.after());
    }
}

fn seconds(span: Duration) -> Value {
    json!(span.as_secs_f64().to_string())
}
