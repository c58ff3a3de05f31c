//! Down and up again: what a boot finds, and that the node is given back once.

use std::time::Duration;

use anyhow::ensure;

use super::delay::TAIL;
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context, Debian};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "25",
        name: "reboot_and_uncordon",
        on: ALL,
        limit: 120,
        run: reboot,
    },
    Case {
        number: "25",
        name: "a_crash_while_giving_back",
        on: ALL,
        limit: 120,
        run: crash_while_restoring,
    },
    Case {
        number: "25",
        name: "kept_cordoned_until_somebody_restores",
        on: ALL,
        limit: 120,
        run: kept,
    },
    Case {
        number: "25",
        name: "a_foreign_cordon_stays",
        on: &[Debian::Thirteen],
        limit: 120,
        run: foreign_cordon,
    },
    Case {
        number: "25",
        name: "a_damaged_state_file",
        on: &[Debian::Thirteen],
        limit: 60,
        run: damaged_state,
    },
];

/// From PID 1 to the uncordon: virt-handler of the played cluster needs 5 s after its host.
const GIVEN_BACK: Duration = Duration::from_secs(25);
/// virt-handler of the played cluster is there 5 s after its host, which is noticed a moment later than it happens.
const HANDLER_NEEDS: Duration = Duration::from_secs(4);
/// Nothing more happens within this time.
const QUIET: Duration = Duration::from_secs(3);

fn quick() -> Plan {
    Plan {
        story: crate::plan::vms("migration_time = \"400ms\""),
        ..Plan::moving(0.0)
    }
}

/// Down by `reboot`, up, given back. Answers how long after PID 1 the node was free.
fn once(scene: &mut Scene) -> anyhow::Result<(String, Duration)> {
    let before = scene.cluster.sight().uncordons();
    let typed = scene.types_well(&["systemctl", "reboot"])?.typed;
    let down = scene.wait_down(Duration::from_secs(30))?;
    ensure!(down.reboot, "the host is off");
    let tail = scene.went_empty(&down, TAIL)?;
    ensure!(
        scene.cluster.sight().uncordons() == before,
        "the node was given back before the boot"
    );
    let booted = scene.now();
    scene.boot_again()?;
    scene.wait_held()?;
    let free = scene.wait_uncordoned(GIVEN_BACK)?;
    let ready = scene.cluster.node();
    ensure!(
        ready["metadata"]["labels"]["kubevirt.io/schedulable"] == "true",
        "the node was given back before it could take a VM"
    );
    ensure!(
        ready["metadata"]["annotations"]["vmdrain.io/cordon"].is_null(),
        "our marker is still on the node"
    );
    let took = between(booted, free);
    Ok((
        format!("{tail}, down {}", seconds(between(typed, down.at))),
        took,
    ))
}

/// Nobody touches the node any more.
fn quiet(scene: &Scene, uncordons: usize) -> anyhow::Result<()> {
    let pause = scene.now() + QUIET;
    scene.patience.until(pause)?;
    let sight = scene.cluster.sight();
    ensure!(
        sight.uncordons() == uncordons && !sight.is_cordoned(),
        "the node was touched again: {:?}",
        sight.cordons
    );
    Ok(())
}

/// Two whole cycles; a restart of the agent after them finds nothing to do any more.
fn reboot(context: &Context) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        let (down, first) = once(scene)?;
        scene.cluster.move_back("db")?;
        scene.wait("the VM is back", Duration::from_secs(20), || {
            Ok(scene.cluster.sight().guests == 1 && scene.cluster.settled("db"))
        })?;
        let (_, second) = once(scene)?;
        ensure!(
            scene.cluster.sight().uncordons() == 2,
            "not given back once for each boot"
        );
        scene.types_well(&["systemctl", "restart", "vmdrain-agent"])?;
        scene.wait_held()?;
        quiet(scene, 2)?;
        Ok(format!(
            "{down}; given back {}, {} after PID 1",
            seconds(first),
            seconds(second)
        ))
    })
}

/// Longer than the node would need to be given back.
const WOULD_BE_BACK: Duration = Duration::from_secs(9);

/// The node is still cordoned after the boot, and longer than it would take to give it back.
fn stays_cordoned(scene: &mut Scene) -> anyhow::Result<()> {
    let down = scene.wait_down(Duration::from_secs(30))?;
    scene.went_empty(&down, TAIL)?;
    scene.boot_again()?;
    scene.wait_held()?;
    let pause = scene.now() + WOULD_BE_BACK;
    scene.patience.until(pause)?;
    let sight = scene.cluster.sight();
    ensure!(
        sight.is_cordoned() && sight.uncordons() == 0,
        "the node was given back: {:?}",
        sight.cordons
    );
    Ok(())
}

