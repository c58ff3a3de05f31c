//! Maintenance signals on a private bus, with a played driver behind the listener: whose signals count, and which.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on shall say where"
)]

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use testkit::logind::{Bus, Emission, emit, sender};
use tokio::sync::{mpsc, watch};
use vmdrain_agent::agent::command::{Command, Handle};
use vmdrain_agent::bus::maintenance::Listener;
use vmdrain_agent::config::Maintenance;
use vmdrain_agent::drain::action::Source;
use vmdrain_agent::drain::status::Status;
use vmdrain_agent::drain::trigger::{Refusal, Then};
use vmdrain_agent::host::Timing;
use zbus::Connection;

/// Far longer than anything here takes.
const BOUND: Duration = Duration::from_secs(10);
const UPS: &str = "org.example.Ups";

struct Stage {
    bus: Bus,
    entries: watch::Sender<Vec<Maintenance>>,
    asked: mpsc::Receiver<String>,
    sources: watch::Receiver<Vec<Source>>,
    status: watch::Sender<Arc<Status>>,
    _listener: Listener,
}

fn entry(name: &str, sender: &str, action: &str) -> Maintenance {
    let (path, interface, member) = match sender {
        "root" => ("/io/vmdrain/Bridge", "io.vmdrain.Maintenance1", "Announce"),
        _ => ("/org/example/Ups", "org.example.Ups1", "Battery"),
    };
    serde_json::from_value(json!({
        "name": name, "sender": sender, "path": path, "interface": interface, "member": member,
        "args": {"0": name}, "action": action, "deadline": "180s",
    }))
    .expect("an entry")
}

impl Stage {
    /// `refuse_first`: the driver is in the middle of a cancel when the first command comes.
    async fn new(entries: Vec<Maintenance>, refuse_first: bool) -> Self {
        let bus = Bus::start().await.unwrap();
        let (commands, mut queue) = mpsc::channel(8);
        let (told, asked) = mpsc::channel(64);
        let (say, sources) = watch::channel(Vec::new());
        let (status, seen) = watch::channel(Arc::new(Status::default()));
        tokio::spawn(async move {
            let mut busy = refuse_first;
            while let Some(command) = queue.recv().await {
                let (text, answer) = match command {
                    Command::Trigger(trigger, answer) => {
                        let then = trigger.then.map_or("", Then::word);
                        let text = format!("drain {} {then}", trigger.signal);
                        (text.trim_end().to_owned(), answer)
                    }
                    Command::Cancel { signal, answer, .. } => (format!("cancel {signal}"), answer),
                    Command::Restore(answer) => ("restore".to_owned(), answer),
                    Command::Sources(all) => {
                        say.send_replace(all);
                        continue;
                    }
                    Command::Status(_)
                    | Command::Plan(_)
                    | Command::Extend { .. }
                    | Command::Release { .. } => continue,
                };
                told.send(text).await.unwrap();
                let _ = answer.send(if std::mem::take(&mut busy) {
                    Err(Refusal::AlreadyDraining {
                        id: "d-1".into(),
                        phase: "cancelling",
                    })
                } else {
                    Ok("d-2".into())
                });
            }
        });
        let handle = Handle {
            commands,
            status: seen,
        };
        let (entries, watched) = watch::channel(entries);
        let timing = Timing {
            retry_first: Duration::from_millis(20),
            retry_most: Duration::from_millis(100),
            ..Timing::default()
        };
        let listener = Listener::start(Some(bus.address()), handle, watched, timing);
        Self {
            bus,
            entries,
            asked,
            sources,
            status,
            _listener: listener,
        }
    }

    /// Waits until the listener sees the senders as `troubled` says, entry by entry.
    async fn sees(&mut self, troubled: &[bool]) {
        let as_said = |sources: &Vec<Source>| {
            let now: Vec<bool> = sources.iter().map(|s| !s.trouble.is_empty()).collect();
            now == troubled
        };
        let seen = tokio::time::timeout(BOUND, self.sources.wait_for(as_said));
        let seen = seen.await.is_ok();
        assert!(seen, "{troubled:?}: {:?}", self.sources.borrow());
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(BOUND, self.asked.recv())
            .await
            .expect("a command in time")
            .expect("a driver")
    }

    async fn owner(&self, name: &str) -> Connection {
        sender(&self.bus.address(), Some(name)).await.unwrap()
    }

    async fn stranger(&self) -> Connection {
        sender(&self.bus.address(), None).await.unwrap()
    }
}

async fn says(bus: &Connection, what: &str) {
    let body = [toml::Value::from(what)];
    send(bus, "/org/example/Ups", "s", &body).await;
}

async fn send(bus: &Connection, path: &str, signature: &str, body: &[toml::Value]) {
    let emission = Emission {
        path,
        interface: "org.example.Ups1",
        member: "Battery",
        signature,
        body,
    };
    emit(bus, &emission).await.unwrap();
}

fn two() -> Vec<Maintenance> {
    vec![
        entry("low", UPS, "drain-then-poweroff"),
        entry("back", UPS, "cancel"),
    ]
}

