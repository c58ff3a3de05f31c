//! Tables: one VM, one picture, one verdict.

use super::*;
use crate::drain::action::EffectId;
use crate::drain::answer::Answer;
use crate::drain::budgets::Class;
use crate::drain::world::{Compute, ObjectRef, PodPhase};

/// A VM of this node that runs and can migrate, in its pod.
fn pod() -> PodView {
    PodView {
        pod: ObjectRef {
            namespace: "vms".into(),
            name: "virt-launcher-a".into(),
            uid: "pod".into(),
        },
        phase: PodPhase::Running,
        compute: Compute::Running,
        vmi_node_label: Some("n1".into()),
        ..PodView::default()
    }
}

fn vmi() -> VmiView {
    VmiView {
        phase: VmiPhase::Running,
        node: "n1".into(),
        live_migratable: Some(true),
        not_migratable: "DisksNotLiveMigratable".into(),
        strategy: Some(Strategy::LiveMigrate),
        ..VmiView::default()
    }
}

fn vmim(uid: &str, phase: MigrationPhase) -> MigrationView {
    let mut m = MigrationView {
        phase,
        ..MigrationView::default()
    };
    m.migration.uid = uid.into();
    m
}

struct Setting {
    pod: Option<PodView>,
    vmi: Option<VmiView>,
    vmis_seen: bool,
    migrations: Vec<MigrationView>,
    track: Track,
    consent: Result<(), Consentless>,
    strategy: Option<Strategy>,
    pdbs: Vec<PdbView>,
    now: u64,
    stop: Option<StopWhy>,
    handler: Result<(), HandlerDoubt>,
}

/// The plain case of the full tier, an hour into the boot.
fn full() -> Setting {
    Setting {
        pod: Some(pod()),
        vmi: Some(vmi()),
        vmis_seen: true,
        migrations: Vec::new(),
        track: Track {
            pod: pod().pod,
            seen_here: true,
            ..Track::default()
        },
        consent: Ok(()),
        strategy: Some(Strategy::LiveMigrate),
        pdbs: Vec::new(),
        now: 3_600_000,
        stop: None,
        handler: Ok(()),
    }
}

fn base() -> Setting {
    let mut s = full();
    s.vmi = None;
    s.vmis_seen = false;
    s.track.seen_here = false;
    s
}

impl Setting {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn vmi(self, change: impl FnOnce(&mut VmiView)) -> Self {
        self.with(|s| change(s.vmi.as_mut().unwrap()))
    }

    fn pod(self, change: impl FnOnce(&mut PodView)) -> Self {
        self.with(|s| change(s.pod.as_mut().unwrap()))
    }

    /// The last answer came a moment ago and asks for a long pause.
    fn answered(self, answer: Answer) -> Self {
        self.with(|s| {
            s.track.last = Some((answer.clone(), Mono(s.now - 1000)));
            s.track.class = Some(answer);
            s.track.not_before = Mono(s.now + 20_000);
        })
    }

    fn verdict(&self) -> Verdict {
        let timing = Timing::default();
        let migrations: Vec<&MigrationView> = self.migrations.iter().collect();
        let case = Case {
            pod: self.pod.as_ref(),
            stop: self.stop.as_ref(),
            vmi: self.vmi.as_ref(),
            vmis_seen: self.vmis_seen,
            vmi_malformed: false,
            migrations: &migrations,
            track: &self.track,
        };
        let frame = Frame {
            node: "n1",
            strategy: self.strategy,
            consent: self.consent,
            handler: self.handler,
            pdbs: &self.pdbs,
            pods: &[],
            vmis: &[],
            timing: &timing,
            now: Mono(self.now),
        };
        super::verdict(&case, &frame)
    }

    fn is(&self, expected: &Verdict) {
        assert_eq!(&self.verdict(), expected);
    }

    fn waits(&self, expected: Wait) {
        self.is(&Verdict::Wait(expected));
    }

    fn blocked(&self, expected: Blocked) {
        self.is(&Verdict::Blocked(expected));
    }
}

#[test]
fn what_is_no_launcher_pod_is_ignored() {
    for setting in [full, base] {
        let hotplug = setting().pod(|p| p.kind = PodKind::Hotplug);
        hotplug.is(&Verdict::Ignore(Ignore::Hotplug));
        let helper = setting().pod(|p| p.kind = PodKind::Provisioning);
        helper.is(&Verdict::Ignore(Ignore::Provisioning));
    }
}

