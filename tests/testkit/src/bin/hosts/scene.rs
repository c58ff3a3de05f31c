//! A host with the agent installed, and its cluster: what a case begins with.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::host::{Down, Host};
use crate::patience::{Answer, Patience, Running};
use crate::plan::{Plan, stand_in};
use crate::suite::{Context, Figures};

/// From PID 1 to the lock.
const READY: Duration = Duration::from_secs(30);
/// Whoever reacts to something local has done it within this time, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(8);

/// A host and its cluster.
pub(crate) struct Scene {
    /// The host.
    pub(crate) host: Host,
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// The case's clock.
    pub(crate) patience: Patience,
    figures: Arc<Mutex<Vec<Figures>>>,
}

impl Scene {
    fn begin(&mut self, held: bool) -> anyhow::Result<()> {
        self.boot_first()?;
        if held {
            self.wait_held()?;
        }
        Ok(())
    }

    /// Lays everything out; the host is off.
    fn lay_out(context: &Context, plan: &Plan, host: Host) -> anyhow::Result<Self> {
        let api = context.folder("api")?;
        let cluster = Cluster::start(
            &plan.story,
            &context.patience.clock,
            &host.machine_id()?,
            &api,
        )?;
        for (path, content, mode) in cluster.credentials()? {
            host.write_mode(&path, &content, mode)?;
        }
        host.write("/etc/vmdrain-agent/config.d/50-case.toml", &plan.config)?;
        if !plan.limit.is_empty() {
            // After the package's own file.
            host.write(
                "/etc/systemd/logind.conf.d/zzz-case.conf",
                &format!("[Login]\nInhibitDelayMaxSec={}\n", plan.limit),
            )?;
        }
        for service in ["kubelet", "containerd"] {
            let unit = format!("/etc/systemd/system/{service}.service");
            host.write(&unit, &stand_in(&format!("stands for {service}")))?;
            let wants = format!("/etc/systemd/system/multi-user.target.wants/{service}.service");
            host.link(&wants, &unit)?;
        }
        for (path, content) in &plan.files {
            host.write(path, content)?;
        }
        for (path, target) in &plan.links {
            host.link(path, target)?;
        }
        if let Some(command) = &plan.before {
            host.offline(&["sh", "-c", command])?;
        }
        Ok(Self {
            host,
            cluster,
            patience: context.patience.clone(),
            figures: context.figures.clone(),
        })
    }

    /// The boot with which the story begins.
    pub(crate) fn boot_first(&mut self) -> anyhow::Result<()> {
        let id = self.host.boot()?;
        self.cluster.first_boot(&id)
    }

    /// A further boot; the cluster sees a kubelet and a virt-handler come back.
    pub(crate) fn boot_again(&mut self) -> anyhow::Result<()> {
        let id = self.host.boot()?;
        self.cluster.host_on(&id)
    }

    /// Keeps figures for the statistics at the end.
    pub(crate) fn figure(&self, figures: Figures) {
        self.figures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(figures);
    }

    /// Now, on the case's clock.
    pub(crate) fn now(&self) -> Duration {
        self.patience.now()
    }

    /// Waits for anything.
    pub(crate) fn wait(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<Duration> {
        let clock = self.patience.clone();
        self.patience.wait(what, limit, || {
            let found = look()?;
            // Nothing more will come from a host that is down.
            ensure!(
                found || !self.host.is_gone(),
                "the host went down while this was waited for: {what}"
            );
            Ok(found.then(|| clock.now()))
        })
    }

    /// Waits until logind lists our lock and the unit is active.
    pub(crate) fn wait_held(&self) -> anyhow::Result<Duration> {
        let held = self.wait("the agent holds the host", READY, || {
            Ok(self.host.seen().is_locked())
        })?;
        self.wait_unit("vmdrain-agent.service", "active")?;
        Ok(held)
    }

    /// Waits until a unit is in this state.
    pub(crate) fn wait_unit(&self, unit: &str, state: &str) -> anyhow::Result<Duration> {
        let what = format!("{unit} is {state}");
        self.wait(&what, READY, || {
            Ok(self.host.peek(&["systemctl", "is-active", unit]) == state)
        })
    }

    /// Waits until the node is cordoned with our marker.
    pub(crate) fn wait_cordoned(&self) -> anyhow::Result<Duration> {
        self.wait("the node is cordoned", SOON, || {
            Ok(self.cluster.sight().is_cordoned())
        })?;
        let sight = self.cluster.sight();
        let last = sight
            .cordons
            .last()
            .context("the node was never cordoned")?;
        ensure!(last.ours, "the node is cordoned without our marker");
        Ok(last.at)
    }

    /// Waits until the node is free again.
    pub(crate) fn wait_uncordoned(&self, limit: Duration) -> anyhow::Result<Duration> {
        self.wait("the node is uncordoned", limit, || {
            Ok(!self.cluster.sight().is_cordoned())
        })?;
        let sight = self.cluster.sight();
        Ok(sight
            .cordons
            .last()
            .context("the node was never cordoned")?
            .at)
    }

    /// Waits until the agent has asked for an eviction.
    pub(crate) fn wait_evicting(&self) -> anyhow::Result<Duration> {
        self.wait("the first eviction", SOON, || {
            Ok(!self.cluster.evictions().is_empty())
        })
    }

    /// Somebody types something on the host.
    pub(crate) fn types(&self, words: &[&str]) -> anyhow::Result<Running> {
        self.host.begin(words)
    }

    /// Somebody types something on the host, and it works.
    pub(crate) fn types_well(&self, words: &[&str]) -> anyhow::Result<Answer> {
        self.host.run(words)?.good()
    }

    /// `status -o json`.
    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        let text = self.host.ask(&["vmdrain-agent", "status", "-o", "json"])?;
        serde_json::from_str(&text).with_context(|| format!("the status is no JSON: {text}"))
    }