#[tokio::test]
async fn only_the_owner_of_the_name_counts_and_only_what_is_meant() {
    let mut stage = Stage::new(two(), false).await;
    stage.sees(&[true, true]).await;
    // A stranger, also one that owns another name, and also while nobody owns the right one.
    let stranger = stage.stranger().await;
    says(&stranger, "low").await;
    let other = stage.owner("org.example.Other").await;
    says(&other, "low").await;
    let ups = stage.owner(UPS).await;
    stage.sees(&[false, false]).await;
    says(&stranger, "low").await;
    // The right one: another word, another form, another object, nothing at all, and then the two that count.
    says(&ups, "charging").await;
    send(&ups, "/org/example/Ups", "u", &[toml::Value::from(4)]).await;
    send(&ups, "/org/example/Other", "s", &[toml::Value::from("low")]).await;
    send(&ups, "/org/example/Ups", "", &[]).await;
    says(&ups, "low").await;
    assert_eq!(stage.next().await, "drain low poweroff");
    says(&ups, "back").await;
    assert_eq!(stage.next().await, "cancel back");
    // Signals keep their order, so everything before has been judged.
    assert!(stage.asked.try_recv().is_err());
}

/// The bus does not filter what is sent to us alone.
#[tokio::test]
async fn a_signal_to_us_alone_is_no_way_round() {
    let mut stage = Stage::new(two(), false).await;
    let ups = stage.owner(UPS).await;
    stage.sees(&[false, false]).await;
    let stranger = stage.stranger().await;
    let dbus = zbus::fdo::DBusProxy::new(&stranger).await.unwrap();
    for name in dbus.list_names().await.unwrap() {
        if name.starts_with(':') {
            let to: zbus::names::BusName<'_> = name.as_ref();
            stranger
                .emit_signal(
                    Some(to),
                    "/org/example/Ups",
                    "org.example.Ups1",
                    "Battery",
                    &"low",
                )
                .await
                .unwrap();
        }
    }
    dbus.get_id().await.unwrap();
    says(&ups, "back").await;
    assert_eq!(stage.next().await, "cancel back");
}

#[tokio::test]
async fn owners_come_and_go() {
    let mut stage = Stage::new(two(), false).await;
    for _ in 0..3 {
        let ups = stage.owner(UPS).await;
        // At once: the first signal of a new owner may come before the news of it.
        says(&ups, "low").await;
        assert_eq!(stage.next().await, "drain low poweroff");
        stage.sees(&[false, false]).await;
        drop(ups);
        stage.sees(&[true, true]).await;
    }
    assert!(stage.sources.borrow()[0].trouble.contains(UPS));
}

#[tokio::test]
async fn other_entries_count_from_the_reload_on() {
    let mut stage = Stage::new(vec![], false).await;
    let ups = stage.owner(UPS).await;
    stage.entries.send_replace(two());
    stage.sees(&[false, false]).await;
    says(&ups, "low").await;
    assert_eq!(stage.next().await, "drain low poweroff");
    stage
        .entries
        .send_replace(vec![entry("low", UPS, "restore")]);
    stage.sees(&[false]).await;
    says(&ups, "back").await;
    says(&ups, "low").await;
    assert_eq!(stage.next().await, "restore");
    stage.entries.send_replace(vec![]);
    stage.sees(&[]).await;
    says(&ups, "low").await;
    stage.entries.send_replace(two());
    stage.sees(&[false, false]).await;
    says(&ups, "back").await;
    assert_eq!(stage.next().await, "cancel back");
}

#[tokio::test]
async fn a_restarted_bus_is_listened_to_again() {
    let mut stage = Stage::new(two(), false).await;
    stage.sees(&[true, true]).await;
    stage.bus.kill();
    let lost = |sources: &Vec<Source>| sources.iter().all(|s| s.trouble.contains("not listened"));
    let seen = tokio::time::timeout(BOUND, stage.sources.wait_for(lost));
    assert!(seen.await.is_ok());
    stage.bus.restart().await.unwrap();
    let ups = stage.owner(UPS).await;
    stage.sees(&[false, false]).await;
    says(&ups, "low").await;
    assert_eq!(stage.next().await, "drain low poweroff");
}

#[tokio::test]
async fn a_signal_in_the_middle_of_a_cancel_is_asked_again() {
    let mut stage = Stage::new(two(), true).await;
    stage.status.send_replace(Arc::new(Status {
        state: "cancelling".into(),
        ..Status::default()
    }));
    let ups = stage.owner(UPS).await;
    stage.sees(&[false, false]).await;
    says(&ups, "low").await;
    assert_eq!(stage.next().await, "drain low poweroff");
    stage.status.send_replace(Arc::new(Status {
        state: "cancelled".into(),
        ..Status::default()
    }));
    assert_eq!(stage.next().await, "drain low poweroff");
}

/// On a private bus our own user is as good as root; nobody vouches for a sender that has gone.
#[tokio::test]
async fn a_sender_without_a_name_has_to_be_root() {
    let mut stage = Stage::new(vec![entry("announce", "root", "drain")], false).await;
    stage.sees(&[false]).await;
    let script = stage.stranger().await;
    let body = [toml::Value::from("announce")];
    let emission = Emission {
        path: "/io/vmdrain/Bridge",
        interface: "io.vmdrain.Maintenance1",
        member: "Announce",
        signature: "s",
        body: &body,
    };
    emit(&script, &emission).await.unwrap();
    assert_eq!(stage.next().await, "drain announce");
}
