//! The built binary as a user or a script meets it: exit codes, stdout, stderr. No bus, no cluster.

#![allow(
    clippy::expect_used,
    reason = "a test that cannot start its program has failed"
)]

use assert_cmd::Command;
use std::path::Path;

/// The binary in an empty world: no files of the host, no variables of the caller.
fn agent(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmdrain-agent"));
    command.env_clear();
    command.arg("--config").arg(root);
    command
}

/// What the packages ship as `examples/maintenance`: each file alone, and all of them together.
#[test]
fn every_example_of_a_maintenance_signal_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/examples/maintenance");
    let all = world();
    let target = all.path().join("etc/vmdrain-agent/config.d");
    std::fs::create_dir_all(&target).expect("a directory");
    let mut examples = 0;
    for entry in std::fs::read_dir(&folder).expect("the examples").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        examples += 1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmdrain-agent"));
        command.env_clear().arg("--config").arg(&path);
        let told = told(command.args(["config", "check"]));
        assert_eq!(told.code, 0, "{}: {}", path.display(), told.err);
        std::fs::copy(&path, target.join(entry.file_name())).expect("a copy");
    }
    assert!(examples >= 5, "only {examples} in {}", folder.display());
    let shown = told(agent(all.path()).args(["config", "show", "-o", "json"]));
    assert_eq!(shown.code, 0, "{}", shown.err);
    let shown: serde_json::Value = serde_json::from_str(&shown.out).expect("JSON");
    let keys = shown.as_array().expect("a list");
    let entries = keys.iter().find(|key| key["key"] == "maintenance");
    let entries = entries.and_then(|key| key["value"].as_array().cloned());
    let entries = entries.expect("the entries");
    assert!(entries.len() > examples);
    // Names in arguments are the sender's and keep their capitals.
    let ups = entries.iter().find(|entry| entry["name"] == "ups-low");
    let levels = ups.map(|entry| entry["args"]["1.WarningLevel"].clone());
    assert_eq!(levels, Some(serde_json::json!([3, 4, 5])));
    // What is shown is a file that means the same.
    let text = told(agent(all.path()).args(["config", "show"])).out;
    let again = all.path().join("again.toml");
    std::fs::write(&again, &text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmdrain-agent"));
    command.env_clear().arg("--config").arg(&again);
    let told = told(command.args(["config", "check"]));
    assert_eq!(told.code, 0, "{}\n{text}", told.err);
}

struct Told {
    code: i32,
    out: String,
    err: String,
}

