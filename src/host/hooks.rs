//! The administrator's programs in `pre-drain.d`, `post-drain.d`, `pre-release.d`: which are run, with what, for how long?
//!
//! As run-parts does it: by name, and only names of letters, digits, `-` and `_`. What anybody but root could have written is
//! not run. Each is the leader of a process group of its own; at its limit the group gets SIGTERM, five seconds later SIGKILL.
//! Their output goes where ours goes: to the journal.

use super::clock;
use crate::drain::hooks::{About, Gate, Report, Run};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// What follows SIGTERM.
const MERCY: Duration = Duration::from_secs(5);

/// What a program finds its tools by.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The directories below `gates.hooks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    folder: PathBuf,
}

/// What is in one of them.
#[derive(Debug, Default)]
struct Found {
    /// To be run, in their order.
    programs: Vec<PathBuf>,
    /// Not to be run, each as a sentence.
    passed_over: Vec<String>,
}

impl Hooks {
    /// Those below `folder`; it need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The gates with something to run or to complain of. Three looks at a local disk.
    pub fn gates(&self) -> BTreeSet<Gate> {
        let any = |gate: &Gate| {
            let found = self.find(*gate);
            !found.programs.is_empty() || !found.passed_over.is_empty()
        };
        Gate::ALL.into_iter().filter(any).collect()
    }

    /// Runs the programs of a gate, one after the other.
    pub async fn run(&self, run: &Run) -> Report {
        let found = self.find(run.gate);
        let mut report = Report {
            passed_over: found.passed_over,
            ..Report::default()
        };
        let end = clock::now() + run.all;
        for program in found.programs {
            let left = end.left(clock::now());
            let name = shown(run.gate, &program);
            if left.is_zero() {
                report.failed.push(format!(
                    "hook {name} was not run: the time for hooks is over"
                ));
                continue;
            }
            match one(&program, run, run.each.min(left)).await {
                Ok(()) => report.done += 1,
                Err(why) => report.failed.push(format!("hook {name} {why}")),
            }
        }
        report
    }

    fn find(&self, gate: Gate) -> Found {
        let folder = self.folder.join(format!("{gate}.d"));
        let mut found = Found::default();
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return found,
            Err(error) => {
                found
                    .passed_over
                    .push(format!("{} cannot be read: {error}", folder.display()));
                return found;
            }
        };
        let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        names.retain(|path| !is_leftover(path));
        if names.is_empty() {
            return found;
        }
        if let Err(why) = trusted(&folder) {
            let text = format!("nothing in {} is run: it {why}", folder.display());
            found.passed_over.push(text);
            return found;
        }
        names.sort();
        for path in names {
            match fit(&path) {
                Ok(()) => found.programs.push(path),
                Err(why) => {
                    let text = format!("hook {} is not run: it {why}", shown(gate, &path));
                    found.passed_over.push(text);
                }
            }
        }
        found
    }
}

fn shown(gate: Gate, path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{gate}.d/{name}")
}

/// Of editors and package managers, and what only explains the directory.
fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ends = [
        "~",
        ".dpkg-old",
        ".dpkg-new",
        ".dpkg-dist",
        ".rpmsave",
        ".rpmnew",
        ".swp",
    ];
    name.starts_with('.') || name == "README" || ends.iter().any(|end| name.ends_with(end))
}

/// Root's or our own, and nobody else can write it.
fn trusted(path: &Path) -> Result<std::fs::Metadata, String> {
    let about = std::fs::metadata(path).map_err(|error| format!("cannot be looked at: {error}"))?;
    let ours = nix::unistd::geteuid().as_raw();
    if about.uid() != 0 && about.uid() != ours {
        return Err(format!("belongs to user {}, not to root", about.uid()));
    }
    if about.permissions().mode() & 0o022 != 0 {
        return Err("can be written by others than its owner".into());
    }
    Ok(about)
}

