//! Carries out one action of the core, with a time limit, and answers with its outcome. Never decides.

use super::ports::{Cluster, Host};
use crate::drain::action::{Action, EffectId, Fault, FaultClass, LogindAnswer, Outcome};
use crate::drain::answer::Reply;
use crate::drain::world::NodeView;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// An effect under way.
type Work = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// An action that takes time, as a future; `None` for one that the driver does itself.
pub(super) fn carry_out<C: Cluster, H: Host>(
    action: Action,
    cluster: &Arc<C>,
    host: &Arc<H>,
    request: Duration,
) -> Option<(EffectId, Work)> {
    let (cluster, host) = (Arc::clone(cluster), Arc::clone(host));
    // The API server itself waits 10 s for virt-api: a little more, so that its answer wins.
    let limit = request.mul_f64(1.25);
    Some(match action {
        Action::ReadNode(id) => node(id, limit, async move { cluster.read_node().await }),
        Action::Cordon {
            id,
            resource_version: version,
            note,
        } => node(id, limit, async move {
            cluster.cordon(&version, note.as_ref()).await
        }),
        Action::Uncordon {
            id,
            resource_version: version,
        } => node(id, limit, async move { cluster.uncordon(&version).await }),
        Action::Unmark {
            id,
            resource_version: version,
        } => node(id, limit, async move { cluster.unmark(&version).await }),
        Action::Acknowledge {
            id,
            resource_version: version,
            value,
        } => node(id, limit, async move {
            cluster.acknowledge(&version, &value).await
        }),
        Action::Evict { id, pod, dry_run } => {
            reply(id, limit, async move { cluster.evict(&pod, dry_run).await })
        }
        Action::CancelEvacuation { id, vmi } => {
            reply(
                id,
                limit,
                async move { cluster.cancel_evacuation(&vmi).await },
            )
        }
        Action::DeleteMigration { id, migration } => reply(id, limit, async move {
            cluster.delete_migration(&migration).await
        }),
        Action::StartVm { id, vm } => reply(id, limit, async move { cluster.start_vm(&vm).await }),
        Action::StopGuest { id, pod } => {
            reply(id, limit, async move { cluster.stop_guest(&pod).await })
        }
        Action::Confirm { id, others } => {
            let confirm = async move { within(limit * 2, cluster.confirm(others)).await };
            (id, Box::pin(async move { Outcome::Fresh(confirm.await) }))
        }
        Action::ReadVolumes(id) => {
            let volumes = async move { within(limit, cluster.volumes()).await };
            (id, Box::pin(async move { Outcome::Volumes(volumes.await) }))
        }
        Action::ReadTarget { id, migration } => {
            let target = async move { within(limit, cluster.target(&migration)).await };
            (id, Box::pin(async move { Outcome::Target(target.await) }))
        }
        effect @ (Action::Release(_)
        | Action::LookHere(_)
        | Action::TellGuest { .. }
        | Action::TakeHold(_)
        | Action::AskLogind { .. }
        | Action::RunHooks { .. }) => return on_the_host(effect, host, limit),
        Action::Watch
        | Action::WatchAll
        | Action::WatchNode
        | Action::Unwatch
        | Action::Persist(_)
        | Action::ForgetRecord
        | Action::Answer(..)
        | Action::Tell(_) => return None,
    })
}

/// What is done to the host; `None` for an action that is not.
fn on_the_host<H: Host>(action: Action, host: Arc<H>, limit: Duration) -> Option<(EffectId, Work)> {
    if let Action::LookHere(id) = action {
        let look = async move { of_the_host(limit, host.look_here()).await };
        return Some((id, Box::pin(async move { Outcome::Local(look.await) })));
    }
    if let Action::TellGuest { id, guest } = action {
        let tell = async move { of_the_host(limit, host.tell_guest(&guest)).await };
        return Some((id, Box::pin(async move { Outcome::Told(tell.await) })));
    }
    if let Action::Release(id) = action {
        return Some((
            id,
            Box::pin(async move { Outcome::Hold(within_text(limit, host.release()).await) }),
        ));
    }
    if let Action::TakeHold(id) = action {
        return Some((
            id,
            Box::pin(async move { Outcome::Hold(within_text(limit, host.take_hold()).await) }),
        ));
    }
    if let Action::AskLogind { id, then } = action {
        return Some((
            id,
            Box::pin(async move {
                // Polkit and a busy logind may take their time; its own limit is 25 s.
                let limit = limit.max(Duration::from_secs(30));
                let answer = tokio::time::timeout(limit, host.ask_logind(then)).await;
                Outcome::Logind(answer.unwrap_or_else(|_| {
                    LogindAnswer::Failed("logind did not answer in time".into())
                }))
            }),
        ));
    }
    let Action::RunHooks { id, run } = action else {
        return None;
    };
    Some((
        id,
        Box::pin(async move {
            // Every hook has a limit of its own; the rest is for ending them.
            let limit = run.all + limit;
            let report = tokio::time::timeout(limit, host.run_hooks(&run)).await;
            Outcome::Hooks(
                report.map_err(|_| format!("the {} hooks did not end in time", run.gate)),
            )
        }),
    ))
}

/// A request that answers with the own Node.
fn node(
    id: EffectId,
    limit: Duration,
    request: impl Future<Output = Result<NodeView, Fault>> + Send + 'static,
) -> (EffectId, Work) {
    (
        id,
        Box::pin(async move { Outcome::Node(within(limit, request).await) }),
    )
}

/// A request whose answer the core judges.
fn reply(
    id: EffectId,
    limit: Duration,
    request: impl Future<Output = Result<Reply, Fault>> + Send + 'static,
) -> (EffectId, Work) {
    (
        id,
        Box::pin(async move { Outcome::Reply(within(limit, request).await) }),
    )
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Fault {
            class: FaultClass::Transient,
            text: format!("no answer within {:.1} s", limit.as_secs_f64()),
        })
    })
}

/// Nothing but the kernel is asked.
async fn of_the_host<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let late = |_| {
        Err(format!(
            "the host did not answer within {:.1} s",
            limit.as_secs_f64()
        ))
    };
    tokio::time::timeout(limit, work).await.unwrap_or_else(late)
}

async fn within_text<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let late = || {
        Err(format!(
            "logind did not answer within {:.1} s",
            limit.as_secs_f64()
        ))
    };
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| late())
}