#[test]
fn a_pod_without_a_guest_is_gone_whatever_else_is_seen() {
    for setting in [full, base] {
        for phase in [PodPhase::Succeeded, PodPhase::Failed] {
            setting().pod(|p| p.phase = phase).is(&Verdict::Gone);
        }
        let sidecar = setting().pod(|p| p.compute = Compute::Terminated);
        sidecar.is(&Verdict::Gone);
    }
}

#[test]
fn strategy_and_migratability_choose_the_lane() {
    use Strategy::{External, LiveMigrate, LiveMigrateIfPossible, None as Stop};
    let migrate = Verdict::Evict(Lane::Migrate);
    let shutdown = Verdict::Evict(Lane::Shutdown);
    let external = Verdict::Evict(Lane::External);
    let not = Verdict::Blocked(Blocked::NotMigratable {
        reason: "DisksNotLiveMigratable".into(),
    });
    for (strategy, migratable, expected) in [
        (LiveMigrate, true, &migrate),
        (LiveMigrate, false, &not),
        (LiveMigrateIfPossible, true, &migrate),
        (LiveMigrateIfPossible, false, &shutdown),
        (Stop, true, &shutdown),
        (Stop, false, &shutdown),
        (External, true, &external),
        (External, false, &external),
    ] {
        let own = full().vmi(|v| {
            v.strategy = Some(strategy);
            v.live_migratable = Some(migratable);
        });
        own.is(expected);
        let from_the_cluster = full()
            .vmi(|v| {
                v.strategy = None;
                v.live_migratable = Some(migratable);
            })
            .with(|s| s.strategy = Some(strategy));
        from_the_cluster.is(expected);
    }
}

#[test]
fn a_shutdown_needs_consent_in_both_tiers() {
    for (consent, expected) in [
        (Consentless::NotAsked, Blocked::NeedsConsent),
        (Consentless::Never, Blocked::ConsentNever),
    ] {
        let seen = full()
            .vmi(|v| v.strategy = Some(Strategy::None))
            .with(|s| s.consent = Err(consent));
        seen.blocked(expected.clone());
        let asked = base()
            .answered(Answer::Granted)
            .with(|s| s.consent = Err(consent));
        asked.blocked(expected);
    }
}

#[test]
fn a_young_vm_gets_time_to_become_migratable() {
    let starting = full().vmi(|v| {
        v.phase = VmiPhase::Starting;
        v.live_migratable = None;
    });
    starting.waits(Wait::Starting);
    let running = |now| {
        full()
            .vmi(|v| v.live_migratable = None)
            .with(|s| s.now = now)
    };
    running(29_000).waits(Wait::Starting);
    assert!(matches!(
        running(31_000).verdict(),
        Verdict::Blocked(Blocked::NotMigratable { .. })
    ));
    let no_guest_yet = base()
        .pod(|p| p.compute = Compute::Waiting)
        .with(|s| s.now = 1000);
    no_guest_yet.waits(Wait::Starting);
}

#[test]
fn a_marked_vm_says_how_far_it_is() {
    let marked = || {
        full()
            .vmi(|v| v.mark = Some("n1".into()))
            .with(|s| s.track.ours = true)
    };
    marked().waits(Wait::Marked);
    marked()
        .with(|s| s.track.ours = false)
        .waits(Wait::MarkedByOthers);
    for (phase, expected) in [
        (MigrationPhase::New, Wait::InQueue),
        (MigrationPhase::Pending, Wait::InQueue),
        (MigrationPhase::Scheduling, Wait::Scheduling),
        (
            MigrationPhase::Scheduled,
            Wait::Migrating { to: String::new() },
        ),
        (
            MigrationPhase::PreparingTarget,
            Wait::Migrating { to: String::new() },
        ),
        (
            MigrationPhase::TargetReady,
            Wait::Migrating { to: String::new() },
        ),
        (
            MigrationPhase::Running,
            Wait::Migrating { to: String::new() },
        ),
        (
            MigrationPhase::Unknown,
            Wait::Migrating { to: String::new() },
        ),
    ] {
        marked()
            .with(|s| s.migrations.push(vmim("m", phase)))
            .waits(expected);
    }
    let named = marked()
        .vmi(|v| {
            v.migration = Some(MigrationState {
                migration_uid: "m".into(),
                target_node: "n2".into(),
                started: true,
                ..MigrationState::default()
            });
        })
        .with(|s| s.migrations.push(vmim("m", MigrationPhase::Running)));
    named.waits(Wait::Migrating { to: "n2".into() });
    let external = marked().vmi(|v| v.strategy = Some(Strategy::External));
    external.waits(Wait::External);
}