    /// The agent's main process.
    pub(crate) fn agent_pid(&self) -> anyhow::Result<String> {
        self.property("vmdrain-agent.service", "MainPID")
    }

    /// A property of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> anyhow::Result<String> {
        self.host
            .ask(&["systemctl", "show", "--value", "--property", name, unit])
    }

    /// A property of logind's.
    pub(crate) fn login1(&self, property: &str) -> anyhow::Result<String> {
        self.host.ask(&[
            "busctl",
            "get-property",
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            property,
        ])
    }

    /// Waits until the host is down, and tells the cluster.
    pub(crate) fn wait_down(&mut self, limit: Duration) -> anyhow::Result<Down> {
        let down = self.host.wait_down(limit)?;
        self.cluster.host_off()?;
        Ok(down)
    }

    /// The rules that hold for every host that went down in order: all VMs had left, then all units were stopped, within `after`
    /// of the last VM.
    pub(crate) fn went_empty(&self, down: &Down, after: Duration) -> anyhow::Result<String> {
        let sight = self.cluster.sight();
        let Some(empty) = sight
            .empty_at
            .filter(|_| sight.guests == 0 && !sight.migrating)
        else {
            bail!("the host went down with {} VMs on it", sight.guests);
        };
        ensure!(
            sight.killed.is_empty(),
            "guests lost their memory: {:?}",
            sight.killed
        );
        ensure!(
            down.units_done >= empty,
            "all units were stopped at {:.3} s, the last VM left at {:.3} s",
            down.units_done.as_secs_f64(),
            empty.as_secs_f64()
        );
        let tail = down.units_done.saturating_sub(empty);
        ensure!(
            tail <= after,
            "the host was not on its way {:.2} s after the last VM had left (at most {:.2} s)",
            tail.as_secs_f64(),
            after.as_secs_f64()
        );
        Ok(format!(
            "last VM gone → units stopped {:.2} s",
            tail.as_secs_f64()
        ))
    }

    /// Lines of the agent's journal that contain a text.
    pub(crate) fn said(&self, text: &str) -> anyhow::Result<Vec<String>> {
        let all = self.host.journal(&["--unit=vmdrain-agent.service"])?;
        Ok(all
            .lines()
            .filter(|line| line.contains(text))
            .map(str::to_owned)
            .collect())
    }

    /// Fails unless the agent's journal contains a text.
    pub(crate) fn must_have_said(&self, text: &str) -> anyhow::Result<()> {
        ensure!(
            !self.said(text)?.is_empty(),
            "the agent's journal does not say {text:?}"
        );
        Ok(())
    }

    /// Fails when an eviction was asked for more than once for a pod (without an answer that asks for it).
    pub(crate) fn nothing_twice(&self) -> anyhow::Result<()> {
        let mut pods: Vec<_> = self
            .cluster
            .evictions()
            .into_iter()
            .map(|it| it.name)
            .collect();
        let all = pods.len();
        pods.sort();
        pods.dedup();
        ensure!(pods.len() == all, "{all} evictions for {} pods", pods.len());
        Ok(())
    }
}

/// Plays a case on a host with the agent; a failure shows what the host's journal says of it.
pub(crate) fn play(
    context: &Context,
    plan: &Plan,
    story: impl FnOnce(&mut Scene) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    on(context, plan, context.host()?, story)
}

/// The same on a host on which the package is not installed yet.
pub(crate) fn play_bare(
    context: &Context,
    plan: &Plan,
    story: impl FnOnce(&mut Scene) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    unheld(context, plan, context.bare_host()?, story)
}

/// The same on a host on which the files of `make install` lie, and nothing was done with them.
pub(crate) fn play_by_hand(
    context: &Context,
    plan: &Plan,
    story: impl FnOnce(&mut Scene) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    unheld(context, plan, context.host_by_hand()?, story)
}

fn unheld(
    context: &Context,
    plan: &Plan,
    host: Host,
    story: impl FnOnce(&mut Scene) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let plan = Plan {
        held: false,
        ..plan.clone()
    };
    on(context, &plan, host, |scene| {
        crate::install::wait_running(context, &scene.host)?;
        story(scene)
    })
}

fn on(
    context: &Context,
    plan: &Plan,
    host: Host,
    story: impl FnOnce(&mut Scene) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut scene = Scene::lay_out(context, plan, host)?;
    let played = scene.begin(plan.held).and_then(|()| story(&mut scene));
    context.conclude(played, &scene.host)
}
