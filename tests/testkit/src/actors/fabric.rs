//! What do hosts know of each other without the API: is the other one powered, is its migration proxy up?
//!
//! This is the physics under the actors, not a way around the API: a migration breaks when a host or a virt-handler at one of its
//! ends goes away, and no API object says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// One host as the others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Powered and booted.
    pub on: bool,
    /// virt-handler runs.
    pub handler: bool,
    /// It does not start before, whatever else happens.
    pub handler_not_before: Duration,
    /// Counts the losses of its proxies: a migration that spans one is broken.
    pub losses: u64,
    /// Counts the boots.
    pub boots: u64,
    /// Boot id of the running system.
    pub boot_id: String,
    /// The kubelet ends all pods within this time (graceful node shutdown), since then.
    pub shutting_down: Option<(Duration, Duration)>,
}

/// All hosts; clones share it.
#[derive(Clone, Debug)]
pub struct Fabric {
    hosts: Arc<Mutex<BTreeMap<String, Host>>>,
    turned: Arc<watch::Sender<u64>>,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            hosts: Arc::default(),
            turned: Arc::new(watch::channel(0).0),
        }
    }
}

impl Fabric {
    /// A host, off when nobody knows it.
    pub fn host(&self, node: &str) -> Host {
        self.hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .cloned()
            .unwrap_or_default()
    }

    /// Changes a host and wakes every actor.
    pub fn change(&self, node: &str, change: impl FnOnce(&mut Host)) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = hosts.entry(node.to_owned()).or_default();
        let before = host.clone();
        change(host);
        if before.on && !host.on || before.handler && !host.handler {
            host.losses += 1;
        }
        if !before.on && host.on {
            host.boots += 1;
        }
        drop(hosts);
        self.turned.send_modify(|count| *count += 1);
    }

    /// Tells whenever a host changed.
    pub fn turned(&self) -> watch::Receiver<u64> {
        self.turned.subscribe()
    }
}
