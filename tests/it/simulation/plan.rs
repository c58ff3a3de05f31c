//! What a seed stands for: the world, its faults and the orders of one run.

use super::rng::Rng;
use vmdrain_agent::drain::policy::{Consent, OnDeadline, OnForeignUncordon, Pacing};
use vmdrain_agent::drain::trigger::{Ending, Then, Trigger};
use vmdrain_agent::drain::world::Strategy;

/// How a kind of object can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eye {
    Open,
    Forbidden,
    Missing,
    /// Its list never comes back.
    Hanging,
    /// Fails for a while, again and again.
    Flaky,
}

/// One migration attempt of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Moves(u64),
    Fails(u64),
    Unschedulable,
}

/// One VM, and what will happen to it.
#[derive(Clone, Debug)]
pub(super) struct VmPlan {
    pub(super) strategy: Option<Strategy>,
    pub(super) migratable: bool,
    pub(super) memory: u64,
    pub(super) grace: u64,
    /// Its place in the order of stops.
    pub(super) stop_order: Option<i64>,
    /// Attempts before the one that moves it.
    pub(super) attempts: Vec<Attempt>,
    pub(super) moves_in: u64,
    /// When it appears on the node; 0: it is there from the start.
    pub(super) appears: u64,
    /// It comes by a migration from another node, which takes so long; or fails.
    pub(super) inbound: Option<(u64, bool)>,
    /// An External VM is taken away by its own controller after so long.
    pub(super) external: Option<u64>,
    /// A user's budget refuses until then.
    pub(super) budget_until: u64,
    /// Two budgets select its pod until then.
    pub(super) two_budgets_until: u64,
    /// Its namespace is being deleted; its VMI at that moment.
    pub(super) terminating: Option<u64>,
    /// Marked by somebody else at that moment.
    pub(super) marked_at: Option<u64>,
    /// Somebody clears its mark at that moment.
    pub(super) unmarked_at: Option<u64>,
    /// A user migrates it at that moment.
    pub(super) user_migration: Option<u64>,
    /// A user deletes it at that moment; it comes back under the same pod name.
    pub(super) deleted_at: Option<(u64, bool)>,
    /// A sidecar keeps the source pod.
    pub(super) sidecar: bool,
    /// Its objects cannot be read until then.
    pub(super) vmi_broken_until: u64,
    pub(super) pod_broken_until: u64,
    pub(super) hotplug: bool,
}

/// What people and the host do.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Trigger(Trigger),
    Shutdown,
    Vanish,
    /// `shutdown +…`.
    Schedule {
        within: u64,
    },
    /// `shutdown -c`.
    CallOff,
    Cancel {
        abort: bool,
    },
    Restore,
    Extend {
        by: u64,
    },
    Release(Ending),
    ForeignCordon,
    ForeignUncordon,
    Crash {
        rests: u64,
    },
}

/// How the host comes up again after it went down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boot {
    /// How long it is off.
    pub(super) off: u64,
    /// The kernel runs on, only user space is new.
    pub(super) soft: bool,
    /// systemd can say so.
    pub(super) told: bool,
    /// From up to kubelet's first report, and whether the Node was seen to be away.
    pub(super) kubelet: u64,
    pub(super) noticed: bool,
    /// From up to virt-handler's first report; it may take for ever.
    pub(super) handler: Option<u64>,
}

/// A whole run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) version: (u32, u32),
    pub(super) per_node: u32,
    pub(super) per_cluster: u32,
    pub(super) vmis: Eye,
    pub(super) migrations: Eye,
    pub(super) pdbs: Eye,
    pub(super) kubevirt: Eye,
    pub(super) cancel_right: bool,
    pub(super) cordon_right: bool,
    pub(super) another_machine: bool,
    pub(super) consent: Consent,
    pub(super) pacing: Pacing,
    pub(super) on_foreign_uncordon: OnForeignUncordon,
    pub(super) on_deadline: OnDeadline,
    /// virt-handler reports on this node.
    pub(super) handler: bool,
    pub(super) limit: u64,
    /// Until then requests and pictures may get lost or late.
    pub(super) storm_until: u64,
    pub(super) lag: u64,
    pub(super) latency: u64,
    pub(super) loss: u64,
    pub(super) api_down: Vec<(u64, u64)>,
    pub(super) webhook_down: Vec<(u64, u64)>,
    pub(super) logind_blocks: bool,
    pub(super) foreign_slots: Vec<(u64, u64)>,
    pub(super) vms: Vec<VmPlan>,
    pub(super) orders: Vec<(u64, Order)>,
    pub(super) restore: bool,
    /// The host's boots, in order; after the last one it stays off.
    pub(super) boots: Vec<Boot>,
    /// Orders of the time after the first boot, from its beginning.
    pub(super) later: Vec<(u64, Order)>,
}

