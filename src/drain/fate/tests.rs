use super::*;

fn facts(course: Course, owner: &Owner, way: Way) -> Facts<'_> {
    Facts {
        course,
        reason: "DisksNotLiveMigratable",
        owner,
        way,
        consent: Ok(()),
        handler: Ok(()),
        gives_up: false,
        host_goes: false,
    }
}

fn vm(run: RunStrategy) -> Owner {
    Owner::Vm(Some(run))
}

#[test]
fn what_an_eviction_does_follows_strategy_and_condition() {
    use Course::{Marks, Migrates, Refused, Stops, Unknown};
    use Strategy::{External, LiveMigrate, LiveMigrateIfPossible, None as Never};
    // Strategy × (migratable, not migratable, condition missing).
    let table = [
        (Some(Never), [Stops, Stops, Stops]),
        (Some(LiveMigrate), [Migrates, Refused, Unknown]),
        (Some(LiveMigrateIfPossible), [Migrates, Stops, Unknown]),
        (Some(External), [Marks, Marks, Marks]),
        (None, [Unknown, Unknown, Unknown]),
    ];
    for (strategy, expected) in table {
        let found = [Some(true), Some(false), None].map(|can| course(strategy, can));
        assert_eq!(found, expected, "{strategy:?}");
    }
}

#[test]
fn a_stopped_guest_by_its_owner() {
    use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};
    let never_again = [
        (vm(RerunOnFailure), Again::AfterRestore(RerunOnFailure)),
        (vm(Manual), Again::AfterRestore(Manual)),
        (Owner::Pool(Some(Manual)), Again::AfterRestore(Manual)),
        (vm(Once), Again::Once),
        (vm(Halted), Again::Halted),
        (Owner::Vm(None), Again::Unseen),
        (Owner::Unseen, Again::Unseen),
        (Owner::Standalone, Again::Standalone),
        (Owner::Other("Job".into()), Again::Other("Job".into())),
    ];
    for way in [Way::Migrate, Way::Shutdown] {
        for (owner, again) in never_again.clone() {
            let found = fate(&facts(Course::Stops, &owner, way));
            assert_eq!(found, Fate::ShutDown { again }, "{owner:?} {way:?}");
        }
    }
    for owner in [vm(Always), Owner::Pool(Some(Always)), Owner::ReplicaSet] {
        for way in [Way::Migrate, Way::Shutdown, Way::Restart] {
            let found = fate(&facts(Course::Stops, &owner, way));
            assert_eq!(found, Fate::RestartedElsewhere { by: owner.clone() });
        }
    }
}

#[test]
fn restart_starts_at_once_what_can_be_started() {
    for run in [RunStrategy::RerunOnFailure, RunStrategy::Manual] {
        let owner = vm(run);
        let found = fate(&facts(Course::Migrates, &owner, Way::Restart));
        assert_eq!(
            found,
            Fate::ShutDown {
                again: Again::AtOnce(run)
            }
        );
    }
    let once = fate(&facts(
        Course::Migrates,
        &vm(RunStrategy::Once),
        Way::Restart,
    ));
    assert_eq!(once, Fate::ShutDown { again: Again::Once });
}

#[test]
fn the_policy_migrate_is_kubevirts_answer() {
    let owner = vm(RunStrategy::Always);
    let of = |course| fate(&facts(course, &owner, Way::Migrate));
    assert_eq!(of(Course::Migrates), Fate::Migrates);
    assert_eq!(of(Course::Marks), Fate::External);
    assert_eq!(of(Course::Unknown), Fate::Unknown);
    assert_eq!(
        of(Course::Refused).to_string(),
        "cannot be live-migrated: DisksNotLiveMigratable"
    );
    let mut given_up = facts(Course::Refused, &owner, Way::Migrate);
    given_up.gives_up = true;
    assert_eq!(fate(&given_up).word(), "restarted_elsewhere");
}

#[test]
fn no_guest_is_stopped_without_consent() {
    let owner = vm(RunStrategy::Always);
    let ways = [
        (Course::Stops, Way::Migrate),
        (Course::Migrates, Way::Shutdown),
        (Course::Migrates, Way::Restart),
    ];
    for (course, way) in ways {
        for (none, blocked) in [
            (Consentless::NotAsked, Blocked::NeedsConsent),
            (Consentless::Never, Blocked::ConsentNever),
        ] {
            let mut facts = facts(course, &owner, way);
            facts.consent = Err(none);
            assert_eq!(fate(&facts), Fate::Blocked(blocked));
        }
        let mut facts = facts(course, &owner, way);
        facts.consent = Err(Consentless::Scheduled);
        assert!(fate(&facts).stops_guest(), "when the time has come");
    }
}

#[test]
fn left_alone_keeps_running_unless_the_host_goes() {
    let mut facts = facts(Course::Migrates, &Owner::Standalone, Way::Leave);
    assert_eq!(
        fate(&facts),
        Fate::Left {
            end: LeftEnd::Stays
        }
    );
    facts.host_goes = true;
    assert_eq!(
        fate(&facts),
        Fate::Left {
            end: LeftEnd::StopsLast
        }
    );
    facts.consent = Err(Consentless::Never);
    assert_eq!(
        fate(&facts),
        Fate::Left {
            end: LeftEnd::Killed
        }
    );
}

#[test]
fn no_guest_is_stopped_without_virt_handler() {
    let owner = vm(RunStrategy::Always);
    let doubt = HandlerDoubt::NotSchedulable;
    for (course, way) in [
        (Course::Stops, Way::Migrate),
        (Course::Migrates, Way::Shutdown),
        (Course::Refused, Way::Restart),
    ] {
        let mut facts = facts(course, &owner, way);
        facts.handler = Err(doubt);
        let blocked = fate(&facts);
        assert_eq!(blocked, Fate::Blocked(Blocked::NoHandler(doubt)));
        // What is not allowed is said first.
        facts.consent = Err(Consentless::Never);
        assert_eq!(fate(&facts), Fate::Blocked(Blocked::ConsentNever));
    }
    let mut facts = facts(Course::Migrates, &owner, Way::Migrate);
    facts.handler = Err(doubt);
    assert_eq!(
        fate(&facts),
        Fate::Migrates,
        "KubeVirt tries, and tries again"
    );
}
