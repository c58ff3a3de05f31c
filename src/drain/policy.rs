//! The validated knobs of a drain: what the configuration and the trigger may change.
//!
//! Every time constant of the core is here, so that a test can speed all of them up.

use super::boot::{Start, Userspace};
use super::hooks::Knobs;
use super::others::Rules;
use super::time::Mono;
use super::ways::Ways;
use super::world::Picture;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What happens when the deadline comes and VMs are left (design section 3.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeadline {
    /// In time before the deadline their guests are shut down, so that each gets its whole grace period; where
    /// `drain.allow_guest_shutdown` does not permit that, as `"proceed"`.
    #[default]
    ShutdownVms,
    /// The drain goes on past its deadline. Logind does not wait longer than its limit: when the host is already going
    /// down, as `"shutdown-vms"`.
    Hold,
    /// Lets the host go and names every VM that is left.
    Proceed,
    /// Gives the drain up: marks cleared, node uncordoned, the host stays up. When the host is already going down, as
    /// `"shutdown-vms"`.
    Abort,
}

impl OnDeadline {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ShutdownVms, Self::Hold, Self::Proceed, Self::Abort];

    /// The word in files, on the bus and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::ShutdownVms => "shutdown-vms",
            Self::Hold => "hold",
            Self::Proceed => "proceed",
            Self::Abort => "abort",
        }
    }
}

/// Whether guests may be shut down (design section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consent {
    /// When the host really goes down.
    #[default]
    OnShutdown,
    /// In every drain.
    Always,
    /// They count as blocked.
    Never,
}

/// When migrating VMs are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// Each just in time, when KubeVirt has a free migration slot, the longest first.
    #[default]
    Slots,
    /// All at once, and KubeVirt queues them.
    All,
}

/// What to do when somebody else uncordons the node in mid-drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnForeignUncordon {
    /// It is cordoned again.
    #[default]
    Recordon,
    /// The drain is given up.
    Abort,
}

/// What to do when a shutdown is scheduled (`shutdown +10`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnScheduled {
    /// The drain begins at once; guests that cannot migrate keep running until the time has come.
    #[default]
    Drain,
    /// The node is cordoned, so that nothing new comes; the drain begins when the time has come.
    Cordon,
    /// Nothing is done before the time has come.
    Ignore,
}

/// The knobs of one drain. Durations are what they say; see [`Timing`] for the finer ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The node that is ours.
    pub node_name: String,
    /// `machine-id` of this host, empty when unreadable.
    pub machine_id: String,
    /// DMI product UUID of this host, empty when unreadable.
    pub system_uuid: String,
    /// Boot id of this host.
    pub boot_id: String,
    /// What systemd says about its user space.
    pub userspace: Userspace,
    /// When that user space began: what the cluster says of an earlier moment is about the time before.
    pub up_since: Mono,
    /// When migrating VMs are evicted.
    pub pacing: Pacing,
    /// Deadline of a drain of net 1; `None`: `Timing::default_deadline`.
    pub deadline: Option<Duration>,
    /// What happens then.
    pub on_deadline: OnDeadline,
    /// How long the API server may be silent before this host acts alone; never more than a quarter of the time left.
    pub unreachable: Duration,
    /// Failed migrations of one VM after which it is given up, so that others get its slot.
    pub max_attempts: u32,
    /// Consent to shut guests down.
    pub consent: Consent,
    /// Answer to a foreign uncordon.
    pub on_foreign_uncordon: OnForeignUncordon,
    /// Answer to a scheduled shutdown.
    pub on_scheduled: OnScheduled,
    /// Bytes per second of a migration, for the order (longest first) and the estimate.
    pub migration_rate: u64,
    /// Kept free between our deadline and logind's limit.
    pub margin: Duration,
    /// Requests on the own Node are taken.
    pub requests: bool,
    /// How hooks are run.
    pub hooks: Knobs,
    /// A node that we cordoned is given back after the boot.
    pub restore: bool,
    /// How long that may take before what is missing is told as a warning.
    pub restore_wait: Duration,
    /// What happens to which VM.
    pub ways: Ways,
    /// What happens to pods that are no VM's.
    pub others: Rules,
    /// How long attached volumes are waited for when the node is empty; zero: not at all.
    pub volume_wait: Duration,
    /// The finer time constants.
    pub timing: Timing,
}

