//! The validated settings: what each key is, its default and its range.
//!
//! The field names are the keys of the files. `docs/configuration.md` describes each; a test compares
//! the two. A key appears here when something reads it, not before.

use super::keys;
use super::maintenance::Maintenance;
use super::values::{auto_rate, auto_span, span};
use crate::drain::hooks::{Knobs, OnFailure};
use crate::drain::policy::{
    Consent, OnDeadline, OnForeignUncordon, OnScheduled, Pacing, Timing, seconds,
};
use crate::drain::ways::{Rule, Selector, Way};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How the cluster is reached.
    pub cluster: Cluster,
    /// How a drain goes.
    pub drain: Drain,
    /// What happens to a VM.
    pub policy: VmPolicy,
    /// What the estimates start from.
    pub budget: Budget,
    /// This host.
    pub host: Host,
    /// Requests from the cluster.
    pub request: Request,
    /// What a drain waits for beside its VMs.
    pub gates: Gates,
    /// After the boot.
    pub restore: Restore,
    /// `[[maintenance]]`: signals on the bus that ask for something.
    pub maintenance: Vec<Maintenance>,
    /// The journal.
    pub log: Log,
    /// Time constants; nobody should have to touch them.
    pub timing: Constants,
}

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// `auto` (the kubelet's own and the usual places), `in-cluster`, or an absolute path.
    pub kubeconfig: String,
    /// Name of the own Node; empty: from the certificate, else the host name.
    pub node_name: String,
    /// Time limit of one request to the API server.
    #[serde(with = "span")]
    pub request_timeout: Duration,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            kubeconfig: "auto".into(),
            node_name: String::new(),
            request_timeout: Timing::default().request,
        }
    }
}

/// What is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The launcher pods of virtual machines and nothing else.
    #[default]
    Vms,
}

/// `[drain]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// When migrating VMs are evicted.
    pub pacing: Pacing,
    /// What is drained.
    pub scope: Scope,
    /// How long a drain may take; `None` (`auto`): logind's limit less the margin, and
    /// `timing.default_deadline` where logind is not waiting.
    #[serde(with = "auto_span")]
    pub deadline: Option<Duration>,
    /// What happens then.
    pub on_deadline: OnDeadline,
    /// How long the API server may be silent before this host acts alone.
    #[serde(with = "span")]
    pub api_unreachable_timeout: Duration,
    /// Failed migrations of one VM after which it is given up.
    pub max_attempts: u32,
    /// Whether guests may be shut down.
    pub allow_guest_shutdown: Consent,
    /// Answer to somebody else's uncordon in mid-drain.
    pub on_foreign_uncordon: OnForeignUncordon,
    /// Label selectors of VMs that are left alone.
    pub skip: Vec<Selector>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            pacing: Pacing::default(),
            scope: Scope::default(),
            deadline: None,
            on_deadline: OnDeadline::default(),
            api_unreachable_timeout: Duration::from_secs(120),
            max_attempts: 3,
            allow_guest_shutdown: Consent::default(),
            on_foreign_uncordon: OnForeignUncordon::default(),
            skip: Vec::new(),
        }
    }
}

/// `[policy]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmPolicy {
    /// For every VM that says nothing itself and that no rule matches.
    pub default: Way,
    /// `[[policy.rule]]`, the first that matches counts.
    pub rule: Vec<Rule>,
}

/// `[budget]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Bytes per second of a live migration; `None` (`auto`): [`Budget::AUTO_RATE`].
    #[serde(with = "auto_rate")]
    pub migration_rate: Option<u64>,
    /// Kept free between our deadline and logind's limit.
    #[serde(with = "span")]
    pub margin: Duration,
}

impl Budget {
    /// What `auto` stands for as long as nothing has been measured: 1 GiB/s.
    pub const AUTO_RATE: u64 = 1 << 30;

    /// The rate to reckon with, in bytes per second.
    pub fn rate(&self) -> u64 {
        self.migration_rate.unwrap_or(Self::AUTO_RATE)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            migration_rate: None,
            margin: Duration::from_secs(30),
        }
    }
}

/// `[host]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Where the record of the running drain is kept.
    pub state_dir: PathBuf,
    /// Answer to `shutdown +10`.
    pub on_scheduled_shutdown: OnScheduled,
    /// Where logind keeps its files: `shutdown/scheduled` below it tells of a scheduled shutdown.
    pub logind_dir: PathBuf,
    /// Where the processes of this host are seen.
    pub proc_dir: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            state_dir: "/var/lib/vmdrain-agent".into(),
            on_scheduled_shutdown: OnScheduled::default(),
            logind_dir: "/run/systemd".into(),
            proc_dir: "/proc".into(),
        }
    }
}

/// `[request]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Request {
    /// The annotation `vmdrain.io/request` on the own Node is obeyed; the Node is watched for it.
    pub node_annotation: bool,
}

/// `[gates]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// Where `pre-drain.d`, `post-drain.d` and `pre-release.d` are; empty: no hooks.
    pub hooks: PathBuf,
    /// How long one hook may take.
    #[serde(with = "span")]
    pub hook_timeout: Duration,
    /// What a failed hook does to the drain.
    pub hook_failure: OnFailure,
}

impl Default for Gates {
    fn default() -> Self {
        let knobs = Knobs::default();
        Self {
            hooks: "/etc/vmdrain-agent".into(),
            hook_timeout: knobs.timeout,
            hook_failure: knobs.failure,
        }
    }
}

/// `[restore]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restore {
    /// A node that we cordoned is uncordoned after the boot, once it can receive VMs.
    pub enabled: bool,
    /// How long that may take before what is missing is told as a warning; it goes on after that.
    #[serde(with = "span")]
    pub wait: Duration,
}

impl Default for Restore {
    fn default() -> Self {
        Self {
            enabled: true,
            wait: Duration::from_secs(15 * 60),
        }
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace` for our own messages, or a filter in tracing's form.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".into(),
        }
    }
}

/// `[timing]`: the constants of the core, and of each adapter in a table of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Constants {
    /// The core's.
    #[serde(flatten)]
    pub core: Timing,
    /// `[timing.cluster]`: the Kubernetes adapter's.
    pub cluster: crate::cluster::Timing,
    /// `[timing.host]`: the host adapter's.
    pub host: crate::host::Timing,
}

/// Waits that may be left out; any other duration or count of zero makes no sense.
const MAY_BE_ZERO: [&str; 5] = [
    "budget.margin",
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