#[test]
fn failures_of_this_drain_are_counted_and_older_ones_are_not() {
    let failed = |attempts: &[&str]| {
        let attempts = attempts.iter().map(ToString::to_string).collect();
        full().vmi(|v| v.mark = Some("n1".into())).with(|s| {
            let mut first = vmim("old", MigrationPhase::Failed);
            first.failure_reason = "yesterday".into();
            let mut second = vmim("new", MigrationPhase::Failed);
            second.failure_reason = "today".into();
            s.migrations = vec![first, second, vmim("next", MigrationPhase::Pending)];
            s.track.attempts = attempts;
        })
    };
    failed(&[]).waits(Wait::InQueue);
    failed(&["new", "next"]).waits(Wait::Backoff {
        failed: 1,
        why: "today".into(),
    });
}

#[test]
fn a_mark_on_a_vm_that_cannot_migrate_is_no_progress() {
    let stuck = full().vmi(|v| {
        v.mark = Some("n1".into());
        v.live_migratable = Some(false);
    });
    assert!(matches!(
        stuck.verdict(),
        Verdict::Blocked(Blocked::NotMigratable { .. })
    ));
    let on_its_way = stuck.with(|s| s.migrations.push(vmim("m", MigrationPhase::Running)));
    on_its_way.waits(Wait::Migrating { to: String::new() });
}

#[test]
fn a_migration_of_somebody_else_is_waited_for() {
    let foreign = full().vmi(|v| {
        v.migration = Some(MigrationState {
            started: true,
            target_node: "n3".into(),
            ..MigrationState::default()
        });
    });
    foreign.waits(Wait::Migrating { to: "n3".into() });
    for (ended, evicts) in [(false, false), (true, true)] {
        let state = full().vmi(|v| {
            v.migration = Some(MigrationState {
                started: true,
                ended,
                failed: ended,
                ..MigrationState::default()
            });
        });
        let verdict = state.verdict();
        assert_eq!(
            verdict == Verdict::Evict(Lane::Migrate),
            evicts,
            "{verdict:?}"
        );
    }
}

#[test]
fn a_vm_that_has_just_arrived_is_let_be_for_a_moment_only() {
    let marked = |s: &mut Setting| s.track.class = Some(Answer::Marked);
    for setting in [full(), base().with(marked)] {
        let settle = u64::try_from(Timing::default().settle.as_millis()).unwrap();
        let arrived = |ago| move |s: &mut Setting| s.track.arrived = Some(Mono(s.now - ago));
        let young = setting.with(arrived(settle - 1));
        young.waits(Wait::Settling);
        let old = young.with(arrived(settle));
        assert_eq!(old.verdict(), Verdict::Evict(Lane::Migrate));
        // What does not migrate has no pod elsewhere that matters.
        let stays = old.with(arrived(1)).with(|s| {
            s.track.class = Some(Answer::Granted);
            if let Some(vmi) = &mut s.vmi {
                vmi.strategy = Some(Strategy::None);
            }
        });
        assert_eq!(stays.verdict(), Verdict::Evict(Lane::Shutdown));
    }
}

#[test]
fn a_vm_that_is_not_here_is_arriving_left_over_or_gone() {
    let arriving = full().vmi(|v| {
        v.node = "n2".into();
        v.target_node_label = Some("n1".into());
    });
    arriving.waits(Wait::Arriving { from: "n2".into() });
    full().vmi(|v| v.node = "n2".into()).waits(Wait::LeftOver);
    let gone = || full().with(|s| s.vmi = None);
    gone().waits(Wait::VmiGone);
    gone()
        .with(|s| s.track.accepted = Some(Mono(1)))
        .waits(Wait::LeftOver);
    let unseen = gone().with(|s| {
        s.track.seen_here = false;
        s.now = 100;
    });
    unseen.waits(Wait::VmiUnseen);
    let target = gone()
        .pod(|p| {
            p.migration_job = Some("m".into());
            p.vmi_node_label = Some("n2".into());
        })
        .with(|s| s.track.seen_here = false);
    target.waits(Wait::Arriving { from: "n2".into() });
    let no_pod = full().with(|s| s.pod = None);
    no_pod.waits(Wait::PodUnseen);
    no_pod
        .vmi(|v| v.node = "n2".into())
        .waits(Wait::Arriving { from: "n2".into() });
}

