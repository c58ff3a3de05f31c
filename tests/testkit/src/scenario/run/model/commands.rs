//! The commands of an operator, given to the driver as the bus would, with the exit codes of the command line.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use vmdrain_agent::agent::checkup;
use vmdrain_agent::agent::command::{Answer, Command, Handle};
use vmdrain_agent::cli::{self, look::Look};
use vmdrain_agent::cluster::Connected;
use vmdrain_agent::doctor::{Facts, LogindFacts, UnitFacts, UnitState, judge};
use vmdrain_agent::drain::action::HoldView;
use vmdrain_agent::drain::others::Scope;
use vmdrain_agent::drain::plan::Scene as PlanScene;
use vmdrain_agent::drain::policy::{OnDeadline, Policy};
use vmdrain_agent::drain::trigger::{Ending, Trigger};

use super::super::scene::{Results, Saved};
use super::super::stage::NotPlayed;
use crate::host::ModelClock;
use crate::scenario::event::agent::{AgentDo, Release, Trigger as Keys};

const REFUSED: i32 = 4;
const NO_DAEMON: i32 = 6;

/// Gives a command and keeps its result when it has one; does not wait for it.
pub(super) fn give(
    what: &AgentDo,
    handle: Option<Handle>,
    results: Results,
) -> Result<(), NotPlayed> {
    let (answer, answered) = oneshot::channel();
    let (command, save, waits) = match what {
        AgentDo::Trigger(keys) => {
            let waits = !keys.no_wait;
            (
                Command::Trigger(trigger(keys)?, answer),
                keys.save.clone(),
                waits,
            )
        }
        AgentDo::Cancel(keys) => {
            let abort_migrations = keys.abort_migrations;
            let command = Command::Cancel {
                abort_migrations,
                signal: String::new(),
                answer,
            };
            (command, keys.save.clone(), false)
        }
        AgentDo::Restore(keys) => (Command::Restore(answer), keys.save.clone(), false),
        AgentDo::Extend(keys) => {
            let by = keys.by.0;
            (Command::Extend { by, answer }, keys.save.clone(), false)
        }
        AgentDo::Release(keys) => {
            let ending = ending(keys);
            (
                Command::Release { ending, answer },
                keys.save.clone(),
                false,
            )
        }
        AgentDo::Plan(_)
        | AgentDo::Doctor(_)
        | AgentDo::Reload(_)
        | AgentDo::Kill(_)
        | AgentDo::Stop(_)
        | AgentDo::Restart(_)
        | AgentDo::Start(_)
        | AgentDo::File(_) => return Err(NotPlayed::Cannot("this is no command".into())),
    };
    tokio::spawn(async move {
        let saved = carry_out(handle, command, answered, waits).await;
        results.keep(save.as_deref(), saved);
    });
    Ok(())
}

/// How a release ends the drain.
pub(crate) fn ending(keys: &Release) -> Ending {
    if keys.shutdown_vms {
        Ending::ShutdownVms
    } else if keys.proceed {
        Ending::Proceed
    } else {
        Ending::Policy
    }
}

/// `plan`, as the daemon and the command line make and show it.
pub(super) fn plan(handle: Option<Handle>, save: Option<String>, results: Results) {
    tokio::spawn(async move {
        let plan = match handle {
            Some(handle) => handle.plan_now().await,
            None => None,
        };
        let saved = match plan {
            Some(plan) => {
                let exit = i32::from(cli::plan::exit(&plan).code());
                let json = serde_json::to_value(&plan).unwrap_or_default();
                said(exit, &cli::plan::table(&plan, Look::plain()), json)
            }
            None => said(NO_DAEMON, "the daemon cannot be reached", Value::Null),
        };
        results.keep(save.as_deref(), saved);
    });
}

/// What a check-up on this front sees besides the cluster.
pub(super) struct Checkup {
    pub(super) connected: Connected<ModelClock>,
    pub(super) policy: Policy,
    pub(super) hold: HoldView,
    /// State of the daemon; `None`: it does not run.
    pub(super) daemon: Option<String>,
}

