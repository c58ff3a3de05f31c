//! What `doctor` has to know of the cluster: the own Node, rights, KubeVirt's settings, and the plan.

use super::planner;
use super::ports::{Clock, Cluster};
use crate::cluster::{Connected, KubeCluster};
use crate::doctor::ClusterFacts;
use crate::drain::plan::{NodeRoom, Scene, handler};
use std::time::Duration;

/// Looks. Nothing is changed; every request has a time limit.
pub async fn cluster<C: Clock>(
    connected: &Connected<C>,
    scene: &Scene,
    request: Duration,
) -> ClusterFacts {
    let cluster: &KubeCluster<C> = &connected.cluster;
    let node_name = connected.node_name.clone();
    let read = tokio::time::timeout(request, cluster.read_node()).await;
    let node = match read {
        Ok(Ok(node)) => Ok(node),
        Ok(Err(fault)) => Err(fault.text),
        Err(_) => Err(format!("no answer within {:.1} s", request.as_secs_f64())),
    };
    let mut facts = ClusterFacts {
        node_name,
        ..ClusterFacts::default()
    };
    if node.is_ok() {
        let (rights, (survey, plan)) =
            tokio::join!(cluster.rights(), planner::look(cluster, scene, request));
        facts.rights = rights;
        facts.kubevirt = survey.picture.kubevirt.clone();
        facts.handler = handler(&survey, scene);
        facts.others = survey
            .nodes
            .seen()
            .map(|nodes| others(nodes, &facts.node_name));
        facts.plan = Some(plan);
    }
    facts.node = Some(node);
    facts
}

/// Other nodes: how many could take a VM, and how many there are.
fn others(nodes: &[NodeRoom], own: &str) -> (usize, usize) {
    const SCHEDULABLE: &str = "kubevirt.io/schedulable";
    let others = nodes.iter().filter(|node| node.name != own);
    let usable = others.clone().filter(|node| {
        let handler = node
            .labels
            .get(SCHEDULABLE)
            .is_some_and(|value| value == "true");
        node.ready && !node.unschedulable && handler
    });
    (usable.count(), others.count())
}
