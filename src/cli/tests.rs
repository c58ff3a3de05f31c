//! The commands against a played daemon, the command line itself, and `config`.

use super::args::{Args, Command, Format, How};
use super::commands;
use super::daemon::{CallError, Daemon, Feed};
use super::exit::Exit;
use super::failure::Failure;
use super::look::Look;
use super::screen::Screen;
use super::settings;
use crate::config::Sources;
use crate::drain::others::Scope;
use crate::drain::policy::OnDeadline;
use crate::drain::status::{DrainStatus, Status, VmPhase, VmStatus};
use crate::drain::trigger::{Ending, Then, Trigger};
use clap::{CommandFactory, Parser, error::ErrorKind};
use futures_util::stream;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A daemon that answers what it was told to, and remembers what it was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) asked: Arc<Mutex<Vec<String>>>,
    pub(super) refuses: Option<CallError>,
    /// What the feed says; after the last one it stays silent.
    pub(super) feed: Vec<Result<Status, CallError>>,
}

impl Played {
    fn answer(&self, call: String, answer: &str) -> Result<String, CallError> {
        self.asked.lock().expect("one thread").push(call);
        match &self.refuses {
            Some(error) => Err(error.clone()),
            None => Ok(answer.to_owned()),
        }
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("one thread").clone()
    }
}

impl Daemon for Played {
    type Feed = PlayedFeed;
    async fn trigger(&self, trigger: &Trigger) -> Result<String, CallError> {
        self.answer(format!("trigger {}", trigger.reason), "d1")
    }
    async fn cancel(&self, abort_migrations: bool) -> Result<String, CallError> {
        self.answer(
            format!("cancel {abort_migrations}"),
            "drain d1 is being cancelled",
        )
    }
    async fn extend(&self, by: Duration) -> Result<String, CallError> {
        self.answer(format!("extend {}", by.as_secs()), "the deadline was moved")
    }
    async fn release(&self, ending: Ending) -> Result<String, CallError> {
        self.answer(format!("release {ending:?}"), "the host is let go")
    }
    async fn restore(&self) -> Result<String, CallError> {
        self.answer("restore".into(), "node n1 is uncordoned")
    }
    async fn status(&self) -> Result<Arc<Status>, CallError> {
        self.answer("status".into(), "")?;
        self.feed[0].clone().map(Arc::new)
    }
    async fn follow(&self) -> Result<PlayedFeed, CallError> {
        Ok(PlayedFeed(self.feed.clone().into()))
    }
}

#[derive(Debug)]
pub(super) struct PlayedFeed(VecDeque<Result<Status, CallError>>);

impl Feed for PlayedFeed {
    async fn next(&mut self) -> Result<Arc<Status>, CallError> {
        match self.0.pop_front() {
            Some(next) => next.map(Arc::new),
            None => std::future::pending().await,
        }
    }
}

/// Output that a test can read.
#[derive(Clone, Debug, Default)]
pub(super) struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    pub(super) fn screen(&self) -> Screen {
        Screen::new(Look::plain(), Box::new(self.clone()))
    }
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("one thread").clone()).expect("UTF-8")
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("one thread").extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A VM in a phase.
pub(super) fn vm(name: &str, phase: VmPhase, says: &str) -> VmStatus {
    VmStatus {
        namespace: "default".into(),
        name: name.into(),
        phase,
        says: says.into(),
        ..VmStatus::default()
    }
}

/// A status of drain `d1`.
pub(super) fn drain(state: &str, at: f64, exit: Option<Exit>, vms: Vec<VmStatus>) -> Status {
    let left = vms
        .iter()
        .filter(|vm| {
            !matches!(
                vm.phase,
                VmPhase::Migrated | VmPhase::ShutDown | VmPhase::Gone
            )
        })
        .count();
    Status {
        node: "n1".into(),
        state: state.into(),
        says: format!("{left} VM(s) still here"),
        drain: Some(DrainStatus {
            id: "d1".into(),
            running_for: at,
            exit: exit.map(Exit::code),
            on_deadline: "proceed".into(),
            ..DrainStatus::default()
        }),
        vms_total: vms.len(),
        vms_remaining: left,
        vms,
        ..Status::default()
    }
}

fn parse(words: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once("vmdrain-agent").chain(words.split_whitespace()))
}

