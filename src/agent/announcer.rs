//! Who tells the cluster, and when? Kubernetes Events, one after the other, behind the requests of the drain.

use super::ports::Cluster;
use crate::drain::action::Notice;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Events that may wait; more are of no use to anybody.
const QUEUE: usize = 300;
/// A drain that is never without a request under way is told of all the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way to the task that posts Events.
#[derive(Debug)]
pub(super) struct Announcer {
    queue: mpsc::Sender<Notice>,
    /// Requests of the drain that are under way.
    busy: watch::Sender<usize>,
}

impl Announcer {
    /// The announcer, and the task that posts until the announcer is dropped. `limit` bounds each request.
    pub(super) fn new<C: Cluster>(
        cluster: Arc<C>,
        limit: Duration,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, notices) = mpsc::channel(QUEUE);
        let (busy, quiet) = watch::channel(0);
        (
            Self { queue, busy },
            post_all(cluster, notices, quiet, limit),
        )
    }

    /// Wants this told. Best effort: the journal has it in any case.
    pub(super) fn tell(&self, notice: Notice) {
        if let Err(error) = self.queue.try_send(notice) {
            tracing::debug!("event not written: {error}");
        }
    }

    /// How many requests of the drain are under way.
    pub(super) fn busy(&self, requests: usize) {
        self.busy.send_if_modified(|shown| {
            let news = *shown != requests;
            *shown = requests;
            news
        });
    }
}

async fn post_all<C: Cluster>(
    cluster: Arc<C>,
    mut notices: mpsc::Receiver<Notice>,
    mut busy: watch::Receiver<usize>,
    limit: Duration,
) {
    while let Some(notice) = notices.recv().await {
        let _ = timeout(PATIENCE, busy.wait_for(|requests| *requests == 0)).await;
        match timeout(limit, cluster.event(&notice)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => tracing::debug!("event not written: {}", fault.text),
            Err(_) => tracing::debug!("event not written: no answer in time"),
        }
    }
}
