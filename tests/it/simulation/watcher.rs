//! What the agent has been told so far, kept apart from the agent: the rules are checked against this.

use super::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use vmdrain_agent::drain::action::Outcome;
use vmdrain_agent::drain::answer::{Answer, judge};
use vmdrain_agent::drain::policy::Consent;
use vmdrain_agent::drain::world::{
    CordonMark, CordonNote, Fresh, MigrationView, NodeView, Picture, PodKind, PodView, VmiView,
};

/// Wake-ups of one minute without end: more than this is a busy loop.
const WAKES_A_MINUTE: u32 = 400;

#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// The last thing heard of the Node is that it is cordoned.
    pub(super) cordon_known: bool,
    node_version: u64,
    /// The newest Node that this process was shown.
    pub(super) seen_node: Option<NodeView>,
    /// It was shown the node uncordoned under our marker: what it is cordoned with later is not ours.
    pub(super) seen_uncordoned: bool,
    /// Uncordons that the server has carried out, by the drain of the marker that went with them.
    uncordons: BTreeMap<String, u32>,
    pub(super) pods: Option<Vec<PodView>>,
    fresh_pods: Option<Vec<PodView>>,
    pub(super) vmis: Option<Vec<VmiView>>,
    pub(super) migrations: Option<Vec<MigrationView>>,
    /// Pods with an eviction on the wire.
    pub(super) in_flight: BTreeMap<u64, (String, u64)>,
    /// VMIs that a real eviction was sent for.
    asked: BTreeSet<String>,
    /// Guests that were stopped: pod → when it was asked for first.
    pub(super) stops: BTreeMap<String, u64>,
    /// Real evictions per pod: count, and the first.
    posts: BTreeMap<String, (u64, u64)>,
    /// The last fresh list that was served: was the node truly empty, and when.
    last_confirm: Option<(bool, u64)>,
    last_accepted: u64,
    /// The agent knows that its hold is released.
    pub(super) released: bool,
    pub(super) crashes: u32,
    /// Somebody has given the node back by hand.
    pub(super) by_hand: bool,
    pub(super) foreign_cordon: bool,
    pub(super) foreign_uncordons: u32,
    pub(super) vanishes: u32,
    /// Whether guests may be stopped, as known when the last eviction of a pod was sent.
    consent: bool,
    wakes: (u64, u32),
    pub(super) now: u64,
}

impl Watcher {
    pub(super) fn woken(&mut self, now: u64) -> Result<(), String> {
        let minute = now / 60_000;
        if self.wakes.0 != minute {
            self.wakes = (minute, 0);
        }
        self.wakes.1 += 1;
        if self.wakes.1 > WAKES_A_MINUTE {
            return Err("a busy loop: hundreds of wake-ups in a minute".into());
        }
        Ok(())
    }

    pub(super) fn shown(&mut self, picture: &Picture) {
        if let Some(node) = picture.node.seen() {
            self.node(node);
        }
        self.pods = picture.pods.seen().cloned();
        self.vmis = picture.vmis.seen().cloned();
        self.migrations = picture.migrations.seen().cloned();
    }

    fn node(&mut self, node: &NodeView) {
        let version = node.resource_version.parse().unwrap_or(0);
        if version >= self.node_version {
            self.node_version = version;
            self.cordon_known = node.unschedulable;
            self.seen_uncordoned |=
                !node.unschedulable && matches!(node.cordon, CordonMark::Note(_));
            self.seen_node = Some(node.clone());
        }
    }

    pub(super) fn told(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Node(Ok(node)) => self.node(node),
            Outcome::Fresh(Ok(fresh)) => self.fresh(fresh),
            Outcome::Hold(Ok(hold)) => self.released = !hold.held,
            Outcome::Reply(Ok(reply)) => {
                if matches!(
                    judge(reply),
                    Answer::Marked | Answer::Granted | Answer::InProgress
                ) {
                    self.last_accepted = self.now;
                }
            }
            Outcome::Told(Ok(())) => self.last_accepted = self.now,
            Outcome::Node(Err(_))
            | Outcome::Fresh(Err(_))
            | Outcome::Hold(Err(_))
            | Outcome::Reply(Err(_))
            | Outcome::Volumes(_)
            | Outcome::Target(_)
            | Outcome::Hooks(_)
            | Outcome::Local(_)
            | Outcome::Told(Err(_))
            | Outcome::Logind(_) => {}
        }
    }

    /// A fresh list may be older than a picture that came before it: both count.
    fn fresh(&mut self, fresh: &Fresh) {
        self.fresh_pods = Some(fresh.pods.clone());
    }

    /// The pod as one of the two newest views shows it with a guest.
    pub(super) fn guest_pod(&self, uid: &str) -> Option<&PodView> {
        let pods = self.pods.iter().chain(&self.fresh_pods).flatten();
        pods.filter(|p| p.pod.uid == uid)
            .find(|p| p.kind == PodKind::Launcher && !p.is_empty_of_guest())
    }

    /// The server has uncordoned the node and taken this marker away.
    pub(super) fn uncordoned(&mut self, note: &CordonNote) -> Result<(), String> {
        let count = self.uncordons.entry(note.drain.clone()).or_default();
        *count += 1;
        if *count > 1 {
            return Err(format!(
                "the cordon of drain {} was undone twice",
                note.drain
            ));
        }
        Ok(())
    }

    pub(super) fn crashed(&mut self) {
        self.crashes += 1;
        self.seen_node = None;
        self.seen_uncordoned = false;
        self.cordon_known = false;
        self.node_version = 0;
        self.in_flight.clear();
        self.released = false;
    }

    pub(super) fn announced(&mut self) {
        self.released = false;
    }

    pub(super) fn vanished(&mut self) {
        self.vanishes += 1;
        self.released = false;
    }

    pub(super) fn confirmed(&mut self, empty: bool, at: u64) {
        self.last_confirm = Some((empty, at));
    }

    pub(super) fn confirmed_empty(&self) -> bool {
        self.last_confirm
            .is_some_and(|(empty, at)| empty && at >= self.last_accepted)
    }

    /// Notes a real eviction; how many there were of this pod, and since when.
    pub(super) fn posted(&mut self, pod: &str, vmi: &str, consent: bool, now: u64) -> (u64, u64) {
        self.asked.insert(vmi.to_owned());
        self.consent = consent;
        let (count, first) = self.posts.entry(pod.to_owned()).or_insert((0, now));
        *count += 1;
        (*count, *first)
    }

    pub(super) fn asked_for(&self, vmi: &str) -> bool {
        self.asked.contains(vmi)
    }

    pub(super) fn guest_stopped(&self, plan: &Plan) -> Result<(), String> {
        match plan.consent {
            Consent::Never => {
                Err("a guest was stopped although the configuration says never".into())
            }
            Consent::OnShutdown if !self.consent => {
                Err("a guest was stopped although the host stays up and nobody allowed it".into())
            }
            Consent::OnShutdown | Consent::Always => Ok(()),
        }
    }
}
