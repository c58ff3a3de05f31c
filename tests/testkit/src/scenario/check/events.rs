//! Can every event of the timeline happen?

use std::time::Duration;

use super::super::event::agent::AgentDo;
use super::super::event::api::{Answer, ApiDo, Trouble};
use super::super::event::cluster::{NodeDo, PdbDo, PodDo, VmDo};
use super::super::event::host::HostDo;
use super::super::event::{Do, Event};
use super::super::problem::{Problem, Source};
use super::names::Names;
use super::one_rule;
use crate::api::kinds::by_plural;

const VERBS: [&str; 7] = [
    "get", "list", "watch", "create", "update", "patch", "delete",
];

/// Walks the timeline in its order and returns it.
pub(super) fn check(
    source: Source<'_>,
    names: &mut Names<'_>,
    timeline: Vec<Event>,
) -> Result<Vec<Event>, Problem> {
    let mut walk = Walk {
        source,
        goes_down: timeline.iter().any(brings_down),
        went_down: false,
        scheduled: false,
    };
    for event in &timeline {
        walk.event(names, event)?;
    }
    Ok(timeline)
}

struct Walk<'a> {
    source: Source<'a>,
    /// Somewhere in the story the host is asked to go down.
    goes_down: bool,
    /// It has been asked already.
    went_down: bool,
    scheduled: bool,
}

/// The event asks the host to go down, at once or later.
fn brings_down(event: &Event) -> bool {
    match &event.what {
        Do::Host(HostDo::Down(..) | HostDo::Schedule(_)) => true,
        Do::Agent(AgentDo::Trigger(trigger)) => trigger.then.is_some(),
        Do::Host(_)
        | Do::Agent(_)
        | Do::Api(_)
        | Do::Virt(..)
        | Do::Vm(_)
        | Do::Node(_)
        | Do::Pod(_)
        | Do::Pdb(_)
        | Do::Apply(_)
        | Do::Lease(_) => false,
    }
}

