//! The eyes: thin watches of everything that concerns this node, coalesced into one [`Picture`].
//!
//! ```text
//! follow(node) ──┐
//! follow(pods) ──┤
//! follow(VMIs here), follow(VMIs coming) ──┼─► Board ──► publish ──► watch::Receiver<Picture>
//! follow(VMIMs) ─┤     one slot per kind      newest wins
//! poll(budgets), poll(KubeVirt), VMs by name ─┘
//! ```
//!
//! There are watches only while somebody holds the receiver: an idle agent makes no request.

mod backoff;
mod board;
mod doors;
mod event;
mod follow;
mod machines;
mod once;
mod slot;

use super::client::Connection;
use super::collection::Collection;
use super::timing::Timing;
use super::types::kubevirt::KubeVirt;
use super::types::migration::Migration;
use super::types::node::Node;
use super::types::other::Other;
use super::types::pdb::Pdb;
use super::types::pod::Pod;
use super::types::vmi::Vmi;
use crate::agent::ports::Clock;
use crate::drain::time::Mono;
use crate::drain::world::Picture;
use board::Board;
pub(super) use doors::Doors;
use follow::Follower;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All that a drain needs to see.
    Everything,
    /// That, and the pods that are no VM's.
    AllPods,
    /// The own Node: a host that has booted waits for nothing else.
    Node,
}

/// What all followers share.
pub(super) struct Scene<C> {
    pub(super) node: String,
    pub(super) connection: Arc<Connection>,
    pub(super) clock: Arc<C>,
    pub(super) timing: Arc<Timing>,
    pub(super) interest: Arc<Interest>,
    pub(super) board: Board,
    /// Who may open a connection now.
    doors: Arc<Doors>,
    /// One watch was found dead: the others are looked at as well.
    pub(super) suspicion: Notify,
}

/// Whether somebody wants to know about disruption budgets: the evictions that one of them has refused.
#[derive(Debug, Default)]
pub(super) struct Interest {
    last: Mutex<Option<Mono>>,
    raised: Notify,
}

impl Interest {
    /// A budget has just refused an eviction.
    pub(super) fn raise(&self, now: Mono) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.raised.notify_one();
    }

    fn since(&self, now: Mono) -> Option<Duration> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| now.since(last))
    }
}

impl<C: Clock> Scene<C> {
    pub(super) fn new(
        node: &str,
        connection: Arc<Connection>,
        clock: Arc<C>,
        timing: Arc<Timing>,
        interest: Arc<Interest>,
        doors: Arc<Doors>,
    ) -> Self {
        Self {
            node: node.to_owned(),
            connection,
            clock,
            timing,
            interest,
            board: Board::new(),
            doors,
            suspicion: Notify::new(),
        }
    }

    /// Watches until nobody holds the receiver any more, or until the task is aborted.
    pub(super) async fn run(self, scope: Scope, pictures: watch::Sender<Picture>) {
        let scene = Arc::new(self);
        // Dropped, and with it every follower, when this function ends in whatever way.
        let mut followers = JoinSet::new();
        match scope {
            Scope::Everything => scene.spawn_followers(&mut followers),
            Scope::AllPods => {
                scene.spawn_followers(&mut followers);
                scene.spawn_others(&mut followers);
            }
            Scope::Node => scene.spawn_node(&mut followers),
        }
        tokio::select! {
            () = pictures.closed() => {}
            () = scene.publish(&pictures) => {}
        }
    }

    fn spawn_node(self: &Arc<Self>, followers: &mut JoinSet<()>) {
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::node(&self.node),
                slot: |slots| &mut slots.node,
                silence: self.timing.silence,
            }
            .follow::<Node>(),
        );
    }

    /// The pods first: everything waits for them.
    fn spawn_followers(self: &Arc<Self>, followers: &mut JoinSet<()>) {
        let timing = &self.timing;
        let node = self.node.as_str();
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::pods(node),
                slot: |slots| &mut slots.pods,
                silence: timing.pods_silence,
            }
            .follow::<Pod>(),
        );
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::vmis_here(node),
                slot: |slots| &mut slots.here,
                silence: timing.silence,
            }
            .follow::<Vmi>(),
        );
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::vmis_coming(node),
                slot: |slots| &mut slots.coming,
                silence: timing.silence,
            }
            .follow::<Vmi>(),
        );
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::migrations(),
                slot: |slots| &mut slots.migrations,
                silence: timing.silence,
            }
            .follow::<Migration>(),
        );
        self.spawn_pollers(followers);
        let scene = Arc::clone(self);
        followers.spawn(async move { scene.read_machines().await });
        // Read a moment ago for the cordon: it can wait.
        self.spawn_node(followers);
    }

    /// Last: their turn comes when the VMs are gone.
    fn spawn_others(self: &Arc<Self>, followers: &mut JoinSet<()>) {
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::others(&self.node),
                slot: |slots| &mut slots.others,
                silence: self.timing.pods_silence,
            }
            .follow::<Other>(),
        );
    }

    /// What changes seldom, or may be read but not watched.
    fn spawn_pollers(self: &Arc<Self>, followers: &mut JoinSet<()>) {
        let every = self.timing.kubevirt;
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::kubevirts(),
                slot: |slots| &mut slots.kubevirts,
                silence: self.timing.silence,
            }
            .poll::<KubeVirt, _>(move || sleep(every)),
        );
        let scene = Arc::clone(self);
        followers.spawn(
            Follower {
                scene: Arc::clone(self),
                collection: Collection::budgets(),
                slot: |slots| &mut slots.budgets,
                silence: self.timing.silence,
            }
            .poll::<Pdb, _>(move || {
                let scene = Arc::clone(&scene);
                async move { scene.until_budgets_matter().await }
            }),
        );
    }

    /// Budgets are looked at once, and again and again only while one of them blocks a pod.
    async fn until_budgets_matter(&self) {
        let timing = &self.timing;
        let since = self.interest.since(self.clock.now());
        if since.is_some_and(|since| since < timing.budgets_interest) {
            sleep(timing.budgets).await;
        } else {
            self.interest.raised.notified().await;
        }
    }

    async fn publish(&self, pictures: &watch::Sender<Picture>) {
        let mut last = self.clock.now();
        loop {
            self.board.changed().await;
            let now = self.clock.now();
            let due = now.since(last) >= self.timing.refresh;
            let booted_at = self.clock.booted_at();
            if let Some(picture) = self.board.picture(&self.node, now, booted_at, due) {
                last = now;
                pictures.send_replace(picture);
            }
        }
    }
}