/// Time constants of the core; configuration section `[timing]`.
///
/// Nobody should have to touch these; they are keys so that a test can speed all of them up. All are durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// Deadline of a drain while the host stays up and nothing else is said.
    #[serde(with = "seconds")]
    pub default_deadline: Duration,
    /// First pause after a request that failed for a passing reason; doubles.
    #[serde(with = "seconds")]
    pub retry_first: Duration,
    /// Longest such pause.
    #[serde(with = "seconds")]
    pub retry_most: Duration,
    /// First pause after a refusal that only the cluster can lift (disruption budget, overload); doubles.
    #[serde(with = "seconds")]
    pub refused_first: Duration,
    /// Longest such pause.
    #[serde(with = "seconds")]
    pub refused_most: Duration,
    /// Pause before asking again about a pod whose VM cannot be seen.
    #[serde(with = "seconds")]
    pub ask_again: Duration,
    /// How long an accepted eviction may stay without KubeVirt's mark before it is sent again.
    #[serde(with = "seconds")]
    pub mark_missing: Duration,
    /// How long a launcher pod may go on running after its VM has moved.
    #[serde(with = "seconds")]
    pub linger: Duration,
    /// How long a VM that has just arrived here is let be before it is evicted: KubeVirt begins no migration while its
    /// old pod still ends.
    #[serde(with = "seconds")]
    pub settle: Duration,
    /// How long others may hold all migration slots before we join KubeVirt's queue.
    #[serde(with = "seconds")]
    pub queue_patience: Duration,
    /// How long a migration may show no sign of life before its slot counts as free.
    #[serde(with = "seconds")]
    pub slot_patience: Duration,
    /// After this time without a sign of life what was seen of the cluster is called stale.
    #[serde(with = "seconds")]
    pub picture_stale: Duration,
    /// How long logind may be silent before that is told as lost protection.
    #[serde(with = "seconds")]
    pub hold_patience: Duration,
    /// How old virt-handler's last heartbeat may be before no guest is shut down through it any more: without
    /// virt-handler it would be killed. (It reports every 60 to 132 s.)
    #[serde(with = "seconds")]
    pub handler_silent: Duration,
    /// A migration that copies for longer than this, and than five times what its memory should need, makes no progress.
    #[serde(with = "seconds")]
    pub no_progress: Duration,
    /// A target pod that is not started after this is told as one that no other node may have room for.
    #[serde(with = "seconds")]
    pub unplaced: Duration,
    /// A target pod that is not started after this is looked for once, for the scheduler's own words (`rbac/targets.yaml`).
    #[serde(with = "seconds")]
    pub target_patience: Duration,
    /// From then on it is looked for so often.
    #[serde(with = "seconds")]
    pub target_again: Duration,
    /// In a drain that may not take longer than this (a UPS, a small limit of logind's), guests whose migration does not
    /// fit before their grace period begins are shut down at once, not near the deadline.
    #[serde(with = "seconds")]
    pub short_drain: Duration,
    /// What a migration needs before it copies memory, for that reckoning.
    #[serde(with = "seconds")]
    pub set_up: Duration,
    /// What the pod of a guest that is shut down needs besides the guest's own grace period.
    #[serde(with = "seconds")]
    pub stop_slack: Duration,
    /// While the API server is away this host looks at its own containers so often.
    #[serde(with = "seconds")]
    pub look_here: Duration,
    /// A kind that cannot be listed is waited for so long before the pods alone say whether the node is empty.
    #[serde(with = "seconds")]
    pub unread: Duration,
    /// A kubelet has told a guest whose pod's deletion was taken so long before the API server went away.
    #[serde(with = "seconds")]
    pub kubelet: Duration,
    /// Of logind's limit so much is kept for the release itself, whoever moves the deadline.
    #[serde(with = "seconds")]
    pub release: Duration,
    /// By how much longer the grace period of a launcher pod is than its guest's (kubevirt-semantics 5).
    #[serde(with = "seconds")]
    pub pod_grace_extra: Duration,
    /// How long a second of a grace period, or of an estimate's own numbers, lasts. Anything but `"1s"` is for simulated worlds that run faster.
    #[serde(with = "seconds")]
    pub grace_second: Duration,
    /// Time limit of one request; set by `cluster.request_timeout`.
    #[serde(with = "seconds")]
    pub request: Duration,
}

impl Timing {
    /// How long a grace period lasts.
    pub fn lasts(&self, grace: Duration) -> Duration {
        grace.mul_f64(self.grace_second.as_secs_f64())
    }

