//! Which command does what? One function for each; the daemon is handed in, so that tests can play it.

use super::args::{Args, Command, ConfigCommand, Format, Global, How};
use super::daemon::Daemon;
use super::exit::Exit;
use super::failure::Failure;
use super::hold_stop;
use super::run;
use super::screen::Screen;
use super::watch::{self, Waiting};
use super::{interrupts, manual, rbac, settings, table};
use crate::agent::service::Setup;
use crate::bus::Client;
use crate::config::{Live, Sources};
use crate::drain::phase::Phase;
use crate::drain::trigger::{Ending, Then, Trigger};
use crate::telemetry::logging;
use clap::CommandFactory;
use futures_util::Stream;
use std::time::Duration;

/// Carries out what was typed.
///
/// # Errors
/// What to tell the user when it did not work.
pub(super) async fn carry_out(args: Args, screen: &mut Screen) -> Result<Exit, Failure> {
    let Args { global, command } = args;
    match command {
        Command::Run => daemon(&global).await,
        Command::Trigger { then, how } => drain(&global, then.map(Then::from), &how, screen).await,
        Command::Reboot(how) => drain(&global, Some(Then::Reboot), &how, screen).await,
        Command::Poweroff(how) => drain(&global, Some(Then::Poweroff), &how, screen).await,
        Command::Halt(how) => drain(&global, Some(Then::Halt), &how, screen).await,
        Command::Kexec(how) => drain(&global, Some(Then::Kexec), &how, screen).await,
        Command::Cancel { abort_migrations } => {
            cancel(&connect(&global).await?, abort_migrations, screen).await
        }
        Command::Extend { by } => extend(&connect(&global).await?, by, screen).await,
        Command::Release {
            shutdown_vms,
            proceed,
        } => {
            let ending = match (shutdown_vms, proceed) {
                (true, _) => Ending::ShutdownVms,
                (false, true) => Ending::Proceed,
                (false, false) => Ending::Policy,
            };
            release(&connect(&global).await?, ending, screen).await
        }
        Command::Restore => restore(&connect(&global).await?, screen).await,
        Command::Status { watch, output } => {
            let daemon = connect(&global).await?;
            if watch {
                watch::status(&daemon, output, interrupts()?, screen).await
            } else {
                status(&daemon, output, screen).await
            }
        }
        Command::Plan { output } => {
            super::plan::show(&connect(&global).await?, output, screen).await
        }
        Command::Doctor { output } => Box::pin(super::doctor::show(&global, output, screen)).await,
        Command::HoldStop => Ok(hold_stop::run(&global, screen).await),
        Command::Config { what } => {
            let sources = sources(&global);
            match what {
                ConfigCommand::Show { output } => settings::show(&sources, output, screen),
                ConfigCommand::Check => settings::check(&sources, screen),
            }
        }
        Command::Rbac { list: true, .. } => rbac::list(screen),
        Command::Rbac { parts, .. } => rbac::print(&parts, screen),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "vmdrain-agent", &mut text);
            screen.line(String::from_utf8_lossy(&text).trim_end())?;
            Ok(Exit::Done)
        }
        Command::Man { folder } => match manual::write(&folder) {
            Ok(()) => Ok(Exit::Done),
            Err(why) => Err(Failure::new(
                Exit::Failed,
                format!(
                    "the man pages cannot be written into {}: {why}",
                    folder.display()
                ),
                "Some of them may be there.",
                "",
            )),
        },
    }
}

pub(super) fn sources(global: &Global) -> Sources {
    Sources::host(global.config.as_deref(), global.set.clone())
}

pub(super) async fn connect(global: &Global) -> Result<Client, Failure> {
    Client::connect(global.bus.as_deref())
        .await
        .map_err(|error| super::daemon::CallError::from(error).into())
}

/// `run`.
async fn daemon(global: &Global) -> Result<Exit, Failure> {
    let live = Live::open(sources(global))?;
    let (_, level) = start_log(&live.current().settings.log.level)?;
    let setup = Setup {
        live,
        bus: global.bus.clone(),
        level: Some(level),
    };
    run::run(setup).await
}

pub(super) fn start_log(level: &str) -> Result<(logging::Destination, logging::Level), Failure> {
    logging::start(level)
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot log: {why}"), "", ""))
}

