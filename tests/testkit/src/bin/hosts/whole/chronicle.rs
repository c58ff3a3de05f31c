//! What has the API server shown of a host's node and its launcher pods, and when?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::runtime::watcher;
use serde_json::Value;
use testkit::actors::feed::{Feed, Objects};
use testkit::clock::SimClock;
use testkit::kubevirt::fields::{annotation, condition, ended, is_launcher, label, text};
use testkit::kubevirt::names::{self, kind};

use super::plane::Plane;

/// The annotation with which the agent marks its cordon.
const MARK: &str = "vmdrain.io/cordon";

/// The node as it was shown at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Since when, on the case's clock.
    pub(crate) at: Duration,
    /// `spec.unschedulable`.
    pub(crate) cordoned: bool,
    /// The cordon is the agent's.
    pub(crate) ours: bool,
    /// Ready.
    pub(crate) ready: bool,
    /// What Ready says.
    pub(crate) message: String,
    /// The boot of which the kubelet has told.
    pub(crate) boot_id: String,
    /// virt-handler has said that it takes VMs, and its devices are registered.
    pub(crate) takes_vms: bool,
    /// Launcher pods whose guest's container runs, as far as is told.
    pub(crate) launchers: usize,
}

/// All of it, oldest first. Dropping it ends the watching.
#[derive(Debug)]
pub(crate) struct Chronicle {
    pages: Arc<Mutex<Vec<Page>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Chronicle {
    /// Begins to watch.
    pub(super) fn start(plane: &Arc<Plane>, node: &str, clock: &SimClock) -> Self {
        let pages = Arc::<Mutex<Vec<Page>>>::default();
        let (shared, client) = (pages.clone(), plane.admin());
        let (node, clock) = (node.to_owned(), clock.clone());
        let task = plane.spawn(async move {
            let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
            let here = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
            let (nodes, _nodes) = Feed::start(&client, kind::NODES, own);
            let (pods, _pods) = Feed::start(&client, kind::PODS, here);
            let (mut one, mut many) = (nodes.changed(), pods.changed());
            loop {
                one.borrow_and_update();
                many.borrow_and_update();
                if let (Some(nodes), Some(pods)) = (nodes.objects(), pods.objects())
                    && let Some(node) = nodes.values().next()
                {
                    let page = page(node, &pods, clock.elapsed());
                    let mut all = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let same = all.last().is_some_and(|last| {
                        Page {
                            at: page.at,
                            ..last.clone()
                        } == page
                    });
                    if !same {
                        all.push(page);
                    }
                }
                // A watch that has ended ends with the plane.
                tokio::select! {
                    _ = one.changed() => {}
                    _ = many.changed() => {}
                }
            }
        });
        Self { pages, task }
    }

    /// Everything until now.
    pub(crate) fn pages(&self) -> Vec<Page> {
        self.pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The newest.
    pub(crate) fn now(&self) -> Option<Page> {
        self.pages().pop()
    }

    /// When the node was cordoned by the agent the first time.
    pub(crate) fn cordoned_at(&self) -> Option<Duration> {
        let pages = self.pages();
        pages
            .iter()
            .find(|page| page.cordoned && page.ours)
            .map(|page| page.at)
    }

    /// When the last launcher was told to have ended; `None` while one runs.
    pub(crate) fn empty_at(&self) -> Option<Duration> {
        let pages = self.pages();
        let last = pages.iter().rposition(|page| page.launchers > 0);
        pages.get(last? + 1).map(|page| page.at)
    }

    /// How often the node was given back.
    pub(crate) fn uncordons(&self) -> usize {
        self.pages()
            .windows(2)
            .filter(|pair| pair[0].cordoned && !pair[1].cordoned)
            .count()
    }
}

impl Drop for Chronicle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn page(node: &Value, pods: &Objects, at: Duration) -> Page {
    let ready = condition(node, "Ready").cloned().unwrap_or_default();
    let kvm = &node["status"]["allocatable"][names::KVM];
    let launchers = pods
        .values()
        .filter(|pod| is_launcher(pod) && runs(pod))
        .count();
    Page {
        at,
        cordoned: node["spec"]["unschedulable"] == true,
        ours: annotation(node, MARK).is_some(),
        ready: ready["status"] == "True",
        message: text(&ready, "message").to_owned(),
        boot_id: text(node, "status.nodeInfo.bootID").to_owned(),
        takes_vms: label(node, names::SCHEDULABLE) == "true"
            && kvm.as_str().is_some_and(|count| count != "0"),
        launchers,
    }
}

/// Its guest's container runs or may run.
fn runs(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let compute = statuses
        .into_iter()
        .flatten()
        .find(|one| one["name"] == "compute");
    let over = compute.is_some_and(|one| one["state"]["terminated"].is_object());
    !ended(pod) && !over && text(pod, "status.phase") == "Running"
}
