//! What can be typed? Commands, options and their help.

use super::rbac::Part;
use crate::drain::others::Scope;
use crate::drain::policy::{OnDeadline, seconds};
use crate::drain::trigger::{Then, Trigger};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  vmdrain-agent status                       where the VMs of this host stand
  vmdrain-agent reboot --reason 'new kernel' move the VMs away, then reboot
  vmdrain-agent trigger --deadline 20m       move the VMs away, leave the host up
  vmdrain-agent cancel                       call it off and give the node back
  vmdrain-agent plan                         what would become of every VM, and is there time
  vmdrain-agent doctor                       what is not as it should be, and the cure

Exit codes:
  0 done, the node is empty       4 refused (the message says why)
  1 failed                        5 cancelled
  2 wrong command line            6 the daemon cannot be reached
  3 ended with VMs left           7 the API server cannot be reached
  10 plan: some VM would be shut down or left, also for want of time
  11 doctor: warnings             12 doctor: failures
  130 interrupted; the drain goes on";

/// The whole command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "vmdrain-agent",
    version,
    about = "Empties a KubeVirt host of virtual machines before the host goes down",
    after_help = EXAMPLES,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Args {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Global {
    /// Bus to use instead of the system bus, e.g. unix:path=/run/user/1000/bus
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        help_heading = "Global options"
    )]
    pub bus: Option<String>,
    /// Configuration: a file to read alone, or a directory that stands for /
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        alias = "root",
        help_heading = "Global options"
    )]
    pub config: Option<PathBuf>,
    /// One setting, above all files; can be repeated
    #[arg(
        long,
        global = true,
        value_name = "SECTION.KEY=VALUE",
        help_heading = "Global options"
    )]
    pub set: Vec<String>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run the daemon (what the systemd unit does)
    Run,
    /// Drain this node: cordon it and move its VMs away
    #[command(after_help = "\
Examples:
  vmdrain-agent trigger                      drain; the node stays cordoned
  vmdrain-agent trigger --then poweroff      the same, then power off
  vmdrain-agent trigger --no-wait            start it and return; follow with `status -w`

Progress is shown until the drain ends. Ctrl-C only stops watching; a second Ctrl-C within
three seconds asks for a cancel.")]
    Trigger {
        /// What to do with the host afterwards; nothing: it stays up, drained and cordoned
        #[arg(long, value_enum, value_name = "WHAT")]
        then: Option<ThenArg>,
        /// How to drain.
        #[command(flatten)]
        how: How,
    },
    /// Drain this node, then reboot it
    Reboot(How),
    /// Drain this node, then power it off
    Poweroff(How),
    /// Drain this node, then halt it
    Halt(How),
    /// Drain this node, then boot the loaded kernel
    Kexec(How),
    /// Call the drain off: clear the marks, give the node back
    #[command(after_help = "\
KubeVirt before 1.7 cannot clear a mark; VMs that are already marked then still move. A shutdown
that logind has announced cannot be called off this way.")]
    Cancel {
        /// Also stop the migrations that are under way
        #[arg(long)]
        abort_migrations: bool,
    },
    /// Move the deadline of the running drain
    #[command(after_help = "\
Example:
  vmdrain-agent extend 10m

While logind holds a shutdown it waits no longer than its own limit; what it does not give is refused.")]
    Extend {
        /// By how much, e.g. 10m
        #[arg(value_name = "DURATION", value_parser = extension)]
        by: Duration,
    },
    /// Enough, go now: end the running drain, and let the host go
    #[command(after_help = "\
Without an option it ends as its policy for the deadline says, only now. Said again, it does not wait
for guests that are still shutting down. It works while a shutdown is held and in the stop job, too.")]
    Release {
        /// Shut down the guests that are left, each with its grace period
        #[arg(long)]
        shutdown_vms: bool,
        /// Let the host go as it is; VMs that are left are named
        #[arg(long, conflicts_with = "shutdown_vms")]
        proceed: bool,
    },
    /// Uncordon this node, if the cordon is ours
    Restore,
    /// Show what happens on this node, to which VM and why
    #[command(after_help = "\