    /// The grace periods of a picture, as long as they last.
    pub fn hasten(&self, picture: &mut Picture) {
        if self.grace_second == Duration::from_secs(1) {
            return;
        }
        for pod in picture.pods.seen_mut().into_iter().flatten() {
            pod.grace = self.lasts(pod.grace);
        }
        for vmi in picture.vmis.seen_mut().into_iter().flatten() {
            vmi.grace = self.lasts(vmi.grace);
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            default_deadline: s(1800),
            retry_first: Duration::from_millis(500),
            retry_most: s(15),
            refused_first: s(30),
            refused_most: s(60),
            ask_again: s(10),
            mark_missing: s(30),
            linger: s(60),
            settle: s(10),
            queue_patience: s(15),
            slot_patience: s(300),
            picture_stale: s(60),
            hold_patience: s(30),
            handler_silent: s(300),
            no_progress: s(600),
            unplaced: s(60),
            target_patience: s(10),
            target_again: s(30),
            short_drain: s(300),
            set_up: s(8),
            stop_slack: s(10),
            look_here: s(1),
            unread: s(60),
            kubelet: s(5),
            release: s(2),
            pod_grace_extra: super::stop::POD_GRACE_EXTRA,
            grace_second: s(1),
            request: s(10),
        }
    }
}

impl Policy {
    /// How long the copy of so many bytes takes at the configured rate.
    pub fn copies_for(&self, bytes: u64) -> Duration {
        Duration::from_millis(bytes.saturating_mul(1000) / self.migration_rate.max(1))
    }

    /// The defaults of the packaged configuration for the node `node_name`.
    pub fn for_node(node_name: &str) -> Self {
        Self {
            node_name: node_name.into(),
            machine_id: String::new(),
            system_uuid: String::new(),
            boot_id: String::new(),
            userspace: Userspace::default(),
            up_since: Mono::default(),
            pacing: Pacing::default(),
            deadline: None,
            on_deadline: OnDeadline::default(),
            unreachable: Duration::from_secs(120),
            max_attempts: 3,
            consent: Consent::default(),
            on_foreign_uncordon: OnForeignUncordon::default(),
            on_scheduled: OnScheduled::default(),
            migration_rate: 1 << 30,
            margin: Duration::from_secs(30),
            requests: false,
            hooks: Knobs::default(),
            restore: true,
            restore_wait: Duration::from_secs(900),
            ways: Ways::default(),
            others: Rules::default(),
            volume_wait: Duration::ZERO,
            timing: Timing::default(),
        }
    }

    /// This start of the host.
    pub fn start(&self) -> Start<'_> {
        Start {
            boot: &self.boot_id,
            userspace: self.userspace,
        }
    }
}

/// Durations in configuration and JSON: a number of seconds, or a text such as `90s`, `1h30m`.
pub mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f64),
        Text(String),
    }

    /// As seconds.
    pub fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    /// From seconds or text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        match Form::deserialize(from)? {
            Form::Number(n) => Duration::try_from_secs_f64(n).map_err(serde::de::Error::custom),
            Form::Text(text) => parse(&text).map_err(serde::de::Error::custom),
        }
    }

    /// Reads `90s`, `5m`, `1h30m`, `200ms`; a bare number counts seconds.
    pub fn parse(text: &str) -> Result<Duration, String> {
        let bad = || format!("'{text}' is not a duration such as 90s, 5m or 1h30m");
        let (mut total, mut rest) = (0.0_f64, text.trim());
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            let number: f64 = rest[..end].parse().map_err(|_| bad())?;
            let tail = &rest[end..];
            let stop = tail
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(tail.len());
            total += number
                * match &tail[..stop] {
                    "" if stop == tail.len() => 1.0,
                    "s" | "sec" => 1.0,
                    "ms" => 0.001,
                    "m" | "min" => 60.0,
                    "h" => 3600.0,
                    "d" => 86400.0,
                    _ => return Err(bad()),
                };
            rest = tail[stop..].trim_start();
        }
        Duration::try_from_secs_f64(total).map_err(|_| bad())
    }
}

/// The same for an optional duration; absent means `None`.
pub mod opt_seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[derive(Deserialize)]
    struct Inner(#[serde(with = "super::seconds")] Duration);

    /// As seconds or null.
    #[allow(
        clippy::ref_option,
        reason = "serde's `with` hands the field over by reference"
    )]
    pub fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => to.serialize_f64(span.as_secs_f64()),
            None => to.serialize_none(),
        }
    }

    /// From seconds, text or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Inner>::deserialize(from)?.map(|inner| inner.0))
    }
}