#[test]
fn the_command_line_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn every_option_of_a_trigger_reaches_the_request() {
    let line = "trigger --then soft-reboot --reason kernel --deadline 1h30m --on-deadline proceed --allow-guest-shutdown --keep-cordoned --scope all-pods";
    let Command::Trigger { then, how } = parse(line).expect("good").command else {
        panic!("another command");
    };
    assert_eq!(
        how.trigger(then.map(Into::into)),
        Trigger {
            then: Some(Then::SoftReboot),
            reason: "kernel".into(),
            deadline: Some(Duration::from_secs(5400)),
            on_deadline: Some(OnDeadline::Proceed),
            allow_guest_shutdown: true,
            keep_cordoned: true,
            scope: Some(Scope::AllPods),
            shutdown_vms: false,
            stop_job: false,
            signal: String::new(),
        }
    );
    let Command::Trigger { then, how } = parse("trigger").expect("good").command else {
        panic!("another command");
    };
    assert_eq!(how.trigger(then.map(Into::into)), Trigger::default());
}

#[test]
fn commands_and_global_options_are_understood_in_any_order() {
    for line in [
        "--bus unix:path=/b --config /c --set a.b=c --set d.e=f status",
        "status --bus unix:path=/b --root /c --set a.b=c --set d.e=f",
    ] {
        let args = parse(line).expect(line);
        assert_eq!(args.global.bus.as_deref(), Some("unix:path=/b"));
        assert_eq!(args.global.config, Some("/c".into()));
        assert_eq!(args.global.set, ["a.b=c", "d.e=f"]);
        let output = Format::Table;
        assert_eq!(
            args.command,
            Command::Status {
                watch: false,
                output
            }
        );
    }
    let how = How {
        no_wait: true,
        ..How::default()
    };
    assert_eq!(
        parse("reboot --no-wait").expect("good").command,
        Command::Reboot(how)
    );
    for line in [
        "run",
        "poweroff",
        "halt",
        "kexec",
        "cancel --abort-migrations",
        "restore",
        "status -w -o json",
        "config show -o json",
        "config check",
        "completions zsh",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn a_wrong_command_line_is_a_usage_error_that_says_why() {
    let table = [
        ("nonsense", "nonsense"),
        ("trigger --then explode", "soft-reboot"),
        ("trigger --deadline soon", "'soon' is not a duration"),
        ("trigger --deadline 0", "in no time"),
        (
            "trigger --on-deadline x",
            "shutdown-vms, hold, proceed, abort",
        ),
        ("extend", "DURATION"),
        ("extend 0", "more than nothing"),
        ("release --proceed --shutdown-vms", "cannot be used with"),
        ("trigger --no-wait --standalone", "cannot be used with"),
        ("reboot --then poweroff", "--then"),
        ("status -o xml", "table, json"),
        ("cancel now", "now"),
    ];
    for (line, words) in table {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()), "{line}");
        assert!(error.to_string().contains(words), "{line}: {error}");
    }
    assert_eq!(
        parse("--version").expect_err("told").kind(),
        ErrorKind::DisplayVersion
    );
}

#[test]
fn every_help_page_says_what_it_does_and_the_first_has_examples_and_exit_codes() {
    let mut root = Args::command();
    root.build();
    let help = root.render_help().to_string();
    for words in [
        "Examples:",
        "vmdrain-agent reboot --reason",
        "Exit codes:",
        "VMs left",
        "--bus <ADDRESS>",
        "--set <SECTION.KEY=VALUE>",
    ] {
        assert!(help.contains(words), "{words}\n{help}");
    }
    for exit in Exit::ALL {
        assert!(help.contains(&format!("{} ", exit.code())), "{exit:?}");
    }
    for command in root.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        assert!(command.get_about().is_some(), "{name}");
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{name} {}", arg.get_id());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_exit_4_with_the_sentence_of_the_core() {
    let why = "a drain is already running (id d0, evacuating)";
    let daemon = Played {
        refuses: Some(CallError::Refused(why.into())),
        ..Played::default()
    };
    let paper = Paper::default();
    let failure = trigger(&daemon, true, &paper).await.expect_err("refused");
    assert_eq!(
        (failure.exit, failure.to_string()),
        (Exit::Refused, why.into())
    );
    let failure = commands::cancel(&daemon, true, &mut paper.screen())
        .await
        .expect_err("refused");
    assert_eq!(failure.exit, Exit::Refused);
    assert_eq!(paper.text(), "");
    assert_eq!(daemon.asked(), ["trigger why", "cancel true"]);
}