impl Walk<'_> {
    fn fail<T>(&self, event: &Event, text: impl AsRef<str>) -> Result<T, Problem> {
        let text = format!("{}: {}", event.name, text.as_ref());
        Err(self.source.problem_at(event.line, text))
    }

    fn event(&mut self, names: &mut Names<'_>, event: &Event) -> Result<(), Problem> {
        self.went_down |= brings_down(event);
        match &event.what {
            Do::Host(what) => self.host(event, what),
            Do::Agent(what) => self.agent(names, event, what),
            Do::Api(what) => self.api(event, what),
            Do::Virt(_, down) => {
                self.later(event, down.until.map(|until| until.0))?;
                names.node(down.node.as_deref(), event.line)
            }
            Do::Vm(what) => vm(names, event, what),
            Do::Node(what) => node(names, event, what),
            Do::Pod(what) => pod(names, event, what),
            Do::Pdb(what) => self.pdb(names, event, what),
            Do::Apply(_) | Do::Lease(_) => Ok(()),
        }
    }

    /// A moment that must lie after the event itself.
    fn later(&self, event: &Event, until: Option<Duration>) -> Result<(), Problem> {
        match until {
            Some(until) if until <= event.time.0 => self.fail(
                event,
                "`until` is a moment of the story and lies before the event",
            ),
            _ => Ok(()),
        }
    }

    fn host(&mut self, event: &Event, what: &HostDo) -> Result<(), Problem> {
        match what {
            HostDo::Schedule(_) => self.scheduled = true,
            HostDo::CancelSchedule if !self.scheduled && !self.went_down => {
                return self.fail(event, "nothing was scheduled before");
            }
            HostDo::ShutdownFails(_) if !self.goes_down => {
                return self.fail(event, "no shutdown is asked for in this story");
            }
            HostDo::Boot(_) if !self.went_down => {
                return self.fail(event, "the host has not been asked to go down before");
            }
            HostDo::Set(set)
                if set.inhibit_delay_max.is_none() && set.kubelet_graceful_shutdown.is_none() =>
            {
                return self.fail(event, "nothing is set");
            }
            HostDo::CancelSchedule
            | HostDo::ShutdownFails(_)
            | HostDo::Boot(_)
            | HostDo::Set(_)
            | HostDo::Down(..)
            | HostDo::RestartLogind(_)
            | HostDo::RestartDbus(_)
            | HostDo::Signal(_)
            | HostDo::Inhibitor(_)
            | HostDo::ClockJump(_)
            | HostDo::Disk(..) => {}
        }
        Ok(())
    }

    fn agent(&self, names: &mut Names<'_>, event: &Event, what: &AgentDo) -> Result<(), Problem> {
        let save = match what {
            AgentDo::Trigger(it) => &it.save,
            AgentDo::Cancel(it) => &it.save,
            AgentDo::Extend(it) => &it.save,
            AgentDo::Release(it) => &it.save,
            AgentDo::Restore(it)
            | AgentDo::Plan(it)
            | AgentDo::Doctor(it)
            | AgentDo::Reload(it) => &it.save,
            AgentDo::Kill(_)
            | AgentDo::Stop(_)
            | AgentDo::Restart(_)
            | AgentDo::Start(_)
            | AgentDo::File(_) => &None,
        };
        if let Some(save) = save
            && !names.save(save)
        {
            return self.fail(event, format!("`{save}` is already saved by another event"));
        }
        Ok(())
    }

    fn api(&self, event: &Event, what: &ApiDo) -> Result<(), Problem> {
        match what {
            ApiDo::Answer(answer) => self.answer(event, answer),
            ApiDo::Delay(trouble) if trouble.by.is_none() => {
                self.fail(event, "by how much? `by` is missing")
            }
            ApiDo::Drop(trouble) | ApiDo::Hang(trouble) if trouble.by.is_some() => {
                self.fail(event, "`by` belongs to api.delay")
            }
            ApiDo::Drop(it) | ApiDo::Hang(it) | ApiDo::Delay(it) => self.trouble(event, it),
            ApiDo::Down(down) => self.later(event, down.until.map(|until| until.0)),
            ApiDo::ExpireWatches | ApiDo::CloseWatches | ApiDo::RotateCredentials(_) => Ok(()),
        }
    }

    fn answer(&self, event: &Event, answer: &Answer) -> Result<(), Problem> {
        if !(200..=599).contains(&answer.status) {
            return self.fail(event, format!("{} is not an HTTP status", answer.status));
        }
        self.limits(event, answer.times, answer.verb.as_deref())?;
        self.resource(event, answer.resource.as_deref())?;
        self.later(event, answer.until.map(|until| until.0))
    }

    fn trouble(&self, event: &Event, trouble: &Trouble) -> Result<(), Problem> {
        self.limits(event, trouble.times, trouble.verb.as_deref())?;
        self.resource(event, trouble.resource.as_deref())?;
        self.later(event, trouble.until.map(|until| until.0))
    }

    fn resource(&self, event: &Event, resource: Option<&str>) -> Result<(), Problem> {
        match resource {
            Some(resource) if by_plural(resource).is_none() => {
                self.fail(event, format!("the API server has no `{resource}`"))
            }
            _ => Ok(()),
        }
    }

    fn limits(&self, event: &Event, times: Option<u32>, verb: Option<&str>) -> Result<(), Problem> {
        if times == Some(0) {
            return self.fail(event, "`times = 0` would never happen");
        }
        match verb {
            Some(verb) if !VERBS.contains(&verb) => self.fail(
                event,
                format!("`{verb}` is not a verb: {}", VERBS.join(", ")),
            ),
            _ => Ok(()),
        }
    }

    fn pdb(&self, names: &mut Names<'_>, event: &Event, what: &PdbDo) -> Result<(), Problem> {
        match what {
            PdbDo::Create(new) => {
                one_rule(self.source, new, event.line)?;
                names.add_pdb(new, event.line)
            }
            PdbDo::Set(set) => names.pdb(set.namespace.as_deref(), &set.pdb, event.line),
            PdbDo::Delete(old) => names.pdb(old.namespace.as_deref(), &old.pdb, event.line),
        }
    }
}

fn node(names: &Names<'_>, event: &Event, what: &NodeDo) -> Result<(), Problem> {
    let node = match what {
        NodeDo::Cordon(it) | NodeDo::Uncordon(it) | NodeDo::Delete(it) => &it.node,
        NodeDo::Set(set) => &set.node,
        NodeDo::Taint(taint) => &taint.node,
    };
    names.node(Some(node), event.line)
}

fn pod(names: &mut Names<'_>, event: &Event, what: &PodDo) -> Result<(), Problem> {
    match what {
        PodDo::Create(new) => {
            names.node(new.node.as_deref(), event.line)?;
            names.add_pod(new, event.line)
        }
        PodDo::Set(set) => names.pod(set.namespace.as_deref(), &set.pod, event.line),
        PodDo::Delete(old) => names.pod(old.namespace.as_deref(), &old.pod, event.line),
    }
}

fn vm(names: &mut Names<'_>, event: &Event, what: &VmDo) -> Result<(), Problem> {
    let (ns, name) = match what {
        VmDo::Create(new) => {
            names.node(new.node.as_deref(), event.line)?;
            for name in new.names() {
                names.add_vm(&new.namespace, &name, event.line)?;
            }
            return Ok(());
        }
        VmDo::Set(set) => (&set.namespace, &set.vm),
        VmDo::Migrate(migrate) => {
            names.node(migrate.to.as_deref(), event.line)?;
            (&migrate.namespace, &migrate.vm)
        }
        VmDo::Delete(vm) | VmDo::Start(vm) | VmDo::Stop(vm) => (&vm.namespace, &vm.vm),
    };
    names.vm(ns.as_deref(), name, event.line)
}