Examples:
  vmdrain-agent status -w                    follow it
  vmdrain-agent status -o json | jq .vms     for programs; docs/status.schema.json describes it")]
    Status {
        /// Go on showing it until Ctrl-C
        #[arg(short, long)]
        watch: bool,
        /// How to show it; with -w, json is one line per change
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Show what would become of every VM if the host went down now, and whether there is time for it
    #[command(after_help = "\
Nothing is changed: every VM's eviction is asked for as a dry run.

Examples:
  vmdrain-agent plan && systemctl reboot     reboot only when no VM has to be shut down
  vmdrain-agent plan -o json | jq -r '.budgets[].cure.manifest // empty'
                                             disruption budgets corrected, for kubectl apply -f -

Exit code 10: some VM would be shut down or left. docs/plan.schema.json describes the JSON.")]
    Plan {
        /// How to show it
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Look for what would go wrong in a drain: this host, its rights, its cluster; every finding with its cure
    #[command(after_help = "\
Works with and without the daemon. As root it sees everything; as another user it says what it could not see.

Examples:
  vmdrain-agent doctor                       after the installation, and from time to time
  vmdrain-agent doctor -o json               for programs; docs/doctor.schema.json describes it

Exit code 11: warnings, 12: failures.")]
    Doctor {
        /// How to show it
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// What the ExecStop= of vmdrain-hold.service runs: drains this node when the system is really going down
    #[command(hide = true)]
    HoldStop,
    /// Look at the configuration
    Config {
        /// What about it.
        #[command(subcommand)]
        what: ConfigCommand,
    },
    /// Print the manifests that give the agent more rights in the cluster
    #[command(after_help = "\
Examples:
  vmdrain-agent rbac | kubectl apply -f -    see VMIs, migrations and budgets: reads, own-node-policy
  vmdrain-agent rbac reads cancel            these parts
  vmdrain-agent rbac --list                  what there is

Nothing of it is needed to drain, cordon and restore with the kubelet's identity.
docs/security.md says what each part opens.")]
    Rbac {
        /// Parts; none: reads and own-node-policy
        #[arg(value_enum, value_name = "PART", hide_possible_values = true)]
        parts: Vec<Part>,
        /// Say which parts there are
        #[arg(long, conflicts_with = "parts")]
        list: bool,
    },
    /// Print the completions of a shell
    #[command(after_help = "\
Example:
  vmdrain-agent completions bash > /etc/bash_completion.d/vmdrain-agent")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory.
        folder: PathBuf,
    },
}

/// How to drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct How {
    /// Why, for people: shown in status, journal and on the Node
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub reason: String,
    /// How long it may take, e.g. 30m
    #[arg(long, value_name = "DURATION", value_parser = deadline)]
    pub deadline: Option<Duration>,
    /// What happens when the deadline comes and VMs are left: shutdown-vms (in time before it their guests are shut
    /// down), hold (go on draining), proceed (let the host go), abort (give the node back)
    #[arg(long, value_name = "POLICY", value_parser = on_deadline)]
    pub on_deadline: Option<OnDeadline>,
    /// Guests that cannot migrate may be shut down although the host stays up
    #[arg(long)]
    pub allow_guest_shutdown: bool,
    /// What is drained: vms, or all-pods (after the VMs every other pod that can go). Without it drain.scope says
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    pub scope: Option<Scope>,
    /// The node stays cordoned after the boot
    #[arg(long)]
    pub keep_cordoned: bool,
    /// Only start the drain
    #[arg(long)]
    pub no_wait: bool,
    /// Drain from this process, without a daemon
    #[arg(long, conflicts_with = "no_wait")]
    pub standalone: bool,
}

/// What about the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting with its origin, as a valid file
    Show {
        /// table is TOML with comments, json an array
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Read all layers and tell what is wrong with them
    Check,
}

/// How to show something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

/// [`Then`] as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThenArg {
    /// Power off
    Poweroff,
    /// Reboot
    Reboot,
    /// Halt
    Halt,
    /// Boot the loaded kernel
    Kexec,
    /// Restart user space only (systemd 254 and later)
    SoftReboot,
}

impl From<ThenArg> for Then {
    fn from(then: ThenArg) -> Self {
        match then {
            ThenArg::Poweroff => Self::Poweroff,
            ThenArg::Reboot => Self::Reboot,
            ThenArg::Halt => Self::Halt,
            ThenArg::Kexec => Self::Kexec,
            ThenArg::SoftReboot => Self::SoftReboot,
        }
    }
}

impl How {
    /// The request that these options make, with what follows the drain.
    pub fn trigger(&self, then: Option<Then>) -> Trigger {
        Trigger {
            then,
            reason: self.reason.clone(),
            deadline: self.deadline,
            on_deadline: self.on_deadline,
            allow_guest_shutdown: self.allow_guest_shutdown,
            keep_cordoned: self.keep_cordoned,
            scope: self.scope,
            shutdown_vms: false,
            stop_job: false,
            signal: String::new(),
        }
    }
}

fn deadline(text: &str) -> Result<Duration, String> {
    match seconds::parse(text)? {
        Duration::ZERO => Err("no VM can be moved in no time".into()),
        span => Ok(span),
    }
}

fn extension(text: &str) -> Result<Duration, String> {
    match seconds::parse(text)? {
        Duration::ZERO => Err("a deadline is moved by more than nothing".into()),
        span => Ok(span),
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    let known = Scope::ALL.into_iter().find(|scope| scope.word() == text);
    known.ok_or_else(|| format!("the scopes are {}", Scope::ALL.map(Scope::word).join(", ")))
}

fn on_deadline(text: &str) -> Result<OnDeadline, String> {
    let known = OnDeadline::ALL
        .into_iter()
        .find(|policy| policy.word() == text);
    known.ok_or_else(|| {
        format!(
            "the policies are {}",
            OnDeadline::ALL.map(OnDeadline::word).join(", ")
        )
    })
}
