//! The validated settings: what each key is, and its default.
//!
//! The field names are the keys of the files. `docs/configuration.md` is made of this file: the comment
//! of a field is what an administrator reads about the key, that of a section's field in [`Settings`] the
//! heading, what follows the first paragraph of a section's own comment its introduction; the
//! words of a choice are told by the comments of its variants. A test (`tests/it/configuration`) fails
//! when the page is older than the comments, and rewrites it. A key appears here when something reads it, not before.

use super::maintenance::Maintenance;
use super::values::{auto_rate, auto_span, span};
use crate::drain::hooks::{Knobs, OnFailure};
use crate::drain::others::{Scope, Turn};
use crate::drain::policy::{Consent, OnDeadline, OnForeignUncordon, OnScheduled, Pacing, Timing};
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
    /// What estimates start from.
    pub budget: Budget,
    /// This machine.
    pub host: Host,
    /// Signals that ask for a drain.
    ///
    /// One table for each signal on the system bus. The entries of all files count; one of a later file with the same
    /// `name` takes the earlier one's place. Reloaded at once. [maintenance.md](maintenance.md) has examples.
    pub maintenance: Vec<Maintenance>,
    /// What a drain waits for beside its VMs.
    pub gates: Gates,
    /// Requests from the cluster.
    pub request: Request,
    /// After the boot.
    pub restore: Restore,
    /// The journal.
    pub log: Log,
    /// Time constants.
    pub timing: Constants,
}

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// `"auto"` takes the first that exists of `/etc/vmdrain-agent/kubeconfig`, `/etc/kubernetes/kubelet.conf` and the
    /// kubelet's files of k3s, RKE2 and MicroK8s. `"in-cluster"` is for a pod. Otherwise an absolute path.
    pub kubeconfig: String,
    /// Name of the Node object of this host, for credentials that are not a kubelet's. A kubelet's certificate
    /// (`system:node:…`) names the node itself and wins, with a warning where the two differ; with neither it is the
    /// host name. The Node must carry this host's machine id, or nothing is done.
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

/// `[drain]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// When VMs that migrate are evicted.
    pub pacing: Pacing,
    /// What is drained. `trigger --scope` overrides it.
    pub scope: Scope,
    /// How long a drain may take. `"auto"`: when the host is going down, what logind allows less `budget.margin`;
    /// otherwise `timing.default_deadline`. `trigger --deadline` overrides it.
    #[serde(with = "auto_span")]
    pub deadline: Option<Duration>,
    /// What happens to VMs that are left then. `trigger --on-deadline` overrides it.
    pub on_deadline: OnDeadline,
    /// How long the API server may be silent before this host acts alone; never more than a quarter of the time left. Then
    /// the guests that policy and consent allow to be shut down are told on the host itself.
    #[serde(with = "span")]
    pub api_unreachable_timeout: Duration,
    /// Failed migrations of one VM, or one without progress (`timing.no_progress`), after which it is given up. Its
    /// guest is then shut down where that is allowed, so that the others get its migration slot.
    pub max_attempts: u32,
    /// Whether guests that cannot migrate, or not in time, may be shut down. `trigger --allow-guest-shutdown` allows it
    /// for one drain.
    pub allow_guest_shutdown: Consent,
    /// With scope `all-pods`: pods may be evicted whose emptyDir data is lost with them. `false`: such a pod stays, and the drain
    /// ends with exit code 3.
    pub allow_empty_dir: bool,
    /// With scope `all-pods`: pods may be evicted that no controller makes again. `false`: such a pod stays, and the drain ends
    /// with exit code 3.
    pub allow_unmanaged_pods: bool,
    /// `[[drain.order]]` tables, with scope `all-pods`; the first that matches a pod counts. `namespace` and `name` (exact, or
    /// with `*`) and `labels` (values exact or with `*`) select, at least one of them; pods with the smallest `priority` go first,
    /// the next when those are gone. A pod that no rule matches has 0; KubeVirt's own pods go after all others whatever they say.
    pub order: Vec<Turn>,
    /// What is done when somebody else uncordons the node in mid-drain.
    pub on_foreign_uncordon: OnForeignUncordon,
    /// Label selectors (`"app=db"`, `"app!=db"`, `"app"`, `"!app"`, joined by commas) of VMs that are left alone, whatever
    /// they or `[policy]` say: `["example.com/pinned", "app=licence,tier!=test"]`. The labels are those of the
    /// launcher pod, which has all of the VM's template. With scope `all-pods` other pods that match stay as well. What `leave` means is told in [vms.md](vms.md).
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
            allow_empty_dir: false,
            allow_unmanaged_pods: false,
            order: Vec::new(),
            on_foreign_uncordon: OnForeignUncordon::default(),
            skip: Vec::new(),
        }
    }
}

