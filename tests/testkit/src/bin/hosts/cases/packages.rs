//! A package's life on a running host: what installing, upgrading, downgrading and removing do, and do not do.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::delay::in_order;
use super::{between, seconds};
use crate::install::{PLACE, put};
use crate::plan::Plan;
use crate::scene::{SOON, Scene, play, play_bare, play_by_hand};
use crate::suite::{ALL, Case, Context, Debian};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "pkg",
        name: "install_on_a_running_host",
        on: ALL,
        limit: 90,
        run: install,
    },
    Case {
        number: "pkg",
        name: "upgrade_and_downgrade_idle",
        on: ALL,
        limit: 90,
        run: upgrade_idle,
    },
    Case {
        number: "pkg",
        name: "upgrade_in_mid_drain",
        on: ALL,
        limit: 90,
        run: upgrade_in_mid_drain,
    },
    Case {
        number: "pkg",
        name: "remove_purge_reinstall",
        on: ALL,
        limit: 90,
        run: remove,
    },
    Case {
        number: "pkg",
        name: super::RPM,
        on: &[Debian::Thirteen],
        limit: 120,
        run: rpm,
    },
    Case {
        number: "pkg",
        name: super::BY_HAND,
        on: ALL,
        limit: 90,
        run: by_hand,
    },
    Case {
        number: "pkg",
        name: "remove_in_mid_drain",
        on: ALL,
        limit: 90,
        run: remove_in_mid_drain,
    },
];

const UNITS: [&str; 2] = ["vmdrain-agent.service", "vmdrain-hold.service"];
const OURS: &str = "t 2700000000";

/// dpkg as it is run by tools: no questions.
fn dpkg(scene: &Scene, words: &[&str]) -> anyhow::Result<String> {
    let mut all = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "LC_ALL=C",
        "dpkg",
        "--force-confold",
    ];
    all.extend(words);
    let answer = scene.host.run(&all)?.good()?;
    Ok(format!("{}{}", answer.out, answer.err))
}

/// The package protects this host from now on: units active and enabled, lock held, logind's limit ours.
fn protects(scene: &Scene) -> anyhow::Result<()> {
    scene.wait_held()?;
    for unit in UNITS {
        scene.wait_unit(unit, "active")?;
        let enabled = scene.host.ask(&["systemctl", "is-enabled", unit])?;
        ensure!(enabled == "enabled", "{unit} is {enabled}");
        let stale = scene.property(unit, "NeedDaemonReload")?;
        ensure!(stale == "no", "{unit} needs a daemon-reload");
    }
    let limit = scene.login1("InhibitDelayMaxUSec")?;
    ensure!(limit == OURS, "logind's limit is {limit}");
    scene.wait("our name on the bus", SOON, || Ok(scene.status().is_ok()))?;
    Ok(())
}

/// Nobody has drained.
fn untouched(scene: &Scene) -> anyhow::Result<()> {
    ensure!(
        scene.cluster.sight().cordons.is_empty(),
        "the node was cordoned"
    );
    ensure!(scene.cluster.evictions().is_empty(), "somebody has drained");
    Ok(())
}

fn plan() -> Plan {
    Plan::moving(4.0).limit("")
}

/// Installed while containers run: they take the drop-in, logind is not restarted, and the first shutdown is held.
fn install(context: &Context) -> anyhow::Result<String> {
    play_bare(context, &plan(), |scene| {
        let logind = scene.property("systemd-logind.service", "MainPID")?;
        let container = super::stop_job::container(scene, "0a")?;
        put(&scene.host, &context.packages.this)?;
        let since = scene.now();
        dpkg(scene, &["--install", PLACE])?;
        let held = between(since, scene.wait_held()?);
        protects(scene)?;
        let before = scene.property(&container, "Before")?;
        ensure!(
            before.contains("vmdrain-hold.service"),
            "a container that ran already would not outlive the stop job: Before={before}"
        );
        ensure!(
            scene.property("systemd-logind.service", "MainPID")? == logind,
            "logind was restarted"
        );
        untouched(scene)?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(40))?;
        Ok(format!(
            "held {} after dpkg began; {}",
            seconds(held),
            in_order(scene, typed, &down)?
        ))
    })
}

/// The RPM on a host that has rpm: the same protection, and gone again with it.
fn rpm(context: &Context) -> anyhow::Result<String> {
    const FILE: &str = "/root/vmdrain-agent.rpm";
    let package = context
        .packages
        .rpm
        .as_ref()
        .context("no RPM was given (--rpm)")?;
    let bytes =
        std::fs::read(package).with_context(|| format!("cannot read {}", package.display()))?;
    let plan = Plan {
        before: Some("dpkg --install /opt/debs/rpm/*.deb >/dev/null".into()),
        ..plan()
    };
    play_bare(context, &plan, |scene| {
        scene.host.write_mode(FILE, &bytes, 0o644)?;
        // This system's packages are no RPMs, so rpm knows of none that is needed.
        scene.types_well(&["rpm", "--install", "--nodeps", FILE])?;
        protects(scene)?;
        scene.types_well(&["rpm", "--upgrade", "--nodeps", "--force", FILE])?;
        let seen = scene.host.seen();
        ensure!(
            seen.is_locked() && seen.losses() == 0,
            "the lock was absent: {:?}",
            seen.lock
        );
        untouched(scene)?;
        scene.types_well(&["rpm", "--erase", "vmdrain-agent"])?;
        scene.wait("the lock is gone", SOON, || {
            Ok(!scene.host.seen().is_locked())
        })?;
        untouched(scene)?;
        scene.types_well(&["rpm", "--install", "--nodeps", FILE])?;
        scene.wait("the agent holds the host again", SOON, || {
            Ok(scene.host.seen().is_locked())
        })?;
        protects(scene)?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(40))?;
        let tail = scene.went_empty(&down, super::delay::TAIL)?;
        Ok(format!("{tail}, down {}", seconds(between(typed, down.at))))
    })
}

