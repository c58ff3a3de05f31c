//! vmdrain-agent: empties a KubeVirt host of virtual machines before the host goes down.
//!
//! ```text
//!  logind PrepareForShutdown ─┐                        ┌──────────── drain (pure) ────────────┐
//!  D-Bus calls from the CLI ──┼─ queue ──► agent ──────► Machine::handle(input, now)          │
//!  results of effects ────────┘            driver      │ Machine::poll_action() ─► Action ────┼─► agent::effects ─► ports
//!  watches of pods, VMIs, …  ─ newest picture ─┘       │ Machine::poll_timeout() ─► timer     │        │
//!                                                      └──────────────┬───────────────────────┘        ├─► cluster (API server)
//!                                             watch channel of Status │                                └─► host (logind, state file)
//!                                       bus, `status`, STATUS=, logs ◄┘
//! ```
//!
//! Where to look:
//!
//! | question | place |
//! |---|---|
//! | what does an eviction answer mean? | [`drain::answer`] |
//! | why is a VM not moving (and the sentence that `status` prints)? | [`drain::judge`], [`drain::verdict`] |
//! | how many VMs may be sent on their way now? | [`drain::pacing`] |
//! | when does a drain begin, where is its deadline computed? | [`drain::machine`] (`orders.rs`) |
//! | whose cordon is it? | [`drain::machine`] (`cordon.rs`); the patch itself: [`cluster`] (`api.rs`) |
//! | when is the hold released, what does a cancel undo? | [`drain::machine`] (`finish.rs`) |
//! | how long will it take? | [`drain::eta`] |
//! | what would become of every VM? | [`drain::plan`]; its budgets: [`drain::budgets`] |
//! | what would go wrong in a drain? | [`doctor`] |
//! | what survives a crash? | [`drain::record`] |
//! | who runs the machine? | [`agent::driver`], with the traits of [`agent::ports`] |
//! | how is Kubernetes asked? | [`cluster`] |
//! | how is logind asked, who keeps the lock? | [`host`] (`ask.rs`, `hold.rs`) |
//! | our own D-Bus interface | [`bus`] |
//! | the commands, their output and exit codes | [`cli`] |
//! | configuration, its layers and keys | [`config`] |
//! | journal and log levels | [`telemetry`] |
//!
//! Vocabulary: *VMI*, *VMIM* (VirtualMachineInstanceMigration), *launcher pod*, *cordon*, *eviction*,
//! *evacuation* (KubeVirt's reaction to an eviction), *mark* (`status.evacuationNodeName`), *drain*, *hold*
//! (our delay lock on the host), *release*, *restore*, *deadline*, *net* (one of three ways a host goes down).

pub mod agent;
pub mod bus;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod doctor;
pub mod drain;
pub mod host;
pub mod telemetry;
