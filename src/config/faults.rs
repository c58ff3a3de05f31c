//! Which values are possible for their type and yet make no sense: ranges, and keys that contradict each other.

use super::keys;
use super::settings::Settings;
use crate::drain::policy::{Consent, seconds};
use std::time::Duration;

/// Waits that may be left out; any other duration or count of zero makes no sense.
const MAY_BE_ZERO: [&str; 6] = [
    "budget.margin",
    "gates.volume_attachments",
    "timing.linger",
    "timing.queue_patience",
    "timing.settle",
    "timing.stop_slack",
];

/// Beyond this a duration is a slip of the pen, and sums and products of them could leave their range.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Settings {
    /// What is out of range, as pairs of key and sentence.
    pub(super) fn faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, what: &str| faults.push((key.to_owned(), what.to_owned()));
        if !["auto", "in-cluster"].contains(&self.cluster.kubeconfig.as_str())
            && !self.cluster.kubeconfig.starts_with('/')
        {
            fault(
                "cluster.kubeconfig",
                "is neither \"auto\" nor \"in-cluster\" nor an absolute path",
            );
        }
        if !self.cluster.node_name.is_empty() && !is_node_name(&self.cluster.node_name) {
            fault(
                "cluster.node_name",
                "is not the name of a Node (lower-case letters, digits, '-' and '.', at most 253)",
            );
        }
        if !self.host.state_dir.is_absolute() {
            fault("host.state_dir", "is not an absolute path");
        }
        if !self.host.logind_dir.is_absolute() {
            fault("host.logind_dir", "is not an absolute path");
        }
        if !self.host.proc_dir.is_absolute() {
            fault("host.proc_dir", "is not an absolute path");
        }
        let hooks = &self.gates.hooks;
        if !hooks.as_os_str().is_empty() && !hooks.is_absolute() {
            fault("gates.hooks", "is not an absolute path");
        }
        if let Err(why) = crate::telemetry::logging::filter(&self.log.level) {
            fault("log.level", &why);
        }
        for (key, value) in keys::leaves(&self.tree()) {
            let zero = value == "0s" || value == 0;
            if zero && !MAY_BE_ZERO.contains(&key.as_str()) {
                fault(
                    &key,
                    "is zero, which would be no time at all or a loop without a pause",
                );
            }
            let span = value.as_str().and_then(|text| seconds::parse(text).ok());
            if span.is_some_and(|span| span > LONGEST) {
                fault(&key, "is longer than 10 years");
            }
        }
        for (at, rule) in self.policy.rule.iter().enumerate() {
            if let Some(why) = rule.trouble() {
                fault("policy.rule", &format!("number {} {why}", at + 1));
            }
        }
        for (at, rule) in self.drain.order.iter().enumerate() {
            if let Some(why) = rule.trouble() {
                fault("drain.order", &format!("number {} {why}", at + 1));
            }
        }
        if self.drain.allow_guest_shutdown == Consent::Never {
            for entry in self.maintenance.iter().filter(|entry| entry.shuts_down()) {
                let what = format!(
                    "entry \"{}\": shuts guests down, and drain.allow_guest_shutdown is \"never\"",
                    entry.name
                );
                fault("maintenance", &what);
            }
        }
        let timing = &self.timing.core;
        if timing.retry_first > timing.retry_most {
            fault("timing.retry_first", "is longer than timing.retry_most");
        }
        if timing.refused_first > timing.refused_most {
            fault("timing.refused_first", "is longer than timing.refused_most");
        }
        faults
    }
}

/// RFC 1123 subdomain, which is what the API server demands of the name of a Node.
fn is_node_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}