fn fit(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.bytes().all(plain) {
        return Err("has a name of other characters than letters, digits, '-' and '_' (an ending such as .sh is one)".into());
    }
    let about = trusted(path)?;
    if !about.is_file() {
        return Err("is no file".into());
    }
    if about.permissions().mode() & 0o111 == 0 {
        return Err("is not executable".into());
    }
    Ok(())
}

async fn one(program: &Path, run: &Run, limit: Duration) -> Result<(), String> {
    let mut child = Command::new(program)
        .env_clear()
        .envs(environment(run.gate, &run.about, limit))
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("could not be started: {error}"))?;
    match timeout(limit, child.wait()).await {
        Ok(Ok(status)) => verdict(status),
        Ok(Err(error)) => Err(format!("was lost: {error}")),
        Err(_) => Err(end(&mut child, limit).await),
    }
}

fn verdict(status: ExitStatus) -> Result<(), String> {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("ended with {code}")),
        (None, signal) => Err(format!(
            "was killed by signal {}",
            signal.unwrap_or_default()
        )),
    }
}

/// The whole group: what a hook has started must not outlive its limit either.
async fn end(child: &mut Child, limit: Duration) -> String {
    // Not reaped yet, so the number is still that of the group.
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let signal = |signal| group.is_some_and(|id| killpg(Pid::from_raw(id), signal).is_ok());
    signal(Signal::SIGTERM);
    let over = timeout(MERCY, child.wait()).await;
    // Its leader may be gone while others ignore the signal: the group exists as long as one of them does.
    let killed = over.is_err() && signal(Signal::SIGKILL);
    if killed {
        let _ = child.wait().await;
    } else {
        signal(Signal::SIGKILL);
    }
    let how = if killed { "killed" } else { "ended" };
    format!("was {how} at its limit of {} s", limit.as_secs_f64())
}