/// `[policy]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmPolicy {
    /// What a drain does with a VM that says nothing itself and that no rule matches. [vms.md](vms.md) tells what each
    /// word means for which VM.
    pub default: Way,
    /// `[[policy.rule]]` tables, tried in their order; the first that matches a VM counts. At least one of `namespace`,
    /// `name` and `labels` selects. A VM's own annotations win.
    pub rule: Vec<Rule>,
}

/// `[budget]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Speed of a live migration; orders the VMs (longest first). `"auto"` reckons with `1Gi/s`.
    #[serde(with = "auto_rate")]
    pub migration_rate: Option<u64>,
    /// Kept free between our deadline and the moment at which logind stops waiting.
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
    /// Where the record of the running drain is kept, from which a restarted agent goes on. An absolute path.
    pub state_dir: PathBuf,
    /// What to do when a shutdown is scheduled (`shutdown +10`). `shutdown -c` takes all of it back.
    pub on_scheduled_shutdown: OnScheduled,
    /// Where logind keeps its files. The agent watches `shutdown/` below it to see at once that a shutdown was
    /// scheduled, which systemd 256 and older tell nobody. An absolute path.
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
    /// The annotation `vmdrain.io/request` on the own Node is obeyed: `drain`, `cancel`, `restore`, or JSON with more
    /// ([maintenance.md](maintenance.md)). It never shuts the host down. The Node is watched for it, which is otherwise
    /// not done while nothing happens. Reloaded at once.
    pub node_annotation: bool,
}

/// `[gates]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// How long a drain waits, when the node is empty, for volumes that are still attached to it (`VolumeAttachment` objects);
    /// what is left then is named, and the drain goes on. Never longer than half of the time to the deadline. Needs
    /// `rbac/volumes.yaml`. `"0s"`: not at all.
    #[serde(with = "span")]
    pub volume_attachments: Duration,
    /// The directory with `pre-drain.d`, `post-drain.d` and `pre-release.d`: programs of the administrator's that run at
    /// these gates ([maintenance.md](maintenance.md)). Empty: none. An absolute path; another one takes effect at the
    /// next start.
    pub hooks: PathBuf,
    /// How long one hook may take. All of a gate together get a quarter of the time to the deadline, and before the
    /// release half of what is left of logind's limit: no hook holds the host longer than that.
    #[serde(with = "span")]
    pub hook_timeout: Duration,
    /// What a failed hook does to the drain. Told in the journal and by an Event in any case.
    pub hook_failure: OnFailure,
}

impl Default for Gates {
    fn default() -> Self {
        let knobs = Knobs::default();
        Self {
            volume_attachments: Duration::ZERO,
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
    /// A node that vmdrain-agent cordoned is uncordoned after the boot, as soon as it can receive VMs again: the Node is
    /// Ready and kubelet has reported since the boot, virt-handler's heartbeat is newer than the boot,
    /// `kubevirt.io/schedulable` is `true`, and `devices.kubevirt.io/kvm` is allocatable. Never when the cordon is
    /// somebody else's, when `--keep-cordoned` was given, or when the host was not down. `false`: `vmdrain-agent
    /// restore` by hand.
    pub enabled: bool,
    /// When that takes longer, a warning and an Event tell what is missing, and again after each such time. The agent
    /// goes on looking: the node is given back as soon as nothing is missing any more, however late.
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
    /// `error`, `warn`, `info`, `debug` or `trace` for our own messages; or directives such as
    /// `"vmdrain_agent::cluster=debug,kube_client=warn"` on top of the usual ones. Modules only: spans and fields (`[…]`)
    /// are refused.
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
    /// Time constants of the core.
    #[serde(flatten)]
    pub core: Timing,
    /// Time constants of the Kubernetes adapter.
    pub cluster: crate::cluster::Timing,
    /// Time constants of the host adapter.
    pub host: crate::host::Timing,
}
