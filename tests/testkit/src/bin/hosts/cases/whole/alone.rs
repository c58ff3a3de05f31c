//! The API server is out of reach while the host goes down: its guests are told on the host itself.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::{between, seconds};
use crate::suite::{Case, Context, OLDER};
use crate::whole::stage::{Plan, play};

pub(super) const CASES: &[Case] = &[Case {
    number: "w9",
    name: "a_host_alone_ends_its_guests_cleanly",
    on: OLDER,
    limit: 240,
    run: alone,
}];

/// From the end of the last guest's container to the lock: the host looks once a second.
const RELEASE: Duration = Duration::from_secs(3);

/// The cable is cut, then the host is powered off: each virt-launcher gets SIGTERM in time, its guest shuts down, and the lock
/// goes when the last `compute` container has ended, long before logind's limit.
fn alone(context: &Context) -> anyhow::Result<String> {
    let mut plan = Plan::moving(120.0);
    // virt-handler itself is played outside; the host only has to see that one runs.
    plan.pods.push(("virt-handler", 1));
    plan.files.push((
        "/etc/vmdrain-agent/config.d/60-case.toml",
        "[drain]\napi_unreachable_timeout = \"10s\"\n",
    ));
    play(context, &plan, |stage| {
        let before = stage.ended_containers().len();
        stage.cut_off()?;
        let typed = stage.types_well(&["systemctl", "poweroff"])?.typed;
        let down = stage.wait_down(Duration::from_secs(120))?;
        let killed = stage.killed();
        ensure!(killed.is_empty(), "guests lost their memory: {killed:?}");
        let unlocked = down.seen.unlocked_at();
        let unlocked = unlocked.context("the lock was never seen to go")?;
        let ended = stage.ended_containers();
        let ended = ended.get(before..).unwrap_or_default();
        let by_then: Vec<_> = ended.iter().filter(|at| **at <= unlocked).collect();
        ensure!(
            by_then.len() >= plan.vms.len(),
            "the lock went when {} of {} guests had ended",
            by_then.len(),
            plan.vms.len()
        );
        let last = **by_then.last().context("no container ended")?;
        let release = between(last, unlocked);
        ensure!(
            release <= RELEASE + down.seen.blur,
            "the lock went only {} after the last guest",
            seconds(release)
        );
        let unit = "vmdrain-agent.service";
        for (text, least) in [
            ("told on this host itself", plan.vms.len()),
            ("by this host's own view", 1),
        ] {
            let lines = stage.journal(unit, text)?.len();
            ensure!(lines >= least, "the journal says {text:?} {lines} times");
        }
        Ok(format!(
            "last guest ended {}, lock {} later, down {}",
            seconds(between(typed, last)),
            seconds(release),
            seconds(between(typed, down.at))
        ))
    })
}