/// `--keep-cordoned` survives the boot; `restore` gives the node back by hand.
fn kept(context: &Context) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        scene.types(&["vmdrain-agent", "reboot", "--keep-cordoned"])?;
        stays_cordoned(scene)?;
        let typed = scene.types_well(&["vmdrain-agent", "restore"])?.typed;
        let free = scene.wait_uncordoned(GIVEN_BACK)?;
        Ok(format!(
            "stayed cordoned; restored in {}",
            seconds(between(typed, free))
        ))
    })
}

/// Cordoned by a person before the shutdown: not ours to give back.
fn foreign_cordon(context: &Context) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        scene.cluster.cordon_by_somebody()?;
        scene.types_well(&["systemctl", "reboot"])?;
        stays_cordoned(scene)?;
        Ok("stayed cordoned".into())
    })
}

/// A record that cannot be read is set aside and said; the host is held all the same.
fn damaged_state(context: &Context) -> anyhow::Result<String> {
    let plan = quick().file(
        "/var/lib/vmdrain-agent/state.json",
        "{\"version\": 1, \"drain\": tru",
    );
    play(context, &plan, |scene| {
        scene.must_have_said("cannot be used")?;
        let aside = scene.host.ask(&["ls", "/var/lib/vmdrain-agent"])?;
        ensure!(
            aside.contains("damaged"),
            "the damaged file is not kept: {aside}"
        );
        ensure!(
            scene.cluster.sight().cordons.is_empty(),
            "the node was touched"
        );
        Ok("set aside".into())
    })
}

/// The agent dies at the moment at which the node is given back; the next one has no second effect.
fn crash_while_restoring(context: &Context) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        scene.types_well(&["systemctl", "reboot"])?;
        let down = scene.wait_down(Duration::from_secs(30))?;
        scene.went_empty(&down, TAIL)?;
        scene.boot_again()?;
        scene.wait_held()?;
        // Again and again until it has happened, so that every step is hit by one of the kills.
        let mut kills = 0;
        scene.wait("the node is given back", Duration::from_secs(60), || {
            if !scene.cluster.sight().is_cordoned() {
                scene.types_well(&["systemctl", "kill", "--signal=KILL", "vmdrain-agent"])?;
                return Ok(true);
            }
            if kills < 3 {
                kills += 1;
                scene.types_well(&["systemctl", "kill", "--signal=KILL", "vmdrain-agent"])?;
                scene.wait_unit("vmdrain-agent.service", "active")?;
            }
            Ok(false)
        })?;
        scene.wait_unit("vmdrain-agent.service", "active")?;
        ensure!(
            scene.host.seen().losses() == 0,
            "the lock was absent: {:?}",
            scene.host.seen().lock
        );
        quiet(scene, 1)?;
        Ok(format!("given back once, {} kills", kills + 1))
    })
}

/// User space only: the boot id stays, and so does `/run`.
pub(super) fn soft_reboot(context: &Context) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        let count = |scene: &Scene| {
            scene.host.ask(&[
                "systemctl",
                "show",
                "--value",
                "--property=SoftRebootsCount",
            ])
        };
        ensure!(count(scene)? == "0", "this host has had a soft-reboot");
        let boot_id = scene.host.live("/proc/sys/kernel/random/boot_id");
        let before = std::fs::read_to_string(&boot_id)?;
        let typed = scene.types(&["systemctl", "soft-reboot"])?.typed;
        scene.wait("the last VM leaves", Duration::from_secs(20), || {
            Ok(scene.cluster.sight().guests == 0)
        })?;
        let gone = scene.now();
        scene.wait("the lock goes", Duration::from_secs(5), || {
            Ok(!scene.host.seen().is_locked())
        })?;
        // Kubelet and virt-handler end with the old user space and come with the new one.
        scene.cluster.host_off()?;
        scene.wait("user space is new", Duration::from_secs(30), || {
            let count = scene.host.peek(&[
                "systemctl",
                "show",
                "--value",
                "--property=SoftRebootsCount",
            ]);
            Ok(count == "1")
        })?;
        let back = scene.now();
        ensure!(
            std::fs::read_to_string(&boot_id)? == before,
            "the boot id has changed"
        );
        scene.cluster.host_on(before.trim())?;
        scene.wait_held()?;
        let free = scene.wait_uncordoned(GIVEN_BACK)?;
        ensure!(
            between(back, free) >= HANDLER_NEEDS,
            "the node was given back {} after the soft-reboot, before virt-handler was there",
            seconds(between(back, free))
        );
        scene.must_have_said("the host is going down (soft-reboot)")?;
        quiet(scene, 1)?;
        Ok(format!(
            "VMs gone {}, new user space {}, given back {} later",
            seconds(between(typed, gone)),
            seconds(between(typed, back)),
            seconds(between(back, free))
        ))
    })
}
