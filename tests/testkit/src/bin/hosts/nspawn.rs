//! How is a host started: the command line of systemd-nspawn, for a plain host and for one on which a kubelet runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Enters every cgroup that is named before `--`, then becomes what comes after it.
const ENTER: &str =
    r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@""#;

/// Where the program lies that becomes PID 1 of a host with a kubelet.
pub(crate) const FIRST: &str = "/vmdrain-first";

/// What a host has on which containers run.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    /// Its network namespace, which outlives its boots.
    pub(crate) network: String,
    /// Files and folders of this machine: place here, place there, and whether the host may write.
    pub(crate) binds: Vec<(PathBuf, String, bool)>,
}

/// The command that boots a host; it ends when the host is down.
pub(crate) fn command(
    root: &Path,
    machine: &str,
    doors: impl Iterator<Item = PathBuf>,
    wiring: Option<&Wiring>,
) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", ENTER, "enter"])
        .args(doors)
        .args([
            "--",
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
        ])
        .arg(format!("--directory={}", root.display()))
        // nspawn keeps folders of its own under this name, which must be nobody else's.
        .arg(format!("--machine={machine}"))
        .arg("--hostname=n1")
        .args(["--resolv-conf=off", "--timezone=off", "--link-journal=no"]);
    match wiring {
        None => command
            .arg("--boot")
            .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1"),
        Some(wiring) => with_containers(&mut command, wiring).arg(FIRST),
    };
    command
        .args(["systemd.show_status=no", "systemd.log_level=info"])
        .stdin(Stdio::null());
    command
}

/// The cgroup hierarchies of version 1 and, for systemd itself, the one of version 2, as long as the machine's controllers are in
/// version 1: in the pure version 1 systemd inside a container would not wait after SIGTERM, in the pure version 2 no pod could start.
fn with_containers<'a>(command: &'a mut Command, wiring: &Wiring) -> &'a mut Command {
    command
        .arg(format!(
            "--network-namespace-path=/run/netns/{}",
            wiring.network
        ))
        .args(["--capability=all", "--system-call-filter=@known"])
        .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "network");
    for (here, there, writable) in &wiring.binds {
        let kind = if *writable { "bind" } else { "bind-ro" };
        command.arg(format!("--{kind}={}:{there}", here.display()));
    }
    command
}
