//! The cases: one story of a host each. Cases with the same number are about the same thing; `--only NUMBER` runs them.
//!
//! | file | about |
//! |---|---|
//! | `delay.rs` | the lock at a shutdown through logind, in every way that it can be asked for |
//! | `store.rs` | the lock's life: restart, crash, stop |
//! | `ways.rs` | shutdowns in every way that they can be asked for |
//! | `vanish.rs`, `schedule.rs` | shutdowns that are cancelled or forgotten, `shutdown +N` |
//! | `stop_job.rs` | what happens when logind is passed by |
//! | `earlier.rs` | the same with units of before, and where PID 1 tells no jobs |
//! | `asked.rs` | drains that people ask for, and what logind is asked afterwards |
//! | `boots.rs` | down and up again |
//! | `hooks.rs` | others who end VMs at a shutdown |
//! | `limits.rs`, `others.rs`, `units.rs`, `rights.rs` | a host that stays up: limits, spoofed signals, locks and buses of others, privileges |
//! | `callers.rs` | who may ask: other users by polkit, other programs by their signals |
//! | `packages.rs` | installing, upgrading, removing |
//! | `whole/` | hosts with a real kubelet in a real control plane |

mod asked;
mod boots;
mod callers;
mod delay;
mod earlier;
mod hooks;
mod limits;
mod others;
mod packages;
mod rights;
mod schedule;
mod stop_job;
mod store;
mod units;
mod vanish;
mod ways;
mod whole;

use std::time::Duration;

use crate::suite::Case;

/// The case that needs an RPM.
pub(crate) const RPM: &str = "the_rpm";
/// The case that needs what `make install` has laid out.
pub(crate) const BY_HAND: &str = "make_install_and_its_two_commands";

/// All cases, in the order in which they are run.
pub(crate) fn all() -> Vec<Case> {
    [
        delay::CASES,
        ways::CASES,
        store::CASES,
        vanish::CASES,
        schedule::CASES,
        stop_job::CASES,
        earlier::CASES,
        asked::CASES,
        boots::CASES,
        limits::CASES,
        others::CASES,
        hooks::CASES,
        units::CASES,
        rights::CASES,
        callers::CASES,
        packages::CASES,
    ]
    .concat()
}

/// The cases of whole hosts, with a kubelet.
pub(crate) fn whole() -> Vec<Case> {
    whole::all()
}

/// Whether a case takes so long that it has to be asked for.
pub(crate) fn is_long(case: &Case) -> bool {
    case.number == "30"
}

/// `4.31 s`.
fn seconds(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

/// A moment of the case's clock as Unix time, as the journal tells it.
fn wall(scene: &crate::scene::Scene, moment: Duration) -> f64 {
    let clock = &scene.patience.clock;
    let ago = clock.elapsed().saturating_sub(moment);
    clock.now().as_duration().as_secs_f64() - ago.as_secs_f64()
}

/// From one moment to a later one.
fn between(from: Duration, to: Duration) -> Duration {
    to.saturating_sub(from)
}

/// The agent looks at logind more often than each minute.
fn often(plan: crate::plan::Plan) -> crate::plan::Plan {
    plan.config("[timing.host]\nlimit_poll = \"2s\"\n")
}
