//! Kubernetes Events about the Node and its VMs: best effort, never twice in a row, never a flood.

use super::KubeCluster;
use super::api::FIELD_MANAGER;
use super::fault;
use crate::agent::ports::Clock;
use crate::drain::action::{Fault, FaultClass, Level, Notice};
use crate::drain::time::Mono;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::core::Request;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The same message about the same object is not sent again within this time.
const QUIET: Duration = Duration::from_secs(600);
/// At most this many Events …
const MOST: usize = 300;
/// … within this time.
const WINDOW: Duration = Duration::from_secs(600);
/// Kubernetes refuses longer messages.
const LONGEST: usize = 1024;

/// What was sent lately.
#[derive(Debug, Default)]
pub(super) struct Sent {
    last: BTreeMap<(String, String, &'static str), (String, Mono)>,
    times: VecDeque<Mono>,
}

impl Sent {
    /// Whether this Event may go out now; it then counts as sent.
    fn admits(&mut self, notice: &Notice, now: Mono) -> bool {
        while self
            .times
            .front()
            .is_some_and(|then| now.since(*then) > WINDOW)
        {
            self.times.pop_front();
        }
        self.last.retain(|_, (_, then)| now.since(*then) <= QUIET);
        let object = notice.vm.clone().unwrap_or_default();
        let key = (object.namespace, object.name, notice.reason);
        let told = self
            .last
            .get(&key)
            .is_some_and(|(text, _)| *text == notice.text);
        if told || self.times.len() >= MOST {
            return false;
        }
        self.times.push_back(now);
        self.last.insert(key, (notice.text.clone(), now));
        true
    }
}

impl<C: Clock> KubeCluster<C> {
    /// Creates an Event in core/v1, the only Events that a kubelet may write. About the Node it lives in `default`.
    pub(super) async fn post_event(&self, notice: &Notice) -> Result<(), Fault> {
        let now = self.clock.now();
        let admitted = {
            let mut sent = self
                .events
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            sent.admits(notice, now)
        };
        if !admitted {
            return Ok(());
        }
        let what = format!("write the event {}", notice.reason);
        let event = self.event_object(notice, now);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let body = serde_json::to_vec(&event)
            .map_err(|error| fault::fault(FaultClass::Fatal, &what, &error.to_string()))?;
        let params = PostParams {
            dry_run: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request = Request::new(path).create(&params, body);
        let answer = self.send(&what, request).await?;
        if answer.is_success() {
            Ok(())
        } else {
            Err(fault::from_reply(&what, &answer.reply()))
        }
    }

    fn event_object(&self, notice: &Notice, now: Mono) -> Event {
        let about = self.about(notice);
        let name = about.name.clone().unwrap_or_default();
        // The server's own clock, as its answers tell it.
        let time = self.connection.server_time(now).map(Time);
        let kind = match notice.level {
            Level::Info => "Normal",
            Level::Warn | Level::Error => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{name}.")),
                namespace: about
                    .namespace
                    .clone()
                    .or_else(|| Some("default".to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(notice.reason.to_owned()),
            message: Some(notice.text.chars().take(LONGEST).collect()),
            type_: Some(kind.to_owned()),
            source: Some(EventSource {
                component: Some(FIELD_MANAGER.to_owned()),
                host: Some(self.node_name.clone()),
            }),
            first_timestamp: time.clone(),
            last_timestamp: time,
            count: Some(1),
            ..Event::default()
        }
    }

    fn about(&self, notice: &Notice) -> ObjectReference {
        match &notice.vm {
            Some(vmi) => ObjectReference {
                api_version: Some("kubevirt.io/v1".to_owned()),
                kind: Some("VirtualMachineInstance".to_owned()),
                namespace: Some(vmi.namespace.clone()),
                name: Some(vmi.name.clone()),
                uid: Some(vmi.uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectReference::default()
            },
            // Like the kubelet: for a Node the name stands for the UID.
            None => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node_name.clone()),
                uid: Some(self.node_name.clone()),
                ..ObjectReference::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(reason: &'static str, text: &str) -> Notice {
        Notice {
            level: Level::Info,
            reason,
            text: text.into(),
            vm: None,
            event: true,
        }
    }

    #[test]
    fn nothing_is_said_twice_and_never_too_much() {
        let mut sent = Sent::default();
        let at = |seconds: u64| Mono(seconds * 1000);
        assert!(sent.admits(&notice("A", "x"), at(0)));
        assert!(!sent.admits(&notice("A", "x"), at(5)));
        assert!(sent.admits(&notice("A", "y"), at(5)));
        assert!(sent.admits(&notice("B", "x"), at(5)));
        assert!(sent.admits(&notice("A", "y"), at(700)));
        let many = (0..1000).filter(|n| sent.admits(&notice("C", &n.to_string()), at(701)));
        assert_eq!(many.count(), MOST - 1);
        assert!(sent.admits(&notice("C", "later"), at(1400)));
    }
}
