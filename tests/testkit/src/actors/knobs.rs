//! What do the annotations tell the played parts to do?

use std::time::Duration;

use serde_json::Value;

use crate::kubevirt::fields::{annotation, at, label, quantity, seconds};
use crate::kubevirt::names::{self, knob};

/// How one attempt to migrate a VM ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrives.
    Ok,
    /// It fails with this reason after the copy.
    Fail(String),
    /// It copies for ever, until KubeVirt's time limit aborts it.
    Stuck,
    /// No node takes the target pod (the model's scheduler says this message).
    Unschedulable(String),
    /// The target pod is bound and never starts.
    Pending,
}

impl Outcome {
    /// Reads `ok`, `fail:<reason>`, `stuck`, `unschedulable:<message>`, `pending`.
    pub fn parse(text: &str) -> Option<Self> {
        match text
            .split_once(':')
            .map_or((text, ""), |(kind, rest)| (kind, rest))
        {
            ("ok", "") => Some(Self::Ok),
            ("fail", reason) => Some(Self::Fail(or(
                reason,
                "source node reported migration failed",
            ))),
            ("stuck", "") => Some(Self::Stuck),
            ("unschedulable", message) => Some(Self::Unschedulable(or(
                message,
                "0/3 nodes are available: 3 Insufficient memory.",
            ))),
            ("pending", "") => Some(Self::Pending),
            _ => None,
        }
    }

    /// The outcome of attempt `number` (from 1) in a list separated by `|`; the last one repeats.
    pub fn of_attempt(list: &str, number: usize) -> Self {
        let all: Vec<&str> = list.split('|').collect();
        let chosen = all
            .get(number.saturating_sub(1))
            .or(all.last())
            .copied()
            .unwrap_or("ok");
        Self::parse(chosen).unwrap_or(Self::Ok)
    }
}

fn or(text: &str, usual: &str) -> String {
    if text.is_empty() {
        usual.to_owned()
    } else {
        text.to_owned()
    }
}

/// What a target pod has been told about its attempt; `None` for every other pod.
pub fn outcome_of(pod: &Value) -> Option<Outcome> {
    if label(pod, names::MIGRATION_JOB_UID).is_empty() {
        return None;
    }
    let list = annotation(pod, knob::MIGRATION)?;
    let number = annotation(pod, knob::ATTEMPT)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    Some(Outcome::of_attempt(list, number))
}

/// The attempt that a VMI's annotation names for this VMIM.
pub fn attempt_of(vmi: &Value, vmim_uid: &str) -> Option<usize> {
    let (uid, number) = annotation(vmi, knob::ATTEMPT)?.split_once('/')?;
    if uid == vmim_uid {
        number.parse().ok()
    } else {
        None
    }
}

/// Guest memory in GiB, at least one, rounded up (KubeVirt's time limit counts so).
pub fn gibibytes(vmi: &Value) -> u32 {
    let bytes = at(vmi, "spec.domain.memory.guest").map_or(0, quantity);
    u32::try_from(bytes.div_ceil(1 << 30))
        .unwrap_or(u32::MAX)
        .max(1)
}

/// How long a migration copies: the knob, else memory at 1 GiB a second.
pub fn transfer_time(vmi: &Value) -> Duration {
    seconds(vmi, knob::MIGRATION_SECONDS)
        .unwrap_or_else(|| Duration::from_secs(u64::from(gibibytes(vmi))))
}

/// A number of seconds, or `never`.
pub fn seconds_or_never(object: &Value, key: &str, usual: Duration) -> Option<Duration> {
    match annotation(object, key) {
        Some("never") => None,
        Some(_) => Some(seconds(object, key).unwrap_or(usual)),
        None => Some(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn outcomes_by_attempt() {
        let list = "fail:no route|stuck|ok";
        assert_eq!(
            Outcome::of_attempt(list, 1),
            Outcome::Fail("no route".to_owned())
        );
        assert_eq!(Outcome::of_attempt(list, 2), Outcome::Stuck);
        assert_eq!(Outcome::of_attempt(list, 3), Outcome::Ok);
        assert_eq!(Outcome::of_attempt(list, 9), Outcome::Ok);
        assert_eq!(
            Outcome::parse("unschedulable:too big: really"),
            Some(Outcome::Unschedulable("too big: really".to_owned()))
        );
        assert_eq!(Outcome::parse("pending"), Some(Outcome::Pending));
        assert_eq!(Outcome::parse("maybe"), None);
    }

    #[test]
    fn times() {
        let vmi = json!({"metadata": {"annotations": {knob::GUEST_SHUTDOWN: "never", knob::START_UP: "0.3"}}, "spec": {"domain": {"memory": {"guest": "1500Mi"}}}});
        assert_eq!(gibibytes(&vmi), 2);
        assert_eq!(transfer_time(&vmi), Duration::from_secs(2));
        assert_eq!(
            seconds_or_never(&vmi, knob::GUEST_SHUTDOWN, Duration::ZERO),
            None
        );
        assert_eq!(
            seconds_or_never(&vmi, knob::START_UP, Duration::ZERO),
            Some(Duration::from_millis(300))
        );
        assert_eq!(
            seconds_or_never(&vmi, knob::SOURCE_LINGERS, Duration::from_secs(3)),
            Some(Duration::from_secs(3))
        );
    }
}
