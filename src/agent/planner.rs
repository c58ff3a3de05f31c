//! Makes a plan: one look at the cluster, a dry-run eviction for every VM, and the core's word on both.
//!
//! Nothing is changed by it: a dry run leaves no mark. It needs no part of the machine, so a drain that is under way
//! goes on undisturbed.

use super::ports::Cluster;
use crate::drain::answer::judge;
use crate::drain::others::Scope;
use crate::drain::plan::{Plan, Scene, Survey, asks, plan};
use futures_util::StreamExt;
use std::time::Duration;
use tokio::time::timeout;

/// As many as a drain sends at a time: virt-api 1.5 allows itself 5 requests a second.
const IN_FLIGHT: usize = 10;
/// The bus waits a minute for the plan: what has not been answered by then is told from the picture.
const LONGEST: Duration = Duration::from_secs(40);

/// Looks, asks, plans. `request`: time limit of one request.
pub async fn make<C: Cluster>(cluster: &C, scene: &Scene, request: Duration) -> Plan {
    look(cluster, scene, request).await.1
}

/// The same, and what was seen.
pub async fn look<C: Cluster>(cluster: &C, scene: &Scene, request: Duration) -> (Survey, Plan) {
    let survey = cluster
        .survey(scene.policy.others.scope == Scope::AllPods)
        .await;
    let answers = ask(cluster, &survey, scene, request).await;
    let plan = plan(&survey, &answers, scene);
    (survey, plan)
}

/// The answers that came in time.
async fn ask<C: Cluster>(
    cluster: &C,
    survey: &Survey,
    scene: &Scene,
    request: Duration,
) -> crate::drain::plan::Answers {
    let late = |limit: Duration| format!("no answer within {:.1} s", limit.as_secs_f64());
    // The API server itself waits 10 s for virt-api: a little more, so that its answer wins.
    let limit = request.mul_f64(1.25);
    let questions =
        futures_util::stream::iter(asks(survey, &scene.policy.node_name)).map(|pod| async move {
            let answer = match timeout(limit, cluster.evict(&pod, true)).await {
                Ok(Ok(reply)) => Ok(judge(&reply)),
                Ok(Err(fault)) => Err(fault.text),
                Err(_) => Err(late(limit)),
            };
            (pod.uid, answer)
        });
    let answered = questions.buffer_unordered(IN_FLIGHT);
    let mut answers = crate::drain::plan::Answers::new();
    let collect = async {
        tokio::pin!(answered);
        while let Some((uid, answer)) = answered.next().await {
            answers.insert(uid, answer);
        }
    };
    if timeout(LONGEST, collect).await.is_err() {
        tracing::debug!("not every dry run was answered in time; the plan goes without them");
    }
    answers
}
