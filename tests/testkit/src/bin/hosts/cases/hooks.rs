//! Others who stop VMs at a shutdown and really do it: what the agent says of them, and of the VMs that they stopped.

use std::time::Duration;

use anyhow::ensure;

use super::delay::TAIL;
use super::{between, often, seconds};
use crate::cluster::NODE;
use crate::plan::Plan;
use crate::scene::{SOON, Scene, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "22",
        name: "a_hook_that_powers_guests_off",
        on: ALL,
        limit: 90,
        run: power_hook,
    },
    Case {
        number: "22",
        name: "a_kubelet_that_ends_its_pods",
        on: ALL,
        limit: 90,
        run: kubelet_ends_pods,
    },
];

/// A big VM that migrates first and a small one that waits for its slot.
const TWO: &str = concat!(
    "name = \"hosts\"\n",
    "[kubevirt]\nparallel_outbound_migrations_per_node = 1\n",
    "[[node]]\nname = \"n2\"\n",
    "[[vm]]\nname = \"big\"\nmemory = \"2Gi\"\nmigration_time = \"6s\"\nstart_up = \"300ms\"\ngrace_period = \"3s\"\nguest_shutdown = \"1s\"\n",
    "[[vm]]\nname = \"small\"\nmemory = \"1Gi\"\nmigration_time = \"1s\"\ngrace_period = \"3s\"\nguest_shutdown = \"1s\"\n",
);

fn two() -> Plan {
    often(Plan {
        story: TWO.into(),
        ..Plan::moving(0.0)
    })
}

/// A program with a delay lock that runs a command as soon as logind announces a shutdown, and then lets go.
fn hook(scene: &Scene, who: &str, then: &str) -> anyhow::Result<()> {
    let wait = "until busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager PreparingForShutdown | grep -q true; do sleep 0.05; done";
    scene.types(&[
        "systemd-inhibit",
        "--what=shutdown",
        "--mode=delay",
        &format!("--who={who}"),
        "--why=stands for another one",
        "sh",
        "-c",
        &format!("{wait}; {then}"),
    ])?;
    scene.wait("status names the hook", Duration::from_secs(20), || {
        Ok(scene.status()?["warnings"].to_string().contains(who))
    })?;
    Ok(())
}

/// As Red Hat's hook: at the signal it presses every guest's power button. Here it ends the process that stands for the
/// small VM's guest; the kubelet sees that, and so does the cluster.
fn power_hook(context: &Context) -> anyhow::Result<String> {
    play(context, &two(), |scene| {
        let guest = super::stop_job::container(scene, "0a")?;
        hook(
            scene,
            "vm-shutdown-hook",
            &format!("systemctl kill --signal=TERM {guest}"),
        )?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let ended = scene.wait("the guest's process has ended", SOON, || {
            Ok(scene.host.live("/var/log/ended-0a").exists())
        })?;
        scene.cluster.act(|played| {
            played.world.guest_power_button(NODE, "default", "small");
        })?;
        let down = scene.wait_down(Duration::from_secs(50))?;
        let tail = scene.went_empty(&down, TAIL)?;
        scene.must_have_said("small: guest has ended, probably stopped by vm-shutdown-hook")?;
        scene.must_have_said("stopped by others, not moved")?;
        ensure!(
            scene.said("big: moved to n2")?.len() == 1,
            "the VM that the hook left alone was not moved"
        );
        Ok(format!(
            "guest ended {} after the command; {tail}, down {}",
            seconds(between(typed, ended)),
            seconds(between(typed, down.at))
        ))
    })
}

/// kubelet's graceful node shutdown ends the pods at the signal: each VM that it stopped is told as stopped by it.
fn kubelet_ends_pods(context: &Context) -> anyhow::Result<String> {
    play(context, &two(), |scene| {
        hook(scene, "kubelet", "touch /run/kubelet-begins; sleep 8")?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait("kubelet sees the signal", SOON, || {
            Ok(scene.host.live("/run/kubelet-begins").exists())
        })?;
        scene
            .cluster
            .act(|played| played.world.kubelet_shutdown(NODE, Duration::from_secs(3)))?;
        let down = scene.wait_down(Duration::from_secs(50))?;
        let told = scene.said("stopped by kubelet, not by this drain")?;
        ensure!(
            !told.is_empty(),
            "nobody is named for the VMs that kubelet has ended"
        );
        let left = scene.cluster.sight().guests;
        ensure!(left == 0, "{left} VMs are left");
        Ok(format!(
            "{} VMs told as stopped by kubelet, down {}",
            told.len(),
            seconds(between(typed, down.at))
        ))
    })
}