/// `trigger` and its short forms.
async fn drain(
    global: &Global,
    then: Option<Then>,
    how: &How,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let trigger = how.trigger(then);
    if how.standalone {
        return standalone(global, &trigger, screen).await;
    }
    let daemon = connect(global).await?;
    triggered(&daemon, &trigger, how.no_wait, false, interrupts, screen).await
}

/// A drain of this process. Its warnings go to stderr; what happens is on the screen.
async fn standalone(
    global: &Global,
    trigger: &Trigger,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let loaded = sources(global).load()?;
    start_log("warn")?;
    let running = run::standalone(&loaded.settings, global.bus.clone()).await?;
    let ended = after_the_one_before(&running.handle, trigger, interrupts, screen).await;
    // Whether it can still be told does not matter: without a listener it has ended already.
    let _ = running.stop.send(());
    let _ = running.task.await;
    ended
}

/// A process that died has left a record of its drain. Without a daemon nobody else takes it up, so it is
/// brought to its end first; whoever calls that off wants no new one either.
pub(super) async fn after_the_one_before<D: Daemon, I: Stream<Item = ()>>(
    daemon: &D,
    trigger: &Trigger,
    interrupts: impl Fn() -> Result<I, Failure>,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let status = daemon.status().await?;
    let before = status.drain.as_ref().filter(|drain| drain.exit.is_none());
    let undoing = status.state == Phase::Cancelling.name();
    let before = before.or(status.drain.as_ref().filter(|_| undoing));
    screen.go_on_unheard();
    if let Some(before) = before {
        screen.line(&format!(
            "drain {} of an earlier run was not finished ({}); it is brought to its end first",
            before.id, status.state
        ))?;
        let waiting = Waiting {
            id: before.id.clone(),
            ours: true,
        };
        match watch::wait_for(daemon, &waiting, interrupts()?, screen).await {
            Ok(Exit::Cancelled) if !undoing => return Ok(Exit::Cancelled),
            Ok(_) => {}
            Err(failure) if failure.is_silent() => return Err(failure),
            Err(failure) => screen.line(&failure.what)?,
        }
    }
    triggered(daemon, trigger, false, true, interrupts, screen).await
}

/// Starts a drain and, unless told otherwise, waits for its end.
pub(super) async fn triggered<D: Daemon, I: Stream<Item = ()>>(
    daemon: &D,
    trigger: &Trigger,
    no_wait: bool,
    ours: bool,
    interrupts: impl FnOnce() -> Result<I, Failure>,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let interrupts = interrupts()?;
    screen.go_on_unheard();
    let id = daemon.trigger(trigger).await?;
    if no_wait {
        screen.line(&format!(
            "drain {id} has begun; follow it with `vmdrain-agent status -w`"
        ))?;
        return Ok(Exit::Done);
    }
    screen.line(&format!("drain {id} has begun"))?;
    let waiting = Waiting { id, ours };
    watch::wait_for(daemon, &waiting, interrupts, screen).await
}

/// `cancel`.
pub(super) async fn cancel(
    daemon: &impl Daemon,
    abort_migrations: bool,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let answer = daemon.cancel(abort_migrations).await?;
    screen.line(&answer)?;
    Ok(Exit::Done)
}

/// `extend`.
pub(super) async fn extend(
    daemon: &impl Daemon,
    by: Duration,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let answer = daemon.extend(by).await?;
    screen.line(&answer)?;
    Ok(Exit::Done)
}

/// `release`.
pub(super) async fn release(
    daemon: &impl Daemon,
    ending: Ending,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let answer = daemon.release(ending).await?;
    screen.line(&answer)?;
    Ok(Exit::Done)
}

/// `restore`.
pub(super) async fn restore(daemon: &impl Daemon, screen: &mut Screen) -> Result<Exit, Failure> {
    let answer = daemon.restore().await?;
    screen.line(&answer)?;
    Ok(Exit::Done)
}

/// `status` without `-w`.
pub(super) async fn status(
    daemon: &impl Daemon,
    output: Format,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let status = daemon.status().await?;
    let text = match output {
        Format::Table => table::status(&status, screen.look()),
        Format::Json => watch::json(&status, true)?,
    };
    screen.line(text.trim_end())?;
    Ok(Exit::Done)
}