const S: u64 = 1000;

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let full = rng.percent(60);
        let eye = |rng: &mut Rng| match (full, rng.below(20)) {
            (true, 1) => Eye::Flaky,
            (true, 2) => Eye::Hanging,
            (true, 3) => Eye::Missing,
            (true, 4..) => Eye::Open,
            (true, 0) | (false, _) => Eye::Forbidden,
        };
        let calm = rng.percent(30);
        let storm_until = if calm { 0 } else { rng.between(20, 400) * S };
        let count = if rng.percent(10) {
            0
        } else {
            rng.between(1, 8)
        };
        let mut plan = Self {
            version: rng.pick(&[(1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (1, 9)]),
            per_node: rng.pick(&[1, 2, 2, 2, 5]),
            per_cluster: rng.pick(&[2, 5, 5, 10]),
            vmis: eye(rng),
            migrations: eye(rng),
            pdbs: eye(rng),
            kubevirt: if rng.percent(90) { Eye::Open } else { eye(rng) },
            cancel_right: full && rng.percent(80),
            cordon_right: rng.percent(98),
            another_machine: rng.percent(2),
            consent: rng.pick(&[
                Consent::OnShutdown,
                Consent::OnShutdown,
                Consent::Always,
                Consent::Never,
            ]),
            pacing: rng.pick(&[Pacing::Slots, Pacing::Slots, Pacing::Slots, Pacing::All]),
            on_foreign_uncordon: rng.pick(&[
                OnForeignUncordon::Recordon,
                OnForeignUncordon::Recordon,
                OnForeignUncordon::Abort,
            ]),
            on_deadline: rng.pick(&[
                OnDeadline::ShutdownVms,
                OnDeadline::ShutdownVms,
                OnDeadline::Hold,
                OnDeadline::Proceed,
                OnDeadline::Abort,
            ]),
            handler: rng.percent(95),
            limit: rng.pick(&[30, 120, 600, 2700, 2700, 2700]) * S,
            storm_until,
            lag: rng.pick(&[20, 200, 3000]),
            latency: rng.pick(&[5, 50, 1500]),
            loss: rng.pick(&[0, 20, 100]),
            api_down: intervals(rng, 30, 200),
            webhook_down: intervals(rng, 25, 120),
            logind_blocks: rng.percent(10),
            foreign_slots: (0..rng.below(8))
                .map(|_| (rng.below(200) * S, rng.between(10, 200) * S))
                .collect(),
            vms: (0..count).map(|_| VmPlan::draw(rng)).collect(),
            orders: Vec::new(),
            restore: rng.percent(95),
            boots: Vec::new(),
            later: Vec::new(),
        };
        plan.orders = orders(rng);
        if rng.percent(60) {
            plan.boots = (0..rng.between(1, 3)).map(|_| Boot::draw(rng)).collect();
            plan.later = orders_after_boot(rng);
        }
        plan
    }
}

impl Boot {
    fn draw(rng: &mut Rng) -> Self {
        let kubelet = rng.pick(&[0, 2, 20, 300]) * S;
        Self {
            off: rng.pick(&[5, 60, 600]) * S,
            soft: rng.percent(25),
            told: rng.percent(90),
            kubelet: rng.below(kubelet + S),
            noticed: rng.percent(50),
            handler: rng.percent(90).then(|| {
                let most = rng.pick(&[5, 60, 2000]);
                rng.below(most * S)
            }),
        }
    }
}

/// What happens while a node waits to be given back, and after.
fn orders_after_boot(rng: &mut Rng) -> Vec<(u64, Order)> {
    let mut all = Vec::new();
    let mut add = |rng: &mut Rng, percent: u64, order: Order| {
        if rng.percent(percent) {
            let most = rng.pick(&[1000, 10_000, 100_000, 3_000_000]);
            all.push((rng.below(most), order));
        }
    };
    add(rng, 6, Order::Restore);
    add(rng, 10, Order::ForeignUncordon);
    add(rng, 10, Order::ForeignCordon);
    add(rng, 15, Order::Shutdown);
    add(rng, 5, Order::Vanish);
    add(rng, 10, Order::Trigger(Trigger::default()));
    add(rng, 5, Order::Cancel { abort: false });
    for _ in 0..3 {
        let rests = rng.pick(&[0, 500, 30_000]);
        add(rng, 25, Order::Crash { rests });
    }
    all
}

fn intervals(rng: &mut Rng, percent: u64, longest: u64) -> Vec<(u64, u64)> {
    if !rng.percent(percent) {
        return Vec::new();
    }
    (0..rng.between(1, 3))
        .map(|_| {
            let from = rng.below(300) * S;
            (from, from + rng.between(1, longest) * S)
        })
        .collect()
}

