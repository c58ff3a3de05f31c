//! How long may anything take? No wait of this suite is without a limit, and all of them end when the suite is interrupted.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use testkit::clock::SimClock;

/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(5);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on every wait ends with an error.
pub(crate) fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether somebody has interrupted the suite.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// A case's clock and its end.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// Starts at zero with the case, runs in real time.
    pub(crate) clock: SimClock,
    until: Duration,
}

impl Patience {
    /// Begins now and ends after `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            clock: SimClock::from_wall(1.0),
            until: limit,
        }
    }

    /// Time since the case began.
    pub(crate) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Looks until something is there; `what` says for whom a failure is read.
    pub(crate) fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let since = self.now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            self.check(what)?;
            if self.now().saturating_sub(since) > limit {
                bail!("waited {:.1} s for this: {what}", limit.as_secs_f64());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until this moment of the case's clock, in which something is watched.
    pub(crate) fn until(&self, moment: Duration) -> anyhow::Result<()> {
        while self.now() < moment {
            self.check("a pause")?;
            std::thread::sleep(LOOK.min(moment.saturating_sub(self.now())));
        }
        Ok(())
    }

    fn check(&self, what: &str) -> anyhow::Result<()> {
        if interrupted() {
            bail!("interrupted while waiting for this: {what}");
        }
        if self.now() > self.until {
            bail!(
                "the case's limit of {} s came while waiting for this: {what}",
                self.until.as_secs()
            );
        }
        Ok(())
    }

    /// Runs a command to its end, or kills it.
    pub(crate) fn run(&self, command: &mut Command, limit: Duration) -> anyhow::Result<Answer> {
        self.begin(command)?.end(self, limit)
    }

    /// Starts a command and catches what it says.
    pub(crate) fn begin(&self, command: &mut Command) -> anyhow::Result<Running> {
        let what = words(command);
        let out = tempfile::tempfile().context("no room for a command's output")?;
        let err = tempfile::tempfile().context("no room for a command's output")?;
        let typed = self.now();
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start: {what}"))?;
        Ok(Running {
            what,
            typed,
            child,
            out,
            err,
        })
    }
}

fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let all: Vec<_> = all.map(|word| word.to_string_lossy()).collect();
    // What comes before the command inside a host is the same every time.
    let from = all.iter().position(|word| word.starts_with("PATH="));
    let shown = from.and_then(|at| all.get(at + 2..)).unwrap_or(&all);
    shown.join(" ")
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Running {
    what: String,
    /// When it was started, on the case's clock.
    pub(crate) typed: Duration,
    child: Child,
    out: std::fs::File,
    err: std::fs::File,
}

/// What a command said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The command, for messages.
    pub(crate) what: String,
    /// When it was started, on the case's clock.
    pub(crate) typed: Duration,
    /// How long it ran.
    pub(crate) took: Duration,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Running {
    /// Waits for its end; kills it when the time is over.
    pub(crate) fn end(mut self, patience: &Patience, limit: Duration) -> anyhow::Result<Answer> {
        let what = format!("the end of `{}`", self.what);
        let status = patience.wait(&what, limit, || Ok(self.child.try_wait()?));
        let took = patience.now().saturating_sub(self.typed);
        let status = status.inspect_err(|_| {
            // It may have ended in this moment; either way it is reaped.
            let _ = self.child.kill();
            let _ = self.child.wait();
        });
        let (out, err) = (read(&mut self.out), read(&mut self.err));
        let status = status.with_context(|| format!("it had said: {out}{err}"))?;
        Ok(Answer {
            what: self.what,
            typed: self.typed,
            took,
            status,
            out,
            err,
        })
    }
}

fn read(file: &mut std::fs::File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    let rewound = file.seek(std::io::SeekFrom::Start(0));
    if rewound.and_then(|_| file.read_to_end(&mut bytes)).is_err() {
        return "(its output could not be read)".into();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Answer {
    /// The same, unless it failed.
    pub(crate) fn good(self) -> anyhow::Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        bail!(
            "`{}` failed ({}): {}{}",
            self.what,
            self.status,
            self.out,
            self.err
        )
    }

    /// Standard output without the blanks around it.
    pub(crate) fn text(&self) -> &str {
        self.out.trim()
    }
}
