//! As whom the agent runs, and what that needs.

use std::time::Duration;

use anyhow::ensure;

use super::delay::in_order;
use super::seconds;
use crate::plan::Plan;
use crate::scene::{SOON, Scene, play};
use crate::suite::{ALL, Case, Context, Debian};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "26",
        name: "without_polkit",
        on: ALL,
        limit: 60,
        run: without_polkit,
    },
    Case {
        number: "26",
        name: "as_its_own_user",
        on: ALL,
        limit: 90,
        run: own_user,
    },
    Case {
        number: "26",
        name: "its_own_user_without_polkit",
        on: &[Debian::Thirteen],
        limit: 90,
        run: own_user_without_polkit,
    },
];

/// Where the packages put the examples.
const EXAMPLES: &str = "/usr/share/doc/vmdrain-agent/examples/own-user";

fn masked(plan: Plan) -> Plan {
    plan.link("/etc/systemd/system/polkit.service", "/dev/null")
}

/// uid 0 asks no polkit.
fn without_polkit(context: &Context) -> anyhow::Result<String> {
    play(context, &masked(Plan::moving(3.0)), |scene| {
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        in_order(scene, typed, &down)
    })
}

/// Puts the documented drop-ins in place, as the security page says it.
fn become_own_user(scene: &Scene) -> anyhow::Result<()> {
    for unit in ["vmdrain-agent", "vmdrain-hold"] {
        let from = format!("{EXAMPLES}/{unit}.service.d.conf");
        let to = format!("/etc/systemd/system/{unit}.service.d/50-own-user.conf");
        scene.types_well(&["install", "-D", "-m", "644", &from, &to])?;
    }
    let rules = format!("{EXAMPLES}/50-vmdrain-agent.rules");
    scene.types_well(&[
        "install",
        "-D",
        "-m",
        "644",
        &rules,
        "/etc/polkit-1/rules.d/50-vmdrain-agent.rules",
    ])?;
    // Credentials that this user may read; the kubelet's own are root's.
    scene.types_well(&[
        "sh",
        "-c",
        "install -d -o vmdrain -m 700 /etc/vmdrain-agent/pki && install -o vmdrain -m 600 /var/lib/kubelet/pki/* /etc/vmdrain-agent/pki/ && \
         sed s,/var/lib/kubelet/pki,/etc/vmdrain-agent/pki, /etc/kubernetes/kubelet.conf >/etc/vmdrain-agent/kubeconfig && \
         chown vmdrain /etc/vmdrain-agent/kubeconfig && chmod 600 /etc/vmdrain-agent/kubeconfig",
    ])?;
    scene.types_well(&["systemctl", "daemon-reload"])?;
    Ok(())
}

/// The delay lock needs no rule where polkit runs; our name on the bus needs the policy that the package ships.
fn own_user(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        become_own_user(scene)?;
        scene.types_well(&["systemctl", "restart", "vmdrain-agent"])?;
        scene.wait_held()?;
        let pid = scene.agent_pid()?;
        let status = std::fs::read_to_string(scene.host.live(&format!("/proc/{pid}/status")))?;
        let uid = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))
            .unwrap_or_default();
        ensure!(
            !uid.split_whitespace().any(|id| id == "0"),
            "the agent runs as uid {uid}"
        );
        scene.wait("our name on the bus", SOON, || {
            Ok(scene
                .status()
                .is_ok_and(|status| status["hold"]["held"] == true))
        })?;
        let text = scene.host.ask(&[
            "systemd-analyze",
            "security",
            "--no-pager",
            "vmdrain-agent.service",
        ])?;
        let level: f64 = text
            .lines()
            .filter(|line| line.contains("Overall exposure level"))
            .flat_map(str::split_whitespace)
            .find_map(|word| word.parse().ok())
            .unwrap_or(10.0);
        ensure!(level <= 1.5, "an exposure of {level}, more than 1.5");
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        Ok(format!(
            "exposure {level}; {}",
            in_order(scene, typed, &down)?
        ))
    })
}

/// No polkit, not root: no lock. That has to be said, in the journal and in `systemctl status`.
fn own_user_without_polkit(context: &Context) -> anyhow::Result<String> {
    play(context, &masked(Plan::moving(3.0)), |scene| {
        become_own_user(scene)?;
        scene.types_well(&["systemctl", "stop", "vmdrain-agent"])?;
        let since = scene
            .types_well(&["systemctl", "start", "--no-block", "vmdrain-agent"])?
            .typed;
        scene.wait(
            "the agent says that it has no lock",
            Duration::from_secs(50),
            || {
                Ok(scene
                    .said("hold")?
                    .iter()
                    .any(|line| line.contains("polkit") || line.contains("denied")))
            },
        )?;
        let said = super::between(since, scene.now());
        ensure!(!scene.host.seen().is_locked(), "there is a lock after all");
        Ok(format!("said after {}", seconds(said)))
    })
}