fn orders(rng: &mut Rng) -> Vec<(u64, Order)> {
    let trigger = Trigger {
        then: rng
            .percent(40)
            .then(|| rng.pick(&[Then::Reboot, Then::Poweroff])),
        reason: String::new(),
        deadline: rng
            .percent(30)
            .then(|| std::time::Duration::from_secs(rng.between(5, 900))),
        on_deadline: rng.percent(20).then(|| rng.pick(&OnDeadline::ALL)),
        allow_guest_shutdown: rng.percent(30),
        keep_cordoned: rng.percent(15),
        // These plans have VMs and nothing else.
        scope: None,
        shutdown_vms: rng.percent(4),
        stop_job: false,
        signal: String::new(),
    };
    let mut all = Vec::new();
    if rng.percent(8) {
        all.push((0, Order::ForeignCordon));
    }
    let by_shutdown = rng.percent(50);
    all.push((
        S,
        if by_shutdown {
            Order::Shutdown
        } else if rng.percent(15) {
            Order::Schedule { within: 300_000 }
        } else {
            Order::Trigger(trigger.clone())
        },
    ));
    let later = |rng: &mut Rng| rng.pick(&[100, 1000, 10_000, 60_000, 600_000]);
    let mut add = |rng: &mut Rng, percent: u64, order: Order| {
        if rng.percent(percent) {
            let most = later(rng);
            all.push((S + rng.below(most), order));
        }
    };
    add(rng, if by_shutdown { 3 } else { 15 }, Order::Shutdown);
    add(rng, 8, Order::Shutdown);
    add(rng, 10, Order::Vanish);
    let within = rng.pick(&[500, 20_000, 200_000, 2_000_000]);
    add(rng, 12, Order::Schedule { within });
    add(rng, 5, Order::Schedule { within: within / 3 });
    add(rng, 10, Order::CallOff);
    add(rng, 15, Order::Cancel { abort: false });
    add(rng, 8, Order::Cancel { abort: true });
    add(rng, 4, Order::Restore);
    let by = rng.pick(&[1000, 60_000, 600_000]);
    add(rng, 6, Order::Extend { by });
    let ending = rng.pick(&[Ending::Policy, Ending::ShutdownVms, Ending::Proceed]);
    add(rng, 5, Order::Release(ending));
    add(rng, 3, Order::Release(ending));
    add(rng, 4, Order::Trigger(trigger.clone()));
    add(rng, 6, Order::ForeignUncordon);
    add(rng, 3, Order::ForeignCordon);
    for _ in 0..3 {
        let rests = rng.pick(&[0, 500, 1000, 30_000]);
        add(rng, 12, Order::Crash { rests });
    }
    all
}

impl VmPlan {
    fn draw(rng: &mut Rng) -> Self {
        let strategy = rng.pick(&[
            Some(Strategy::LiveMigrate),
            Some(Strategy::LiveMigrate),
            Some(Strategy::LiveMigrate),
            Some(Strategy::LiveMigrateIfPossible),
            Some(Strategy::None),
            Some(Strategy::External),
            None,
        ]);
        let maybe = |rng: &mut Rng, percent: u64| {
            rng.percent(percent).then(|| {
                let most = rng.pick(&[2_000, 30_000, 300_000]);
                rng.below(most)
            })
        };
        let attempts = if rng.percent(20) {
            let count = rng.between(1, 2);
            (0..count)
                .map(|_| match rng.below(4) {
                    0 => Attempt::Unschedulable,
                    _ => Attempt::Fails(rng.between(1, 20) * S),
                })
                .collect()
        } else {
            Vec::new()
        };
        Self {
            strategy,
            migratable: rng.percent(85),
            memory: rng.between(1, 64) << 30,
            grace: rng.between(0, 60) * S,
            stop_order: rng.percent(15).then(|| rng.pick(&[-1, 5, 10])),
            attempts,
            moves_in: rng.between(1, 60) * S,
            appears: if rng.percent(15) {
                maybe(rng, 100).unwrap_or(0) + 1
            } else {
                0
            },
            inbound: rng
                .percent(12)
                .then(|| (rng.between(2, 90) * S, rng.percent(25))),
            external: rng.percent(70).then(|| rng.between(1, 60) * S),
            budget_until: if rng.percent(15) {
                rng.pick(&[60, 300, 100_000]) * S
            } else {
                0
            },
            two_budgets_until: if rng.percent(5) {
                rng.pick(&[60, 100_000]) * S
            } else {
                0
            },
            terminating: rng.percent(4).then(|| rng.between(1, 300) * S),
            marked_at: maybe(rng, 8),
            unmarked_at: maybe(rng, 5),
            user_migration: maybe(rng, 6),
            deleted_at: maybe(rng, 6).map(|at| (at, rng.percent(50))),
            sidecar: rng.percent(5),
            vmi_broken_until: if rng.percent(6) {
                rng.pick(&[30, 100_000]) * S
            } else {
                0
            },
            pod_broken_until: if rng.percent(4) {
                rng.pick(&[30, 100_000]) * S
            } else {
                0
            },
            hotplug: rng.percent(10),
        }
    }
}
