//! The command line: what can be typed, what is shown, how does the program end?
//!
//! | file | answers |
//! |---|---|
//! | `args.rs` | which commands and options there are |
//! | `commands.rs` | which command does what |
//! | `run.rs` | where the agent itself is started |
//! | `daemon.rs` | what a daemon is, seen from here; `bus.rs` finds it on the bus |
//! | `hold_stop/` | what the stop job of `vmdrain-hold.service` does (net 3) |
//! | `watch.rs` | what waiting for a drain is, and what Ctrl-C does |
//! | `plan.rs`, `doctor.rs` | how a plan and a check-up look |
//! | `table.rs`, `progress.rs` | how a status looks, at rest and in motion |
//! | `look.rs`, `screen.rs` | what the reader's terminal can do |
//! | `manual.rs` | what the man pages say |
//! | `settings.rs` | `config show` and `config check` |
//! | `rbac.rs` | which manifests give the agent more rights |
//! | `failure.rs`, `exit.rs` | how a failure is told, and with which number |

pub mod args;
mod bus;
mod commands;
pub mod daemon;
pub mod doctor;
pub mod exit;
pub mod failure;
mod hold_stop;
pub mod look;
mod manual;
pub mod plan;
mod progress;
mod rbac;
pub mod run;
pub mod screen;
mod settings;
pub mod table;
pub mod watch;

use args::Args;
use clap::Parser;
use exit::Exit;
use failure::Failure;
use futures_util::{Stream, StreamExt};
use screen::Screen;
use signal_hook::consts::SIGINT;
use signal_hook_tokio::Signals;
use std::io::Write;
use std::process::ExitCode;

/// The program: reads the command line, carries it out, tells a failure once on stderr.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(told) => return misunderstood(&told).into(),
    };
    match in_runtime(args) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.is_silent() {
                let _ = writeln!(anstream::stderr(), "vmdrain-agent: {failure}");
            }
            failure.exit.into()
        }
    }
}

/// Help and version, which are no failure, or what is wrong with the command line. When not even
/// that can be written, there is nobody to tell.
fn misunderstood(told: &clap::Error) -> Exit {
    if !told.use_stderr() {
        let _ = told.print();
        return Exit::Done;
    }
    let text = told.to_string();
    // Without any command clap tells the help; every other text is an error of ours.
    let _ = match text.strip_prefix("error: ") {
        Some(what) => write!(anstream::stderr(), "vmdrain-agent: {what}"),
        None => told.print(),
    };
    Exit::Usage
}

/// One thread: the agent waits most of the time.
fn in_runtime(args: Args) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| {
            Failure::new(
                Exit::Failed,
                format!("the runtime cannot be started: {why}"),
                "Nothing was done.",
                "This host is out of file descriptors or memory.",
            )
        })?;
    runtime.block_on(commands::carry_out(args, &mut Screen::stdout()))
}

/// Presses of Ctrl-C. From the first call on they no longer end the program by themselves.
fn interrupts() -> Result<impl Stream<Item = ()>, Failure> {
    let signals = Signals::new([SIGINT]).map_err(|why| {
        Failure::new(
            Exit::Failed,
            format!("Ctrl-C cannot be listened for: {why}"),
            "Nothing was done.",
            "",
        )
    })?;
    Ok(signals.map(|_| ()))
}

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
