//! What would this host do by itself if the API server went away in the drain?

use super::{PlanVm, Scene};
use crate::drain::local::patience;
use crate::drain::machine::span;
use crate::drain::policy::OnDeadline;
use std::time::Duration;

/// The sentence; empty when there is nobody to do anything for. `limit` is what the drain has, in seconds.
pub(super) fn says(vms: &[PlanVm], limit: Option<f64>, scene: &Scene) -> String {
    if vms.is_empty() {
        return String::new();
    }
    let most = scene.policy.unreachable;
    let limit = limit.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
    let silence = span(limit.map_or(most, |limit| patience(most, limit)));
    let head = format!("when the API server is not reached for {silence}");
    let looks =
        "this host goes on when it sees no VM of its own any more, at the latest at its deadline";
    if scene.consent().is_err() {
        return format!(
            "{head}, no guest is shut down (drain.allow_guest_shutdown is \"never\"); {looks}"
        );
    }
    // For a host that goes down `hold` and `abort` are `shutdown-vms`.
    if scene.policy.on_deadline == OnDeadline::Proceed {
        return format!("{head}, no guest is shut down (on_deadline is \"proceed\"); {looks}");
    }
    let last = match vms.iter().filter(|vm| vm.policy == "leave").count() {
        0 => String::new(),
        left => format!(", {left} of them last, because policy leaves them alone"),
    };
    format!(
        "{head}, the guests that are left of {} VM(s) are told on this host itself to shut down{last}; {looks}",
        vms.len()
    )
}