/// The files of `make install`, and the two commands that its documentation names.
fn by_hand(context: &Context) -> anyhow::Result<String> {
    play_by_hand(context, &plan(), |scene| {
        let paths = UNITS.map(|unit| format!("/usr/lib/systemd/system/{unit}"));
        let mut verify = vec!["systemd-analyze", "verify", "--man=no"];
        verify.extend(paths.iter().map(String::as_str));
        let verified = scene.host.run(&verify)?;
        let ours: Vec<_> = verified
            .err
            .lines()
            .filter(|l| l.contains("vmdrain"))
            .collect();
        ensure!(
            ours.is_empty(),
            "systemd-analyze verify: {}",
            ours.join("\n")
        );
        scene.types_well(&["/usr/lib/vmdrain-agent/host-setup"])?;
        scene.types_well(&[
            "systemctl",
            "enable",
            "--now",
            "vmdrain-agent",
            "vmdrain-hold",
        ])?;
        protects(scene)?;
        untouched(scene)?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(40))?;
        in_order(scene, typed, &down)
    })
}

/// Another version takes over: another process, the same lock all the time.
fn change(scene: &Scene, package: &std::path::Path) -> anyhow::Result<()> {
    let old = scene.agent_pid()?;
    put(&scene.host, package)?;
    dpkg(scene, &["--install", PLACE])?;
    scene.wait_unit(UNITS[0], "active")?;
    ensure!(scene.agent_pid()? != old, "the old agent still runs");
    let seen = scene.host.seen();
    ensure!(
        seen.is_locked() && seen.losses() == 0,
        "the lock was absent: {:?}",
        seen.lock
    );
    Ok(())
}

fn upgrade_idle(context: &Context) -> anyhow::Result<String> {
    play(context, &plan(), |scene| {
        // A conffile that somebody has changed stays as it is.
        scene.host.write(
            "/etc/vmdrain-agent/config.toml",
            "[drain]\ndeadline = \"17m\"\n",
        )?;
        for package in [
            &context.packages.newer,
            &context.packages.this,
            &context.packages.older,
        ] {
            change(scene, package)?;
        }
        protects(scene)?;
        untouched(scene)?;
        let kept = scene.host.read("/etc/vmdrain-agent/config.toml")?;
        ensure!(kept.contains("17m"), "the changed conffile was overwritten");
        Ok(format!(
            "three versions, {} looks at the lock",
            scene.host.seen().looks
        ))
    })
}

fn upgrade_in_mid_drain(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(9.0).limit(""), |scene| {
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        change(scene, &context.packages.newer)?;
        let down = scene.wait_down(Duration::from_secs(50))?;
        in_order(scene, typed, &down)
    })
}

/// What is left of the package on the host; the configuration stays until a purge.
fn remains(scene: &Scene) -> anyhow::Result<Vec<String>> {
    let found = scene.host.ask(&[
        "find",
        "/usr",
        "/etc",
        "/run",
        "/var/lib",
        "-xdev",
        "-name",
        "*vmdrain*",
        "-not",
        "-path",
        "/var/lib/dpkg/*",
    ])?;
    Ok(found.lines().map(str::to_owned).collect())
}

fn remove(context: &Context) -> anyhow::Result<String> {
    play(context, &plan(), |scene| {
        dpkg(scene, &["--remove", "vmdrain-agent"])?;
        scene.wait("the lock is gone", SOON, || {
            Ok(!scene.host.seen().is_locked())
        })?;
        untouched(scene)?;
        for unit in UNITS {
            let state = scene.host.run(&["systemctl", "is-active", unit])?;
            ensure!(state.text() != "active", "{unit} still runs");
        }
        scene.wait("logind's own limit is back", SOON, || {
            Ok(scene.login1("InhibitDelayMaxUSec")? == "t 5000000")
        })?;
        let failed = scene
            .host
            .ask(&["systemctl", "--failed", "--no-legend", "--plain"])?;
        ensure!(
            !failed.contains("vmdrain"),
            "the removed units count as failed: {failed}"
        );
        dpkg(scene, &["--purge", "vmdrain-agent"])?;
        // The test's own configuration and the user, which no package removes.
        let left: Vec<_> = remains(scene)?
            .into_iter()
            .filter(|path| !path.starts_with("/etc/vmdrain-agent"))
            .collect();
        ensure!(
            left.is_empty(),
            "after the purge there are still: {}",
            left.join(" ")
        );
        put(&scene.host, &context.packages.this)?;
        dpkg(scene, &["--install", PLACE])?;
        protects(scene)?;
        let typed = scene.types_well(&["systemctl", "reboot"])?.typed;
        let down = scene.wait_down(Duration::from_secs(40))?;
        Ok(format!(
            "purged and back; down {}",
            seconds(between(typed, down.at))
        ))
    })
}

/// While logind waits for the VMs the package does not go: without it the host would go at once.
fn remove_in_mid_drain(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(8.0).limit(""), |scene| {
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        let refused = scene.host.run(&["dpkg", "--remove", "vmdrain-agent"])?;
        ensure!(
            !refused.status.success(),
            "the package was removed while logind waited for the VMs"
        );
        let said = format!("{}{}", refused.out, refused.err);
        ensure!(said.contains("not removed"), "it does not say why: {said}");
        let seen = scene.host.seen();
        ensure!(
            seen.is_locked() && seen.losses() == 0,
            "the lock was absent: {:?}",
            seen.lock
        );
        let down = scene.wait_down(Duration::from_secs(50))?;
        in_order(scene, typed, &down).context("after the refused removal")
    })
}