fn told(command: &mut Command) -> Told {
    let output = command.output().expect("it can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Told {
        code: output.status.code().expect("it ended by itself"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn world() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn without_a_command_it_shows_its_help_and_ends_with_2() {
    let told = told(Command::new(env!("CARGO_BIN_EXE_vmdrain-agent")).env_clear());
    assert_eq!(told.code, 2);
    assert!(told.err.contains("Usage: vmdrain-agent"), "{}", told.err);
}

#[test]
fn help_and_version_go_to_stdout() {
    let root = world();
    for (flag, words) in [
        ("--help", "Exit codes:"),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let told = told(agent(root.path()).arg(flag));
        assert_eq!((told.code, told.err.as_str()), (0, ""));
        assert!(told.out.contains(words), "{}", told.out);
    }
}

/// Nothing can be reached here: that is told as such, never as health.
#[test]
fn a_check_up_of_nothing_finds_nothing_well() {
    let root = world();
    let unreachable = [
        "--bus",
        "unix:path=/nonexistent/bus",
        "--set",
        "cluster.kubeconfig=/nonexistent/kubeconfig",
    ];
    let told_of = |words: &[&str]| told(agent(root.path()).args(unreachable).args(words));
    let doctor = told_of(&["doctor", "-o", "json"]);
    assert_eq!((doctor.code, doctor.err.as_str()), (12, ""));
    let report: serde_json::Value = serde_json::from_str(&doctor.out).expect("JSON");
    let grade = |check: &str| -> String {
        let findings = report["findings"].as_array().expect("a list");
        let of_it = findings.iter().find(|finding| finding["check"] == check);
        of_it.expect(check)["grade"]
            .as_str()
            .expect("a word")
            .to_owned()
    };
    assert_eq!(grade("agent"), "failure");
    assert_eq!(grade("config"), "ok");
    assert_eq!(grade("logind"), "unknown");
    assert_eq!(grade("units"), "unknown");
    assert_ne!(grade("cluster.credentials"), "ok");
    let doctor = told_of(&["doctor"]);
    assert_eq!(doctor.code, 12);
    assert!(doctor.out.contains("cure: "), "{}", doctor.out);
    let plan = told_of(&["plan"]);
    assert_eq!(plan.code, 6, "{}", plan.err);
}

#[test]
fn every_error_begins_with_the_name_of_the_program_once() {
    let root = world();
    let no_bus = ["--bus", "unix:path=/nonexistent/bus"];
    let cases: [(&[&str], i32); 6] = [
        (&["trigger", "--deadline", "soon"], 2),
        (&["nonsense"], 2),
        (&["status"], 6),
        (&["cancel"], 6),
        (&["--set", "report.keep=5", "config", "check"], 1),
        (&["--set", "drain.deadline=soon", "run"], 1),
    ];
    for (words, code) in cases {
        let told = told(agent(root.path()).args(no_bus).args(words));
        assert_eq!(told.code, code, "{words:?}: {}", told.err);
        assert_eq!(told.out, "", "{words:?}");
        assert!(
            told.err.starts_with("vmdrain-agent: "),
            "{words:?}: {}",
            told.err
        );
        assert_eq!(
            told.err.matches("vmdrain-agent: ").count(),
            1,
            "{}",
            told.err
        );
    }
}

#[test]
fn the_layers_of_a_root_and_the_environment_are_read() {
    let root = world();
    let folder = root.path().join("etc/vmdrain-agent");
    std::fs::create_dir_all(&folder).expect("a directory");
    std::fs::write(folder.join("config.toml"), "drain.pacing = 'all'\n").expect("a file");
    let shown = told(
        agent(root.path())
            .env("VMDRAIN_DRAIN__DEADLINE", "17m")
            .args(["config", "show"]),
    );
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    let has = |key: &str, value: &str, origin: &str| {
        shown
            .out
            .lines()
            .any(|l| l.starts_with(key) && l.contains(value) && l.ends_with(origin))
    };
    assert!(
        has("pacing", "\"all\"", "etc/vmdrain-agent/config.toml"),
        "{}",
        shown.out
    );
    let variable = "# environment variable VMDRAIN_DRAIN__DEADLINE";
    assert!(has("deadline", "\"17m\"", variable), "{}", shown.out);

    std::fs::write(folder.join("config.toml"), "drain.pacin = 'all'\n").expect("a file");
    let bad = told(agent(root.path()).args(["config", "check"]));
    assert_eq!(bad.code, 1);
    let place = format!("{}: drain.pacin: ", folder.join("config.toml").display());
    assert!(bad.err.contains(&place), "{}", bad.err);
}

#[test]
fn every_shell_gets_its_completions() {
    let root = world();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let told = told(agent(root.path()).args(["completions", shell]));
        assert_eq!((told.code, told.err.as_str()), (0, ""), "{shell}");
        assert!(told.out.contains("keep-cordoned"), "{shell}");
    }
}

#[test]
fn a_drain_without_a_daemon_needs_a_way_to_the_cluster() {
    let root = world();
    let state = format!("host.state_dir={}", root.path().join("state").display());
    let missing = "cluster.kubeconfig=/nonexistent/kubeconfig";
    let told = told(agent(root.path()).args([
        "--set",
        &state,
        "--set",
        missing,
        "trigger",
        "--standalone",
    ]));
    assert_eq!(told.code, 7, "{}", told.err);
    assert!(told.err.contains("/nonexistent/kubeconfig"), "{}", told.err);
}
