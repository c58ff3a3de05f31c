//! Requests on the own Node (annotation `vmdrain.io/request`, off by default): seen, written down as taken, carried out.
//!
//! A request is taken by writing its text into `vmdrain.io/handled`, before anything is done: so it is carried out once,
//! whatever is restarted, and whoever asked can see it. Without that write nothing happens.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, FaultClass, Level, Token};
use crate::drain::request::{HANDLED_ANNOTATION, Request, parse};
use crate::drain::time::Mono;
use crate::drain::trigger::Refusal;
use crate::drain::world::{NodeView, Picture};

/// The command of a request: nobody waits for its answer, so people are told.
pub(super) const REQUEST: Token = Token(0);

/// What is known of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Requests {
    /// The Node as it was seen last.
    node: Option<NodeView>,
    /// The last one that this process has taken; pictures may still show the time before.
    taken: String,
    /// Not before.
    retry_at: Mono,
    /// The watches run, as far as the actions that were handed out say.
    pub(super) watching: bool,
    /// The watch is for this alone.
    own_watch: bool,
}

impl Machine {
    /// Keeps the own Node watched while requests are taken, and takes what is there.
    pub(super) fn request_step(&mut self, now: Mono) {
        let at_rest = self.phase.is_at_rest() && self.restore.is_none();
        if !self.policy.requests {
            if std::mem::take(&mut self.requests.own_watch) && at_rest && self.will_watch() {
                self.actions.push_back(Action::Unwatch);
            }
            return;
        }
        if at_rest && !self.will_watch() {
            self.requests.own_watch = true;
            self.actions.push_back(Action::WatchNode);
        }
        self.take_request(now);
    }

    /// Whether anything is watched once all actions are carried out.
    fn will_watch(&self) -> bool {
        let last = self.actions.iter().rev().find_map(watches);
        last.unwrap_or(self.requests.watching)
    }

    /// A picture, in any phase.
    pub(super) fn request_sees(&mut self, picture: &Picture) {
        if self.policy.requests
            && let Some(node) = picture.node.seen()
        {
            self.requests.node = Some(node.clone());
        }
    }

    fn take_request(&mut self, now: Mono) {
        let Some(node) = &self.requests.node else {
            return;
        };
        let news = !node.request.is_empty()
            && node.request != node.handled
            && node.request != self.requests.taken;
        if !news || self.waits_for(|p| matches!(p, Pending::Acknowledge { .. })) {
            return;
        }
        if now < self.requests.retry_at {
            return self.wake_at(self.requests.retry_at, "take a request");
        }
        if let Some(refusal) = self.another_machine(node) {
            return self.tell_once(
                "request",
                Level::Warn,
                "RequestRefused",
                refusal.to_string(),
            );
        }
        let (value, resource_version) = (node.request.clone(), node.resource_version.clone());
        let id = self.effect(Pending::Acknowledge {
            value: value.clone(),
        });
        self.actions.push_back(Action::Acknowledge {
            id,
            resource_version,
            value,
        });
    }

    pub(super) fn acknowledged(&mut self, value: &str, result: Result<NodeView, Fault>, now: Mono) {
        match result {
            Ok(node) => {
                self.requests.node = Some(node);
                value.clone_into(&mut self.requests.taken);
                self.requests.retry_at = Mono::default();
                self.carry_out_request(value, now);
            }
            Err(fault) => {
                let timing = self.policy.timing;
                let pause = if fault.class == FaultClass::Conflict {
                    timing.retry_first
                } else {
                    timing.retry_most
                };
                self.requests.retry_at = now + pause;
                if fault.class != FaultClass::Conflict {
                    let text = format!(
                        "a request on the Node is not carried out, because it cannot be marked as taken ({HANDLED_ANNOTATION}): {}",
                        fault.text
                    );
                    self.tell_once("request", Level::Warn, "RequestRefused", text);
                }
            }
        }
    }

    fn carry_out_request(&mut self, value: &str, now: Mono) {
        match parse(value) {
            Ok(Request::Drain(trigger)) => self.order_drain(REQUEST, *trigger, now),
            Ok(Request::Cancel { abort_migrations }) => {
                self.order_cancel(REQUEST, abort_migrations, "");
            }
            Ok(Request::Restore) => self.order_restore(REQUEST),
            Err(why) => self.loud(Level::Warn, "RequestRefused", why),
        }
    }

    /// What became of a request that was carried out.
    pub(super) fn request_answered(&mut self, answer: Result<String, Refusal>) {
        match answer {
            Ok(text) => {
                let text = format!("the request on the Node is carried out: {text}");
                self.loud(Level::Info, "RequestTaken", text);
            }
            Err(refusal) => {
                let text = format!("the request on the Node was refused: {refusal}");
                self.loud(Level::Warn, "RequestRefused", text);
            }
        }
    }
}

/// Whether something is watched after this action; `None`: it changes nothing about that.
pub(super) fn watches(action: &Action) -> Option<bool> {
    if matches!(action, Action::Watch | Action::WatchAll | Action::WatchNode) {
        Some(true)
    } else {
        matches!(action, Action::Unwatch).then_some(false)
    }
}
