//! The stop job of `vmdrain-hold.service` (net 3): the built binary against a played PID 1 and a played daemon.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on shall say where"
)]

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::logind::Bus;
use testkit::systemd1::{System, Systemd};
use tokio::sync::{mpsc, watch};
use vmdrain_agent::agent::command::{Command, Handle};
use vmdrain_agent::bus::Service;
use vmdrain_agent::drain::status::{DrainStatus, Status};
use vmdrain_agent::drain::trigger::Trigger;
use vmdrain_agent::host::Timing;

/// Far longer than anything here takes.
const BOUND: Duration = Duration::from_secs(20);

/// How the command ended.
#[derive(Debug)]
struct Told {
    code: i32,
    out: String,
    notified: Vec<String>,
}

/// `vmdrain-agent hold-stop` as PID 1 runs it, in a host without any file.
async fn hold_stop(bus: &str) -> Told {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_nonblocking(true).unwrap();
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_vmdrain-agent"))
        .env_clear()
        .env("NOTIFY_SOCKET", &socket)
        .args(["hold-stop", "--bus", bus, "--config"])
        .arg(root.path())
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(BOUND, child).await.unwrap().unwrap();
    let mut notified = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(length) = manager.recv(&mut buffer) {
        notified.push(String::from_utf8_lossy(&buffer[..length]).trim().to_owned());
    }
    Told {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        notified,
    }
}

/// A daemon whose drain takes two steps.
struct Daemon {
    asked: Arc<Mutex<Vec<Trigger>>>,
    _service: Service,
}

impl Daemon {
    async fn start(bus: &Bus) -> Self {
        let (commands, mut queue) = mpsc::channel(8);
        let (publish, status) = watch::channel(Arc::new(Status::default()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (notes, now) = (asked.clone(), status.clone());
        tokio::spawn(async move {
            while let Some(command) = queue.recv().await {
                match command {
                    Command::Trigger(trigger, answer) => {
                        notes.lock().unwrap().push(trigger);
                        publish.send_replace(Arc::new(at("evacuating", None)));
                        let _ = answer.send(Ok("d1".into()));
                    }
                    Command::Status(answer) => {
                        let seen = (**now.borrow()).clone();
                        let begun = seen.state == "evacuating";
                        let _ = answer.send(seen);
                        // Whoever follows it has seen it begin.
                        if begun {
                            publish.send_replace(Arc::new(at("drained", Some(0))));
                        }
                    }
                    Command::Cancel { .. }
                    | Command::Extend { .. }
                    | Command::Release { .. }
                    | Command::Restore(_)
                    | Command::Plan(_)
                    | Command::Sources(_) => {}
                }
            }
        });
        let handle = Handle { commands, status };
        let service = Service::start(Some(bus.address()), handle, Timing::default());
        service.registered(BOUND).await.unwrap();
        Self {
            asked,
            _service: service,
        }
    }

    fn asked(&self) -> Vec<Trigger> {
        self.asked.lock().unwrap().clone()
    }
}

fn at(state: &str, exit: Option<u8>) -> Status {
    Status {
        state: state.into(),
        says: format!("now {state}"),
        drain: Some(DrainStatus {
            id: "d1".into(),
            exit,
            ..DrainStatus::default()
        }),
        ..Status::default()
    }
}

#[tokio::test]
async fn a_system_that_stays_up_moves_no_vm() {
    let bus = Bus::start().await.unwrap();
    let daemon = Daemon::start(&bus).await;
    let pid1 = Systemd::start(&bus.address(), System::running())
        .await
        .unwrap();
    let restarted = Some(vec![("vmdrain-hold.service", "restart")]);
    for (state, jobs) in [
        ("running", Some(vec![])),
        ("degraded", restarted.clone()),
        ("maintenance", Some(vec![("rescue.target", "start")])),
        ("running", None),
    ] {
        let unreadable = jobs.is_none();
        pid1.set(System {
            state,
            jobs,
            ..System::running()
        });
        let told = hold_stop(&bus.address()).await;
        assert_eq!(told.code, 0, "{told:?}");
        assert!(
            told.out.contains("nothing to do") && told.out.contains(state),
            "{told:?}"
        );
        assert_eq!(
            told.out.contains("state alone decides"),
            unreadable,
            "{told:?}"
        );
        assert_eq!(told.notified, Vec::<String>::new());
    }
    assert_eq!(daemon.asked(), []);
}

#[tokio::test]
async fn a_system_that_goes_down_waits_for_the_drain() {
    let bus = Bus::start().await.unwrap();
    let daemon = Daemon::start(&bus).await;
    let pid1 = Systemd::start(&bus.address(), System::running())
        .await
        .unwrap();
    let fresh = System {
        // The job is there before the state says so.
        state: "running",
        ..System::stopping("reboot.target")
    };
    let unreadable = System {
        jobs: None,
        ..System::stopping("reboot.target")
    };
    let short = System {
        job_timeout: Duration::from_secs(100),
        ..System::stopping("soft-reboot.target")
    };
    for (system, says, budget) in [
        (System::stopping("poweroff.target"), "poweroff", 1680),
        (fresh, "reboot", 1680),
        (unreadable, "state alone decides", 1680),
        (short, "soft-reboot", 80),
    ] {
        pid1.set(system);
        let told = hold_stop(&bus.address()).await;
        assert_eq!(told.code, 0, "{told:?}");
        assert!(told.out.contains(says), "{told:?}");
        assert!(told.out.contains("no VM is left on this host"), "{told:?}");
        let asked = daemon.asked().pop().unwrap();
        assert!(asked.stop_job && asked.then.is_none(), "{asked:?}");
        let deadline = asked.deadline.unwrap();
        let most = Duration::from_secs(budget);
        assert!(deadline <= most && deadline + BOUND > most, "{deadline:?}");
        let extended = "EXTEND_TIMEOUT_USEC=60000000".to_owned();
        assert!(told.notified.contains(&extended), "{told:?}");
        assert!(
            told.notified.contains(&"STATUS=now drained".to_owned()),
            "{told:?}"
        );
    }
    assert_eq!(daemon.asked().len(), 4);
}

/// No daemon: the program drains by itself, and where it has no way to the cluster it says what that means.
#[tokio::test]
async fn without_a_daemon_it_tries_by_itself() {
    let bus = Bus::start().await.unwrap();
    let _pid1 = Systemd::start(&bus.address(), System::stopping("halt.target"))
        .await
        .unwrap();
    let told = hold_stop(&bus.address()).await;
    assert_eq!(told.code, 7, "{told:?}");
    assert!(told.out.contains("drains by itself"), "{told:?}");
    assert!(told.out.contains("no VM can be moved"), "{told:?}");
}

#[tokio::test]
async fn without_pid_1_nothing_is_done_and_that_is_said() {
    let mut bus = Bus::start().await.unwrap();
    let daemon = Daemon::start(&bus).await;
    let told = hold_stop(&bus.address()).await;
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.out
            .contains("neither the job list nor the system state"),
        "{told:?}"
    );
    bus.kill();
    let told = hold_stop(&bus.address()).await;
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.out.contains("cannot reach the bus"), "{told:?}");
    assert_eq!(daemon.asked(), []);
}
