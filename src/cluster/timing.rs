//! How often, how long, how late: every time constant of the adapter.

use crate::drain::policy::seconds;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time constants of the Kubernetes adapter.
///
/// The watches are the balance of two wishes: a dead connection is noticed soon, and a drain of ten
/// minutes costs few requests. A watch lives for `watch`; silence is met by asking again from
/// the last version seen, which costs one request, misses nothing and proves that the server lives.
/// Launcher pods are watched most closely, because they decide when the host may go; while VMs move
/// they are never silent for long, so this costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// How long the server keeps one watch open. Kubernetes clients use at most 295 s.
    #[serde(with = "seconds")]
    pub watch: Duration,
    /// Silence (no event, no bookmark) after which the watch on the pods is opened anew.
    #[serde(with = "seconds")]
    pub pods_silence: Duration,
    /// The same for the other watches. Longer than the minute after which servers send a bookmark,
    /// so that a healthy watch costs nothing; a dead one is usually found sooner, because the first
    /// watch that is found dead has all others opened again.
    #[serde(with = "seconds")]
    pub silence: Duration,
    /// Time limit of one list page, and of the opening of a watch.
    #[serde(with = "seconds")]
    pub request: Duration,
    /// First pause after a failed list or watch; doubles, with jitter.
    #[serde(with = "seconds")]
    pub retry_first: Duration,
    /// Longest such pause.
    #[serde(with = "seconds")]
    pub retry_most: Duration,
    /// How long a failing list or watch goes on showing what was last seen before it is called broken.
    #[serde(with = "seconds")]
    pub keep: Duration,
    /// First pause before a forbidden or missing kind is tried again; grows fourfold.
    #[serde(with = "seconds")]
    pub refused_first: Duration,
    /// Longest such pause.
    #[serde(with = "seconds")]
    pub refused_most: Duration,
    /// The same for the own Node and its pods, without which there is no drain.
    #[serde(with = "seconds")]
    pub refused_vital: Duration,
    /// Pause between two looks at the KubeVirt object.
    #[serde(with = "seconds")]
    pub kubevirt: Duration,
    /// Pause between two looks at the disruption budgets while one of them blocks a pod.
    #[serde(with = "seconds")]
    pub budgets: Duration,
    /// How long after the last refusal by a budget they are looked at again and again.
    #[serde(with = "seconds")]
    pub budgets_interest: Duration,
    /// A picture that only got fresher is published at most this often.
    #[serde(with = "seconds")]
    pub refresh: Duration,
    /// Shortest time between two rebuilds of the client that a 401 asked for.
    #[serde(with = "seconds")]
    pub rebuild: Duration,
    /// Time limit for a TCP and TLS connection.
    #[serde(with = "seconds")]
    pub connect: Duration,
    /// Time limit for one write to a connection.
    #[serde(with = "seconds")]
    pub write: Duration,
    /// Time without any byte after which a connection is given up; longer than every silence above.
    #[serde(with = "seconds")]
    pub read: Duration,
    /// Objects in one page of a list.
    pub page: u32,
}

impl Default for Timing {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            watch: s(290),
            pods_silence: s(30),
            silence: s(70),
            request: s(10),
            retry_first: Duration::from_millis(200),
            retry_most: s(5),
            keep: s(60),
            refused_first: s(10),
            refused_most: s(300),
            refused_vital: s(30),
            kubevirt: s(300),
            budgets: s(30),
            budgets_interest: s(120),
            refresh: s(5),
            rebuild: s(10),
            connect: s(5),
            write: s(15),
            read: s(90),
            page: 250,
        }
    }
}
