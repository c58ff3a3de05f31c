//! Whole hosts: what a real kubelet and a real container runtime add to a shutdown, in a real cluster.
//!
//! | file | about |
//! |---|---|
//! | `boots.rs` | `poweroff` and `reboot` through the real eviction webhook, and back again |
//! | `stop_phase.rs` | the stop job: who lives how long while the system goes down |
//! | `graceful.rs` | the kubelet's own reaction to a shutdown |
//! | `alone.rs` | the API server is out of reach: guests are told on the host itself |
//! | `certificates.rs` | the kubelet's certificate changes in the middle of a drain |

mod alone;
mod boots;
mod certificates;
mod graceful;
mod stop_phase;

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{between, seconds};
use crate::host::Down;
use crate::suite::Case;
use crate::whole::plane::PEER;
use crate::whole::stage::Stage;

/// All of them, in the order in which they are run.
pub(super) fn all() -> Vec<Case> {
    // The one that takes longest runs beside the others.
    [
        certificates::CASES,
        boots::CASES,
        stop_phase::CASES,
        graceful::CASES,
        alone::CASES,
    ]
    .concat()
}

/// From the command to the cordon in the API, on a machine that runs a whole control plane beside two hosts.
const PREPARE: Duration = Duration::from_secs(3);
/// From the moment in which the API server tells the end of the last launcher to the lock's end.
const RELEASE: Duration = Duration::from_secs(2);
/// The sampler and the watch of the API look at the same moment so far apart.
const SHARPNESS: Duration = Duration::from_millis(300);

/// The rules of every shutdown that waited for its VMs: cordoned in time, all VMs run on the peer, nobody was killed, and the node
/// stays cordoned. Answers what was measured and when the API server told the end of the last launcher.
fn moved_away(
    stage: &Stage,
    typed: Duration,
    down: &Down,
    vms: usize,
) -> anyhow::Result<(String, Duration)> {
    let cordoned = stage.chronicle.cordoned_at();
    let cordoned = cordoned.context("the agent never cordoned the node")?;
    let prepare = between(typed, cordoned);
    ensure!(
        prepare <= PREPARE + down.seen.blur,
        "cordoned only {} after the command",
        seconds(prepare)
    );
    let killed = stage.killed();
    ensure!(killed.is_empty(), "guests lost their memory: {killed:?}");
    let moved = stage.vms_on(PEER)?;
    ensure!(
        moved.len() == vms,
        "of {vms} VMs these run elsewhere: {moved:?}"
    );
    let empty = stage.chronicle.empty_at();
    let empty = empty.context("the API server never told that the host is empty")?;
    ensure!(
        down.units_done + SHARPNESS >= empty,
        "all units were stopped {} before the last VM had left",
        seconds(between(down.units_done, empty))
    );
    let now = stage.chronicle.now().context("the node is gone")?;
    ensure!(
        now.cordoned && now.ours && stage.chronicle.uncordons() == 0,
        "the node did not stay cordoned: {now:?}"
    );
    let measured = format!(
        "cordon {}, VMs gone {}, down {}",
        seconds(prepare),
        seconds(between(typed, empty)),
        seconds(between(typed, down.at))
    );
    Ok((measured, empty))
}

/// The lock went when the last VM had gone, not before, and soon.
fn let_go_in_time(down: &Down, empty: Duration) -> anyhow::Result<String> {
    let unlocked = down.seen.unlocked_at().unwrap_or(down.units_done);
    ensure!(
        unlocked + SHARPNESS >= empty,
        "the lock went {} before the last VM had left",
        seconds(between(unlocked, empty))
    );
    let release = between(empty, unlocked);
    ensure!(
        release <= RELEASE + down.seen.blur,
        "the lock went {} after the last VM",
        seconds(release)
    );
    Ok(format!("lock {} later", seconds(release)))
}
