//! What does an installed agent add to a root tree? Installed once per version on a booted host, as a person would; its disk is then
//! a layer of every other host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::host::Host;
use crate::suite::{Context, Root, Run};

/// An installation may take so many seconds.
const LIMIT: u64 = 90;
/// Where packages lie on a host.
pub(crate) const PLACE: &str = "/root/vmdrain-agent.deb";

/// The version of the systemd in a root tree.
pub(crate) fn systemd_of(root: &Path) -> anyhow::Result<u32> {
    let output = Command::new("chroot")
        .arg(root)
        .args(["/usr/bin/systemctl", "--version"])
        .output()
        .context("cannot run chroot")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.split_whitespace().nth(1).map(|word| {
        let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
        digits
    });
    number
        .and_then(|digits| digits.parse().ok())
        .with_context(|| format!("{} has no systemd: {text}", root.display()))
}

/// Installs on a booted host; answers the layer.
pub(crate) fn install(run: &Run, root: &Root) -> anyhow::Result<PathBuf> {
    let name = format!("{}-install", root.debian.name());
    let context = Context::new(run, root, &name, LIMIT);
    let mut host = context.bare_host()?;
    host.boot()?;
    wait_running(&context, &host)?;
    put(&host, &run.packages.this)?;
    host.run(&["dpkg", "--install", PLACE])?.good()?;
    host.run(&["systemctl", "poweroff"])?.good()?;
    host.wait_down(Duration::from_secs(30))?;
    let place = run
        .scratch
        .dir
        .join(format!("installed-{}", root.debian.name()));
    host.into_layer(&place)?;
    Ok(place)
}

/// Waits until a host has booted completely.
pub(crate) fn wait_running(context: &Context, host: &Host) -> anyhow::Result<()> {
    let limit = Duration::from_secs(30);
    context.patience.wait("the host has booted", limit, || {
        let state = host.run(&["systemctl", "is-system-running"])?;
        Ok(matches!(state.text(), "running" | "degraded").then_some(()))
    })
}

/// Copies a package onto a host.
pub(crate) fn put(host: &Host, package: &Path) -> anyhow::Result<()> {
    let bytes =
        std::fs::read(package).with_context(|| format!("cannot read {}", package.display()))?;
    ensure!(!bytes.is_empty(), "{} is empty", package.display());
    host.write_mode(PLACE, &bytes, 0o644)
}