async fn trigger(daemon: &Played, no_wait: bool, paper: &Paper) -> Result<Exit, Failure> {
    let request = Trigger {
        reason: "why".into(),
        ..Trigger::default()
    };
    let never = || Ok(stream::pending());
    commands::triggered(daemon, &request, no_wait, false, never, &mut paper.screen()).await
}

#[tokio::test(start_paused = true)]
async fn without_waiting_a_trigger_tells_the_id_and_is_done() {
    let (daemon, paper) = (Played::default(), Paper::default());
    assert_eq!(trigger(&daemon, true, &paper).await, Ok(Exit::Done));
    assert_eq!(
        paper.text(),
        "drain d1 has begun; follow it with `vmdrain-agent status -w`\n"
    );
}

#[tokio::test(start_paused = true)]
async fn cancel_and_restore_pass_on_what_the_daemon_says() {
    let (daemon, paper) = (Played::default(), Paper::default());
    let mut screen = paper.screen();
    assert_eq!(
        commands::restore(&daemon, &mut screen).await,
        Ok(Exit::Done)
    );
    assert_eq!(
        commands::cancel(&daemon, false, &mut screen).await,
        Ok(Exit::Done)
    );
    assert_eq!(
        paper.text(),
        "node n1 is uncordoned\ndrain d1 is being cancelled\n"
    );
    assert_eq!(daemon.asked(), ["restore", "cancel false"]);
}

#[tokio::test(start_paused = true)]
async fn the_json_of_status_is_the_status_itself() {
    let status = drain("evacuating", 1.5, None, vec![vm("a", VmPhase::Queued, "x")]);
    let daemon = Played {
        feed: vec![Ok(status.clone())],
        ..Played::default()
    };
    let paper = Paper::default();
    let done = commands::status(&daemon, Format::Json, &mut paper.screen()).await;
    assert_eq!(done, Ok(Exit::Done));
    let back: Status = serde_json::from_str(&paper.text()).expect("JSON");
    assert_eq!(back, status);
}

fn text_source(toml: &str) -> Sources {
    Sources {
        texts: vec![("the.toml".into(), toml.into())],
        ..Sources::default()
    }
}

#[test]
fn config_show_is_a_valid_file_with_origins() {
    let sources = text_source("drain.pacing = 'all'\ntiming.cluster.watch = '60s'");
    let paper = Paper::default();
    let done = settings::show(&sources, Format::Table, &mut paper.screen());
    assert_eq!(done, Ok(Exit::Done));
    let text = paper.text();
    let line = |key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_else(|| panic!("{key} is missing in {text}"))
            .to_owned()
    };
    assert!(line("pacing").ends_with("# the.toml") && line("pacing").contains("\"all\""));
    assert!(line("scope").ends_with("# default"));
    let again = text_source(&text).load().expect("a valid file");
    assert_eq!(again.settings, sources.load().expect("good").settings);

    let paper = Paper::default();
    let done = settings::show(&sources, Format::Json, &mut paper.screen());
    assert_eq!(done, Ok(Exit::Done));
    let json: serde_json::Value = serde_json::from_str(&paper.text()).expect("JSON");
    let pacing = json
        .as_array()
        .expect("array")
        .iter()
        .find(|s| s["key"] == "drain.pacing");
    assert_eq!(pacing.expect("there")["origin"], "the.toml");
}

#[test]
fn config_check_tells_every_mistake_and_fails() {
    let paper = Paper::default();
    let bad = text_source("drain.pacing = 'x'\nreport.keep = 5");
    let failure = settings::check(&bad, &mut paper.screen()).expect_err("bad");
    assert_eq!(failure.exit, Exit::Failed);
    let told = failure.to_string();
    for words in [
        "the.toml: drain.pacing:",
        "the.toml: report.keep: not yet",
        "docs/configuration.md",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let done = settings::check(&text_source(""), &mut paper.screen());
    assert_eq!(done, Ok(Exit::Done));
    assert_eq!(paper.text(), "read the.toml\nthe configuration is valid\n");
}