/// `doctor`: the real checks of the cluster; of the host what the model has of one.
pub(super) fn doctor(checkup: Checkup, save: Option<String>, results: Results) {
    tokio::spawn(async move {
        let Checkup {
            connected,
            policy,
            hold,
            daemon,
        } = checkup;
        let facts = Facts {
            root: true,
            daemon: daemon
                .map(|state| (env!("CARGO_PKG_VERSION").to_owned(), state))
                .ok_or_else(|| "no vmdrain-agent is on the bus".into()),
            logind: Ok(LogindFacts {
                limit: hold.limit.unwrap_or_default(),
                trouble: hold.trouble.clone(),
                limit_by: hold.limit_by.clone(),
                held: hold.held,
                others: hold.others.clone(),
            }),
            // The model has no units: the package counts as installed.
            units: Ok(packaged()),
            machine_id: policy.machine_id.clone(),
            system_uuid: policy.system_uuid.clone(),
            cluster: {
                let request = policy.timing.request;
                let scene = PlanScene::at_rest(policy, hold);
                checkup::cluster(&connected, &scene, request).await
            },
            ..Facts::default()
        };
        let report = judge(&facts);
        let json = serde_json::to_value(&report).unwrap_or_default();
        let exit = i32::from(report.exit());
        let saved = said(exit, &cli::doctor::table(&report, Look::plain()), json);
        results.keep(save.as_deref(), saved);
    });
}

fn packaged() -> UnitFacts {
    let unit = UnitState {
        active: "active".into(),
        file: "enabled".into(),
        ..UnitState::default()
    };
    UnitFacts {
        agent: unit.clone(),
        hold: unit,
        stop_limit: Some(Duration::from_secs(28 * 60)),
        ..UnitFacts::default()
    }
}

/// The options of the command as the bus would take them.
pub(crate) fn trigger(keys: &Keys) -> Result<Trigger, NotPlayed> {
    if keys.force {
        return Err(NotPlayed::NotYet("`--force`"));
    }
    let known = |word: &str| {
        let found = OnDeadline::ALL.into_iter().find(|p| p.word() == word);
        found.ok_or_else(|| NotPlayed::Cannot(format!("there is no policy `{word}`")))
    };
    let on_deadline = keys.on_deadline.as_deref().map(known).transpose()?;
    let known = |word: &str| {
        let found = Scope::ALL.into_iter().find(|scope| scope.word() == word);
        found.ok_or_else(|| NotPlayed::Cannot(format!("there is no scope `{word}`")))
    };
    let scope = keys.scope.as_deref().map(known).transpose()?;
    Ok(Trigger {
        then: keys.then,
        reason: keys.reason.clone(),
        deadline: keys.deadline.map(|span| span.0),
        on_deadline,
        allow_guest_shutdown: keys.allow_guest_shutdown,
        keep_cordoned: keys.keep_cordoned,
        scope,
        shutdown_vms: keys.shutdown_vms,
        stop_job: false,
        signal: String::new(),
    })
}

async fn carry_out(
    handle: Option<Handle>,
    command: Command,
    answered: oneshot::Receiver<Answer>,
    waits: bool,
) -> Saved {
    let gone = || said(NO_DAEMON, "the daemon cannot be reached", Value::Null);
    let Some(handle) = handle else {
        return gone();
    };
    if handle.commands.send(command).await.is_err() {
        return gone();
    }
    match answered.await {
        Err(_) => gone(),
        Ok(Err(refusal)) => said(REFUSED, &refusal.to_string(), Value::Null),
        Ok(Ok(id)) if waits => wait(handle, &id).await.unwrap_or_else(gone),
        Ok(Ok(text)) => said(0, &text, Value::Null),
    }
}

/// Follows a drain to its end; `None`: the driver has ended before.
async fn wait(mut handle: Handle, id: &str) -> Option<Saved> {
    loop {
        let status = handle.status.borrow_and_update().clone();
        if let Some(drain) = status.drain.as_ref().filter(|drain| drain.id == id)
            && let Some(exit) = drain.exit
        {
            let json = serde_json::to_value(&*status).unwrap_or_default();
            return Some(said(i32::from(exit), &status.says, json));
        }
        handle.status.changed().await.ok()?;
    }
}

fn said(exit: i32, output: &str, json: Value) -> Saved {
    Saved {
        exit,
        output: output.into(),
        json,
    }
}
