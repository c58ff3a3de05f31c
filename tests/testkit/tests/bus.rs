//! Our D-Bus interface and its client on a private bus, with a played driver behind it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on shall say where"
)]

use futures_util::StreamExt;
use std::collections::HashMap;
use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::logind::Bus;
use tokio::sync::{mpsc, watch};
use vmdrain_agent::agent::command::{Command, Handle};
use vmdrain_agent::bus::{Client, ClientError, NAME, PATH, Service};
use vmdrain_agent::drain::plan::Plan;
use vmdrain_agent::drain::status::{DrainStatus, HoldStatus, Status};
use vmdrain_agent::drain::trigger::{Refusal, Then, Trigger};
use vmdrain_agent::host::{Timing, login1};
use zbus::{Connection, Variant};

/// Far longer than anything here takes.
const BOUND: Duration = Duration::from_secs(10);

/// Plays the driver: takes a first drain, refuses a second, notes what it was asked.
struct Played {
    handle: Handle,
    status: watch::Sender<Arc<Status>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Played {
    fn new() -> Self {
        let (commands, mut queue) = mpsc::channel(8);
        let (status, seen) = watch::channel(Arc::new(at("idle", None, 0)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (notes, now) = (asked.clone(), seen.clone());
        tokio::spawn(async move {
            let mut draining = false;
            while let Some(command) = queue.recv().await {
                let note = format!("{command:?}");
                match command {
                    Command::Trigger(trigger, answer) => {
                        notes.lock().unwrap().push(format!("{trigger:?}"));
                        let said = if std::mem::replace(&mut draining, true) {
                            Err(already())
                        } else {
                            Ok("d-1".to_owned())
                        };
                        let _ = answer.send(said);
                    }
                    Command::Cancel { answer, .. } => {
                        notes.lock().unwrap().push(note);
                        let _ = answer.send(Ok("d-1 is being cancelled".to_owned()));
                    }
                    Command::Extend { answer, .. } | Command::Release { answer, .. } => {
                        notes.lock().unwrap().push(note);
                        let _ = answer.send(Ok("as you say".to_owned()));
                    }
                    Command::Restore(answer) => {
                        let _ = answer.send(Err(Refusal::NotCordoned { node: "n1".into() }));
                    }
                    Command::Sources(_) => {}
                    Command::Status(answer) => {
                        let _ = answer.send((**now.borrow()).clone());
                    }
                    Command::Plan(answer) => {
                        let says = "no VM runs on this node".into();
                        let _ = answer.send(Plan {
                            says,
                            seen: true,
                            ..Plan::default()
                        });
                    }
                }
            }
        });
        let handle = Handle {
            commands,
            status: seen,
        };
        Self {
            handle,
            status,
            asked,
        }
    }

    fn publish(&self, status: Status) {
        self.status.send_replace(Arc::new(status));
    }

    async fn serve(&self, bus: &Bus) -> Service {
        let timing = Timing {
            retry_first: Duration::from_millis(20),
            retry_most: Duration::from_millis(200),
            ..Timing::default()
        };
        let service = Service::start(Some(bus.address()), self.handle.clone(), timing);
        service.registered(BOUND).await.unwrap();
        service
    }
}

fn already() -> Refusal {
    Refusal::AlreadyDraining {
        id: "d-1".into(),
        phase: "evacuating",
    }
}

fn at(state: &str, exit: Option<u8>, remaining: usize) -> Status {
    Status {
        state: state.into(),
        says: format!("now {state}"),
        drain: (state != "idle").then(|| DrainStatus {
            id: "d-1".into(),
            reason: "firmware".into(),
            deadline_in: Some(60.0),
            exit,
            ..DrainStatus::default()
        }),
        hold: HoldStatus {
            held: true,
            limit: Some(2700.0),
            trouble: String::new(),
            ..HoldStatus::default()
        },
        vms_total: 2,
        vms_remaining: remaining,
        ..Status::default()
    }
}

async fn connect(bus: &Bus) -> Client {
    Client::connect(Some(&bus.address())).await.unwrap()
}

/// A call as any program would make it; the error's name and text.
async fn raw(
    bus: &Connection,
    method: &str,
    options: HashMap<&str, Variant<'_>>,
) -> (String, String) {
    let call = bus.call_method(Some(NAME), PATH, Some(NAME), method, &options);
    let error = login1::CallError::from(call.await.unwrap_err());
    (error.name, error.text)
}

#[tokio::test]
async fn commands_reach_the_driver_and_its_sentences_come_back() {
    let bus = Bus::start().await.unwrap();
    let played = Played::new();
    let _service = played.serve(&bus).await;
    let client = connect(&bus).await;
    let trigger = Trigger {
        then: Some(Then::Reboot),
        reason: "firmware".into(),
        deadline: Some(Duration::from_secs(90)),
        keep_cordoned: true,
        ..Trigger::default()
    };
    assert_eq!(client.trigger(&trigger).await, Ok("d-1".into()));
    let again = client.trigger(&Trigger::default()).await;
    assert_eq!(again, Err(ClientError::Refused(already().to_string())));
    let said = client.cancel(true).await;
    assert_eq!(said, Ok("d-1 is being cancelled".into()));
    let refusal = Refusal::NotCordoned { node: "n1".into() };
    assert_eq!(
        client.restore().await,
        Err(ClientError::Refused(refusal.to_string()))
    );
    assert_eq!(client.status().await.unwrap(), at("idle", None, 0));
    let asked = played.asked.lock().unwrap().clone();
    assert_eq!(asked[0], format!("{trigger:?}"), "every option arrives");
    assert!(
        asked[2].starts_with("Cancel { abort_migrations: true"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn bad_options_and_later_calls_have_names_of_their_own() {
    let bus = Bus::start().await.unwrap();
    let played = Played::new();
    let _service = played.serve(&bus).await;
    let caller = login1::connect(Some(&bus.address()), BOUND).await.unwrap();
    let invalid = "org.freedesktop.DBus.Error.InvalidArgs";
    for (method, key, value, says) in [
        ("Trigger", "deadlin", Variant::new("30m"), "'deadlin'"),
        ("Trigger", "then", Variant::new(7_u32), "'then'"),
        ("Trigger", "then", Variant::new("sleep"), "`sleep`"),
        ("Cancel", "force", Variant::new(true), "'force'"),
        ("Restore", "now", Variant::new(true), "'now'"),
        ("Release", "now", Variant::new(true), "'now'"),
    ] {
        let (name, text) = raw(&caller, method, HashMap::from([(key, value)])).await;
        assert_eq!(name, invalid, "{text}");
        assert!(text.contains(says), "{text}");
    }
    let plan = connect(&bus).await.plan().await.unwrap();
    assert_eq!(plan.says, "no VM runs on this node");
    let extend = caller.call_method(Some(NAME), PATH, Some(NAME), "Extend", &0_u64);
    let said = extend.await.unwrap_err().to_string();
    assert!(said.contains("more than nothing"), "{said}");
    assert!(
        played.asked.lock().unwrap().is_empty(),
        "nothing got through"
    );
    let (name, _) = raw(&caller, "Restore", HashMap::new()).await;
    assert_eq!(name, "io.vmdrain.Error.Refused");
}

#[tokio::test]
async fn changes_are_signalled_and_can_be_followed() {
    let bus = Bus::start().await.unwrap();
    let played = Played::new();
    let _service = played.serve(&bus).await;
    let listener = login1::connect(Some(&bus.address()), BOUND).await.unwrap();
    let rule = zbus::MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender(NAME)
        .build()
        .unwrap();
    let mut signals = zbus::MessageStream::for_match_rule(rule, &listener, None)
        .await
        .unwrap();
    let client = connect(&bus).await;
    let mut following = client.follow(BOUND * 6).await.unwrap();
    assert_eq!(following.next().await.unwrap().state, "idle");

    played.publish(at("evacuating", None, 2));
    while following.next().await.unwrap().state != "evacuating" {}
    played.publish(at("evacuating", None, 1));
    while following.next().await.unwrap().vms_remaining != 1 {}
    played.publish(at("drained", Some(0), 0));

    let mut seen = Vec::new();
    let mut properties = HashMap::new();
    while !seen.contains(&"Finished".to_owned()) {
        let signal = tokio::time::timeout(BOUND, signals.next()).await.unwrap();
        let signal = signal.unwrap().unwrap();
        let member = signal.header().member().unwrap().to_string();
        let body = signal.body();
        match member.as_str() {
            "PropertiesChanged" => {
                type Changed<'a> = (&'a str, HashMap<&'a str, Variant<'a>>, Vec<&'a str>);
                let (interface, changed, _) = body.deserialize::<Changed<'_>>().unwrap();
                assert_eq!(interface, NAME);
                for (name, value) in changed {
                    properties.insert(name.to_owned(), format!("{value:?}"));
                }
            }
            "StateChanged" => {
                let (state, id, _) = body.deserialize::<(&str, &str, &str)>().unwrap();
                assert_eq!(id, "d-1");
                seen.push(state.to_owned());
                continue;
            }
            "Finished" => {
                let (id, exit, says) = body.deserialize::<(&str, u8, &str)>().unwrap();
                assert_eq!((id, exit, says), ("d-1", 0, "now drained"));
            }
            _ => {}
        }
        seen.push(member);
    }
    seen.retain(|member| member != "Progress" && member != "PropertiesChanged");
    assert_eq!(seen, ["evacuating", "drained", "Finished"]);
    assert!(properties["State"].contains("drained"));
    assert!(properties["VmsRemaining"].contains('0'), "{properties:?}");
    assert!(
        properties["Deadline"].contains("U64(0)"),
        "the drain is over: {properties:?}"
    );
}

#[tokio::test]
async fn it_comes_back_with_the_bus() {
    let mut bus = Bus::start().await.unwrap();
    let played = Played::new();
    let service = played.serve(&bus).await;
    let client = connect(&bus).await;
    let mut following = client.follow(BOUND).await.unwrap();
    following.next().await.unwrap();
    bus.restart().await.unwrap();
    let lost = following.next().await;
    assert!(matches!(lost, Err(ClientError::Unreachable(_))), "{lost:?}");
    // The old registration is noticed as lost before the new one counts.
    let again = async {
        loop {
            let status = connect(&bus).await.status().await;
            if status.is_ok() {
                return;
            }
            service.registered(BOUND).await.unwrap();
        }
    };
    tokio::time::timeout(BOUND, again).await.unwrap();
}

#[tokio::test]
async fn no_daemon_and_no_bus_are_told_apart_from_a_refusal() {
    let mut bus = Bus::start().await.unwrap();
    let client = connect(&bus).await;
    let none = client.status().await;
    assert!(matches!(none, Err(ClientError::Unreachable(_))), "{none:?}");
    bus.kill();
    let gone = client.trigger(&Trigger::default()).await;
    assert!(matches!(gone, Err(ClientError::Unreachable(_))), "{gone:?}");
    let nowhere = Client::connect(Some(&bus.address())).await;
    assert!(matches!(nowhere, Err(ClientError::Unreachable(_))));
}

#[tokio::test]
async fn a_second_agent_does_not_take_the_name() {
    let bus = Bus::start().await.unwrap();
    let played = Played::new();
    let _first = played.serve(&bus).await;
    let other = Played::new();
    let second = Service::start(Some(bus.address()), other.handle.clone(), Timing::default());
    // A limit that is long enough for many tries would only make this slow: the reason is there after one.
    let why = loop {
        let why = second
            .registered(Duration::from_millis(50))
            .await
            .unwrap_err();
        if why.contains("another vmdrain-agent") {
            break why;
        }
    };
    assert!(why.contains(NAME));
    connect(&bus)
        .await
        .trigger(&Trigger::default())
        .await
        .unwrap();
    assert_eq!(played.asked.lock().unwrap().len(), 1);
    assert_eq!(other.asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn busctl_and_gdbus_can_look_at_it() {
    let bus = Bus::start().await.unwrap();
    let played = Played::new();
    let _service = played.serve(&bus).await;
    let address = bus.address();
    let busctl = ["busctl", "--address", &address, "introspect", NAME, PATH];
    let gdbus = [
        "gdbus",
        "introspect",
        "--address",
        &address,
        "--dest",
        NAME,
        "--object-path",
        PATH,
    ];
    for command in [&busctl[..], &gdbus[..]] {
        let Some(out) = run(command).await else {
            println!("SKIPPED: {} is not installed", command[0]);
            continue;
        };
        for member in [
            "Trigger",
            "Cancel",
            "Extend",
            "Release",
            "Restore",
            "GetStatus",
            "GetPlan",
            "State",
            "DrainId",
            "Reason",
            "Deadline",
            "VmsTotal",
            "VmsRemaining",
            "InhibitorHeld",
            "HoldBudgetUSec",
            "Version",
            "StateChanged",
            "Progress",
            "Finished",
        ] {
            assert!(
                out.contains(member),
                "{}: no {member} in\n{out}",
                command[0]
            );
        }
    }
    let read = [
        "busctl",
        "--address",
        &address,
        "get-property",
        NAME,
        PATH,
        NAME,
    ];
    for (property, value) in [
        ("HoldBudgetUSec", "t 2700000000"),
        ("InhibitorHeld", "b true"),
        ("State", "s \"idle\""),
    ] {
        if let Some(out) = run(&[&read[..], &[property]].concat()).await {
            assert_eq!(out.trim(), value);
        }
    }
}

/// What a program prints; `None` when it is not there. Off this thread: our side has to answer meanwhile.
async fn run(command: &[&str]) -> Option<String> {
    let mut process = Process::new(command[0]);
    process.args(&command[1..]);
    let out = tokio::task::spawn_blocking(move || process.output())
        .await
        .unwrap()
        .ok()?;
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// polkit's authority, as far as it is asked.
struct Authority;

#[zbus::interface(name = "org.freedesktop.PolicyKit1.Authority")]
impl Authority {
    #[expect(
        clippy::unused_self,
        reason = "a method of an interface has a receiver"
    )]
    #[expect(clippy::type_complexity, reason = "that is its signature")]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the arguments of a method of an interface are owned, and all of them are read from the message"
    )]
    fn check_authorization(
        &self,
        subject: (String, HashMap<String, zbus::OwnedVariant>),
        action_id: String,
        details: HashMap<String, String>,
        flags: u32,
        cancellation_id: String,
    ) -> zbus::fdo::Result<((bool, bool, HashMap<String, String>),)> {
        assert_eq!(subject.0, "system-bus-name");
        assert!(subject.1.contains_key("name"));
        assert_eq!(cancellation_id, "");
        let answer = |allowed, challenge| Ok(((allowed, challenge, HashMap::new()),));
        match action_id.as_str() {
            "io.vmdrain.cancel" => answer(true, false),
            "io.vmdrain.restore" => answer(flags == 1, flags == 0),
            "io.vmdrain.trigger" => {
                answer(details.get("then").is_some_and(String::is_empty), false)
            }
            other => Err(zbus::fdo::Error::Failed(format!(
                "Action {other} is not registered"
            ))),
        }
    }
}

#[tokio::test]
async fn polkits_answers_are_understood() {
    use vmdrain_agent::bus::polkit::{Answer, check};
    let bus = Bus::start().await.unwrap();
    let agent = login1::connect(Some(&bus.address()), BOUND).await.unwrap();
    let caller = agent.unique_name().unwrap().clone();
    let ask = async |action: &'static str, then: &'static str, interactive: bool| {
        let details = HashMap::from([("then", then)]);
        check(&agent, &caller, action, &details, interactive, BOUND).await
    };
    let none = ask("io.vmdrain.cancel", "", false).await;
    assert_eq!(none, Answer::Unasked("polkit is not there".into()));
    let _authority = zbus::connection::Builder::address(bus.address().as_str())
        .serve_at("/org/freedesktop/PolicyKit1/Authority", Authority)
        .name("org.freedesktop.PolicyKit1")
        .build()
        .await
        .unwrap();
    assert_eq!(ask("io.vmdrain.cancel", "", false).await, Answer::Allowed);
    assert_eq!(
        ask("io.vmdrain.restore", "", false).await,
        Answer::NeedsPassword
    );
    assert_eq!(ask("io.vmdrain.restore", "", true).await, Answer::Allowed);
    assert_eq!(ask("io.vmdrain.trigger", "", false).await, Answer::Allowed);
    assert_eq!(
        ask("io.vmdrain.trigger", "reboot", false).await,
        Answer::Refused
    );
    let unknown = ask("io.vmdrain.extend", "", false).await;
    assert!(
        matches!(&unknown, Answer::Unasked(why) if why.contains("is not registered")),
        "{unknown:?}"
    );
}
