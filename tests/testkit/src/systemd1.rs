//! A stand-in for PID 1 on a private bus: the few things that a stop job asks it.
//!
//! `SystemState`, `ListJobs` and the two time limits are what real systemd 252, 257 and 262 show; nothing is started
//! or stopped here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zbus::names::ErrorName;
use zbus::{Connection, OwnedObjectPath};

const NAME: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
/// The unit that asks, and where it is on the bus.
const HOLD: (&str, &str) = (
    "vmdrain-hold.service",
    "/org/freedesktop/systemd1/unit/vmdrain_2dhold_2eservice",
);

/// A unit that stops guests of the host's own, and where it is.
const GUESTS: (&str, &str) = (
    "libvirt-guests.service",
    "/org/freedesktop/systemd1/unit/libvirt_2dguests_2eservice",
);

/// What the system does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// `SystemState`.
    pub state: &'static str,
    /// Unit and type of every job; `None`: the list cannot be read.
    pub jobs: Option<Vec<(&'static str, &'static str)>>,
    /// `JobTimeoutSec=` of the targets.
    pub job_timeout: Duration,
    /// `TimeoutStopSec=` of the hold's unit.
    pub stop_timeout: Duration,
    /// Version of systemd.
    pub version: u32,
    /// How often user space was restarted in this boot (told from 256 on).
    pub soft_reboots: u32,
    /// When it began, in microseconds of `CLOCK_MONOTONIC`.
    pub userspace: u64,
    /// `ActiveState` of `libvirt-guests.service`; `None`: it is not loaded.
    pub libvirt_guests: Option<&'static str>,
}

impl System {
    /// A host at work.
    pub fn running() -> Self {
        Self {
            state: "running",
            jobs: Some(Vec::new()),
            job_timeout: Duration::from_secs(1800),
            stop_timeout: Duration::from_secs(90),
            version: 257,
            soft_reboots: 0,
            userspace: 1,
            libvirt_guests: None,
        }
    }

    /// A host whose stop jobs run, as after `systemctl start poweroff.target`.
    pub fn stopping(target: &'static str) -> Self {
        Self {
            state: "stopping",
            jobs: Some(vec![
                (target, "start"),
                ("shutdown.target", "start"),
                (HOLD.0, "stop"),
            ]),
            ..Self::running()
        }
    }
}

/// The stand-in; dropping it takes it off the bus.
#[derive(Debug)]
pub struct Systemd {
    system: Arc<Mutex<System>>,
    _bus: Connection,
}

impl Systemd {
    /// Starts it on the bus at `address`.
    pub async fn start(address: &str, system: System) -> anyhow::Result<Self> {
        let system = Arc::new(Mutex::new(system));
        let mut builder = zbus::connection::Builder::address(address)
            .serve_at(PATH, Manager(system.clone()))
            .serve_at(HOLD.1, Service(system.clone()))
            .serve_at(GUESTS.1, Guests(system.clone()));
        for target in [
            "poweroff",
            "reboot",
            "halt",
            "kexec",
            "soft_2dreboot",
            "shutdown",
        ] {
            let path = format!("{PATH}/unit/{target}_2etarget");
            let endless = target == "shutdown";
            builder = builder.serve_at(path, Target(system.clone(), endless));
        }
        let bus = builder.name(NAME).build().await?;
        Ok(Self { system, _bus: bus })
    }

    /// From now on the system does this.
    pub fn set(&self, system: System) {
        *self.system.lock().unwrap_or_else(PoisonError::into_inner) = system;
    }
}

fn now(system: &Mutex<System>) -> System {
    system
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn usec(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

struct Manager(Arc<Mutex<System>>);

type JobRow = (
    u32,
    String,
    String,
    String,
    OwnedObjectPath,
    OwnedObjectPath,
);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn list_jobs(&self) -> zbus::fdo::Result<Vec<JobRow>> {
        let Some(jobs) = now(&self.0).jobs else {
            return Err(zbus::fdo::Error::AccessDenied("Permission denied".into()));
        };
        let path = |path: String| {
            OwnedObjectPath::try_from(path).map_err(|e| zbus::fdo::Error::Failed(e.to_string()))
        };
        let rows = (1_u32..).zip(jobs);
        rows.map(|(id, (unit, kind))| {
            let escaped = unit.replace('-', "_2d").replace('.', "_2e");
            Ok((
                id,
                unit.to_owned(),
                kind.to_owned(),
                "waiting".to_owned(),
                path(format!("{PATH}/job/{id}"))?,
                path(format!("{PATH}/unit/{escaped}"))?,
            ))
        })
        .collect()
    }

    fn get_unit(&self, name: &str) -> Result<OwnedObjectPath, NoSuchUnit> {
        let guests = now(&self.0).libvirt_guests.map(|_| GUESTS);
        let mut loaded = std::iter::once(HOLD).chain(guests);
        let path = loaded.find(|(unit, _)| *unit == name);
        path.and_then(|(_, path)| OwnedObjectPath::try_from(path).ok())
            .ok_or_else(|| NoSuchUnit(name.to_owned()))
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn soft_reboots_count(&self) -> zbus::fdo::Result<u32> {
        let system = now(&self.0);
        if system.version >= 256 {
            return Ok(system.soft_reboots);
        }
        let text =
            "Unknown interface org.freedesktop.systemd1.Manager or property SoftRebootsCount.";
        Err(zbus::fdo::Error::UnknownProperty(text.into()))
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn userspace_timestamp_monotonic(&self) -> u64 {
        now(&self.0).userspace
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn system_state(&self) -> String {
        now(&self.0).state.to_owned()
    }
}

/// A target: its `JobTimeoutSec=`; `shutdown.target` has none.
struct Target(Arc<Mutex<System>>, bool);

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl Target {
    #[zbus(property(emits_changed_signal = "const"), name = "JobTimeoutUSec")]
    fn job_timeout(&self) -> u64 {
        if self.1 {
            u64::MAX
        } else {
            usec(now(&self.0).job_timeout)
        }
    }
}

struct Guests(Arc<Mutex<System>>);

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl Guests {
    #[zbus(property(emits_changed_signal = "false"))]
    fn active_state(&self) -> String {
        now(&self.0).libvirt_guests.unwrap_or_default().to_owned()
    }
}

struct Service(Arc<Mutex<System>>);

#[zbus::interface(name = "org.freedesktop.systemd1.Service")]
impl Service {
    #[zbus(property(emits_changed_signal = "false"), name = "TimeoutStopUSec")]
    fn timeout_stop(&self) -> u64 {
        usec(now(&self.0).stop_timeout)
    }
}

/// Its error has a name of its own.
#[derive(Debug)]
struct NoSuchUnit(String);

impl zbus::DBusError for NoSuchUnit {
    fn create_reply(
        &self,
        call: &zbus::message::Header<'_>,
    ) -> zbus::Result<zbus::message::Message> {
        let text = format!("Unit {} not loaded.", self.0);
        zbus::message::Message::error(call, self.name()).build(&text)
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_static_str_unchecked("org.freedesktop.systemd1.NoSuchUnit")
    }

    fn description(&self) -> Option<&str> {
        Some(&self.0)
    }
}