#[test]
fn the_base_tier_asks_first_and_then_knows_the_lane() {
    base().is(&Verdict::Ask);
    let due = |answer: Answer| {
        base()
            .answered(answer)
            .with(|s| s.track.not_before = Mono(0))
    };
    due(Answer::Marked).is(&Verdict::Evict(Lane::Migrate));
    due(Answer::Granted).is(&Verdict::Evict(Lane::Shutdown));
    for refusal in [
        Answer::NotMigratable,
        Answer::SeveralBudgets,
        Answer::Throttled,
        Answer::NotTheActivePod,
        Answer::VmiGone,
    ] {
        due(refusal).is(&Verdict::Ask);
    }
    let was_inbound = base().pod(|p| p.migration_job = Some("m".into()));
    was_inbound.is(&Verdict::Ask);
}

#[test]
fn every_answer_has_its_meaning_until_it_is_asked_again() {
    let blocked = |answer: Answer, expected: Blocked| base().answered(answer).blocked(expected);
    let waits = |answer: Answer, expected: Wait| base().answered(answer).waits(expected);
    blocked(
        Answer::NotMigratable,
        Blocked::NotMigratable {
            reason: String::new(),
        },
    );
    blocked(Answer::Throttled, Blocked::Throttled);
    blocked(Answer::Denied("no".into()), Blocked::Denied("no".into()));
    blocked(
        Answer::SeveralBudgets,
        Blocked::SeveralBudgets { names: vec![] },
    );
    waits(Answer::InProgress, Wait::MarkedByOthers);
    waits(Answer::NotTheActivePod, Wait::LeftOver);
    waits(Answer::VmiGone, Wait::VmiGone);
    waits(Answer::Gone, Wait::PodGone);
    waits(Answer::NamespaceTerminating, Wait::NamespaceTerminating);
    for answer in [
        Answer::WebhookDown,
        Answer::Unauthorized,
        Answer::Unexpected("HTTP 503: x".into()),
        Answer::KubeVirtFailed("kubevirt failed marking".into()),
    ] {
        let verdict = base().answered(answer).verdict();
        assert!(matches!(verdict, Verdict::Wait(Wait::Retry { .. })));
    }
    base()
        .answered(Answer::HotplugPod)
        .is(&Verdict::Ignore(Ignore::Hotplug));
}

#[test]
fn budgets_are_diagnosed() {
    let refused = |sync_failed: Option<&str>| {
        full()
            .vmi(|v| v.strategy = Some(Strategy::None))
            .answered(Answer::Budget {
                name: "b1".into(),
                says: "still being processed".into(),
            })
            .with(|s| {
                let mut pdb = PdbView {
                    sync_failed: sync_failed.map(Into::into),
                    selects: vec!["pod".into()],
                    ..PdbView::default()
                };
                pdb.pdb.name = "b1".into();
                s.pdbs = vec![pdb];
            })
    };
    let never = Class::NeverSatisfiable {
        why: "no scale subresource".into(),
    };
    for (sync_failed, class) in [(None, Class::Young), (Some("no scale subresource"), never)] {
        refused(sync_failed).blocked(Blocked::Budget {
            name: "b1".into(),
            says: "still being processed".into(),
            class: Some(class),
        });
    }
    let elsewhere = |s: &mut Setting| s.pdbs[0].selects = vec!["another pod".into()];
    refused(Some("x")).with(elsewhere).blocked(Blocked::Budget {
        name: "b1".into(),
        says: "still being processed".into(),
        class: None,
    });
    let two = refused(None).answered(Answer::SeveralBudgets);
    two.blocked(Blocked::SeveralBudgets {
        names: vec!["b1".into()],
    });
    let kubevirts_own = base().answered(Answer::Budget {
        name: "kubevirt-disruption-budget-abcde".into(),
        says: String::new(),
    });
    let verdict = kubevirts_own.verdict();
    assert!(matches!(verdict, Verdict::Wait(Wait::Retry { .. })));
}