/// All that a hook is told; the agent's own environment is not for it.
fn environment(gate: Gate, about: &About, limit: Duration) -> Vec<(&'static str, String)> {
    let yes = |flag: bool| if flag { "1" } else { "0" }.to_owned();
    vec![
        ("PATH", PATH.into()),
        ("LANG", "C.UTF-8".into()),
        ("VMDRAIN_HOOK", gate.word().into()),
        ("VMDRAIN_DRAIN_ID", about.drain.clone()),
        ("VMDRAIN_PHASE", about.phase.clone()),
        ("VMDRAIN_REASON", about.reason.clone()),
        ("VMDRAIN_NODE", about.node.clone()),
        ("VMDRAIN_DEADLINE_SECONDS", about.deadline.to_string()),
        ("VMDRAIN_TIMEOUT_SECONDS", limit.as_secs().to_string()),
        ("VMDRAIN_VMS_LEFT", about.vms_left.to_string()),
        (
            "VMDRAIN_THEN",
            about.then.map_or("", |then| then.word()).into(),
        ),
        ("VMDRAIN_SHUTTING_DOWN", yes(about.shutting_down)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a directory"))
        }

        fn put(&self, gate: Gate, name: &str, mode: u32, text: &str) {
            let folder = self.0.path().join(format!("{gate}.d"));
            fs::create_dir_all(&folder).expect("a directory");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("its mode");
            let path = folder.join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        }

        fn hooks(&self) -> Hooks {
            Hooks::new(self.0.path().to_owned())
        }

        fn out(&self) -> String {
            fs::read_to_string(self.0.path().join("out")).unwrap_or_default()
        }

        fn run(&self, gate: Gate, each: Duration) -> Run {
            Run {
                gate,
                each,
                all: each * 3,
                about: About {
                    drain: "d-1".into(),
                    node: "n1".into(),
                    reason: self.0.path().display().to_string(),
                    vms_left: 2,
                    ..About::default()
                },
            }
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn they_run_in_the_order_of_their_names_with_their_environment() {
        let place = Place::new();
        let say = r#"echo "$0 $VMDRAIN_HOOK $VMDRAIN_DRAIN_ID $VMDRAIN_NODE $VMDRAIN_VMS_LEFT $HOME" | sed 's,.*/,,' >> "$VMDRAIN_REASON/out""#;
        for name in ["20-b", "10-a", "30_c"] {
            place.put(Gate::PreDrain, name, 0o755, say);
        }
        place.put(Gate::PostDrain, "other", 0o755, say);
        let report = place.hooks().run(&place.run(Gate::PreDrain, LONG)).await;
        assert_eq!((report.done, report.failed), (3, vec![]));
        assert_eq!(
            place.out(),
            "10-a pre-drain d-1 n1 2 \n20-b pre-drain d-1 n1 2 \n30_c pre-drain d-1 n1 2 \n"
        );
        assert_eq!(
            place.hooks().gates(),
            BTreeSet::from([Gate::PreDrain, Gate::PostDrain])
        );
    }

    #[tokio::test]
    async fn what_others_could_have_written_or_meant_otherwise_is_not_run() {
        let place = Place::new();
        let run = r#"echo ran >> "$VMDRAIN_REASON/out""#;
        for (name, mode) in [
            ("backup.sh", 0o755),
            ("open", 0o777),
            ("group", 0o775),
            ("text", 0o644),
            ("README", 0o644),
            ("old~", 0o755),
            (".hidden", 0o755),
            ("x.dpkg-old", 0o755),
        ] {
            place.put(Gate::PreRelease, name, mode, run);
        }
        let report = place.hooks().run(&place.run(Gate::PreRelease, LONG)).await;
        assert_eq!((report.done, place.out().as_str()), (0, ""));
        let said = report.passed_over.join("\n");
        assert_eq!(report.passed_over.len(), 4, "{said}");
        for words in [
            "pre-release.d/backup.sh is not run: it has a name",
            "pre-release.d/open is not run: it can be written",
            "pre-release.d/group is not run: it can be written",
            "pre-release.d/text is not run: it is not executable",
        ] {
            assert!(said.contains(words), "{said}");
        }
        let folder = place.0.path().join("pre-release.d");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("its mode");
        let report = place.hooks().run(&place.run(Gate::PreRelease, LONG)).await;
        assert!(report.passed_over[0].contains("nothing in"), "{report:?}");
        let empty = place.hooks().run(&place.run(Gate::PostDrain, LONG)).await;
        assert_eq!(empty, Report::default());
    }

    #[tokio::test]
    async fn a_failure_is_named_and_the_next_one_runs() {
        let place = Place::new();
        place.put(Gate::PreDrain, "1-bad", 0o755, "exit 3");
        place.put(Gate::PreDrain, "2-killed", 0o755, "kill -9 $$");
        place.put(Gate::PreDrain, "3-good", 0o755, "true");
        let report = place.hooks().run(&place.run(Gate::PreDrain, LONG)).await;
        assert_eq!(report.done, 1);
        assert_eq!(
            report.failed,
            [
                "hook pre-drain.d/1-bad ended with 3",
                "hook pre-drain.d/2-killed was killed by signal 9"
            ]
        );
    }

    #[tokio::test]
    async fn at_its_limit_a_hook_ends_with_all_that_it_has_started() {
        let place = Place::new();
        place.put(
            Gate::PreDrain,
            "slow",
            0o755,
            r#"sleep 300 & echo $! > "$VMDRAIN_REASON/out"; wait"#,
        );
        let report = place
            .hooks()
            .run(&place.run(Gate::PreDrain, Duration::from_secs(1)))
            .await;
        assert_eq!(
            report.failed,
            ["hook pre-drain.d/slow was ended at its limit of 1 s"]
        );
        let sleeper: i32 = place.out().trim().parse().expect("its number");
        let gone = || {
            let stat = fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
            // One that nobody has waited for is dead as well.
            stat.is_empty() || stat.contains(") Z ")
        };
        for _ in 0..500 {
            if gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("process {sleeper} of the hook is still there");
    }
}