#[test]
fn what_is_under_way_is_waited_for() {
    let asking = full().with(|s| s.track.in_flight = Some((EffectId::default(), false)));
    asking.waits(Wait::Asking);
    let granted = full().with(|s| s.track.granted = Some(Mono(1)));
    granted.waits(Wait::ShuttingDown);
    full().pod(|p| p.deleting = true).waits(Wait::ShuttingDown);
    full().vmi(|v| v.deleting = true).waits(Wait::ShuttingDown);
    full()
        .vmi(|v| v.phase = VmiPhase::Succeeded)
        .waits(Wait::ShuttingDown);
}

/// Every sentence stands by itself: it names its matter, has no dot at its end and no empty brackets.
#[test]
fn every_sentence_reads_well() {
    let text = || "x".to_owned();
    let waits = [
        Wait::Marked,
        Wait::MarkedByOthers,
        Wait::InQueue,
        Wait::Backoff {
            failed: 2,
            why: String::new(),
        },
        Wait::Backoff {
            failed: 2,
            why: text(),
        },
        Wait::HeldBack(text()),
        Wait::Scheduling,
        Wait::Migrating { to: String::new() },
        Wait::Migrating { to: text() },
        Wait::MigratingUnseen,
        Wait::ForeignMigration,
        Wait::Arriving {
            from: String::new(),
        },
        Wait::Arriving { from: text() },
        Wait::LeftOver,
        Wait::ShuttingDown,
        Wait::Starting,
        Wait::VmiUnseen,
        Wait::VmiGone,
        Wait::PodGone,
        Wait::NamespaceTerminating,
        Wait::External,
        Wait::Asking,
        Wait::Retry { why: text() },
        Wait::Slot {
            ahead: 1,
            used: 2,
            limit: 2,
        },
        Wait::ClusterSlots { limit: 5 },
        Wait::PodUnseen,
        Wait::Scheduled,
        Wait::Cordon { why: String::new() },
        Wait::Cordon { why: text() },
    ];
    let budget = |name: &str, class| Blocked::Budget {
        name: name.into(),
        says: text(),
        class,
    };
    let blocked = [
        Blocked::NotMigratable {
            reason: String::new(),
        },
        Blocked::NotMigratable { reason: text() },
        Blocked::NeedsConsent,
        Blocked::ConsentNever,
        budget("b1", Some(Class::NoRoom)),
        budget("b1", None),
        budget("", None),
        Blocked::SeveralBudgets { names: vec![] },
        Blocked::SeveralBudgets {
            names: vec![text(), text()],
        },
        Blocked::Throttled,
        Blocked::Denied(text()),
    ];
    let all = waits.iter().map(ToString::to_string);
    let all = all.chain(blocked.iter().map(ToString::to_string));
    for says in all {
        let bad = says.ends_with('.') || says.contains("()") || says.contains("  ");
        assert!(says.len() > 8 && !bad, "{says:?}");
    }
}

#[test]
fn an_eviction_that_ends_the_guest_needs_virt_handler() {
    let doubt = HandlerDoubt::NotSchedulable;
    let stops = || full().vmi(|v| v.strategy = Some(Strategy::None));
    stops().is(&Verdict::Evict(Lane::Shutdown));
    let dead = |s: Setting| s.with(|s| s.handler = Err(doubt));
    dead(stops()).blocked(Blocked::NoHandler(doubt));
    // A budget's refusal is no reason to ask again meanwhile.
    let refused = stops().answered(Answer::SeveralBudgets);
    dead(refused).blocked(Blocked::NoHandler(doubt));
    // Base tier: the dry run has told what an eviction would do.
    let granted = || {
        base()
            .answered(Answer::Granted)
            .with(|s| s.track.not_before = Mono(0))
    };
    granted().is(&Verdict::Evict(Lane::Shutdown));
    dead(granted()).blocked(Blocked::NoHandler(doubt));
    // Without consent that is what is said.
    let unasked = stops().with(|s| s.consent = Err(Consentless::NotAsked));
    dead(unasked).blocked(Blocked::NeedsConsent);
    // A migration is KubeVirt's to try again.
    dead(full()).is(&Verdict::Evict(Lane::Migrate));
}
