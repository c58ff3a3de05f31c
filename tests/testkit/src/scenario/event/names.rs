//! Which names can stand in `do`, and how are the keys of each one read?

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, Error, ValueDeserializer};

use super::Do;
use super::agent::AgentDo;
use super::api::{ApiDo, VirtPart};
use super::cluster::{NodeDo, PdbDo, PodDo, VmDo};
use super::host::{DiskState, DownKind, HostDo};

/// The keys of one event, without `time` and `do`.
type Keys<'a> = Spanned<DeValue<'a>>;
type Reader = for<'a> fn(Keys<'a>) -> Result<Do, Error>;

/// Every event, by name.
pub const NAMES: &[(&str, Reader)] = &[
    ("host.poweroff", |keys| down(keys, DownKind::Poweroff)),
    ("host.reboot", |keys| down(keys, DownKind::Reboot)),
    ("host.halt", |keys| down(keys, DownKind::Halt)),
    ("host.kexec", |keys| down(keys, DownKind::Kexec)),
    ("host.soft_reboot", |keys| down(keys, DownKind::SoftReboot)),
    ("host.schedule", |keys| host(keys, HostDo::Schedule)),
    ("host.cancel_schedule", |keys| {
        host(keys, |None {}| HostDo::CancelSchedule)
    }),
    ("host.shutdown_fails", |keys| {
        host(keys, HostDo::ShutdownFails)
    }),
    ("host.boot", |keys| host(keys, HostDo::Boot)),
    ("host.restart_logind", |keys| {
        host(keys, HostDo::RestartLogind)
    }),
    ("host.restart_dbus", |keys| host(keys, HostDo::RestartDbus)),
    ("host.set", |keys| host(keys, HostDo::Set)),
    ("host.signal", |keys| host(keys, HostDo::Signal)),
    ("host.inhibitor", |keys| host(keys, HostDo::Inhibitor)),
    ("host.clock_jump", |keys| host(keys, HostDo::ClockJump)),
    ("host.disk_full", |keys| disk(keys, DiskState::Full)),
    ("host.disk_ok", |keys| disk(keys, DiskState::Ok)),
    ("host.read_only", |keys| disk(keys, DiskState::ReadOnly)),
    ("agent.trigger", |keys| agent(keys, AgentDo::Trigger)),
    ("agent.cancel", |keys| agent(keys, AgentDo::Cancel)),
    ("agent.extend", |keys| agent(keys, AgentDo::Extend)),
    ("agent.release", |keys| agent(keys, AgentDo::Release)),
    ("agent.restore", |keys| agent(keys, AgentDo::Restore)),
    ("agent.plan", |keys| agent(keys, AgentDo::Plan)),
    ("agent.doctor", |keys| agent(keys, AgentDo::Doctor)),
    ("agent.reload", |keys| agent(keys, AgentDo::Reload)),
    ("agent.kill", |keys| agent(keys, AgentDo::Kill)),
    ("agent.stop", |keys| agent(keys, AgentDo::Stop)),
    ("agent.restart", |keys| agent(keys, AgentDo::Restart)),
    ("agent.start", |keys| agent(keys, AgentDo::Start)),
    ("agent.file", |keys| agent(keys, AgentDo::File)),
    ("api.answer", |keys| api(keys, ApiDo::Answer)),
    ("api.drop", |keys| api(keys, ApiDo::Drop)),
    ("api.hang", |keys| api(keys, ApiDo::Hang)),
    ("api.delay", |keys| api(keys, ApiDo::Delay)),
    ("api.down", |keys| api(keys, ApiDo::Down)),
    ("api.expire_watches", |keys| {
        api(keys, |None {}| ApiDo::ExpireWatches)
    }),
    ("api.close_watches", |keys| {
        api(keys, |None {}| ApiDo::CloseWatches)
    }),
    ("api.rotate_credentials", |keys| {
        api(keys, ApiDo::RotateCredentials)
    }),
    ("virt_api.down", |keys| {
        args(keys).map(|down| Do::Virt(VirtPart::Api, down))
    }),
    ("virt_controller.down", |keys| {
        args(keys).map(|down| Do::Virt(VirtPart::Controller, down))
    }),
    ("virt_handler.down", |keys| {
        args(keys).map(|down| Do::Virt(VirtPart::Handler, down))
    }),
    ("vm.create", |keys| {
        vm(keys, |new| VmDo::Create(Box::new(new)))
    }),
    ("vm.delete", |keys| vm(keys, VmDo::Delete)),
    ("vm.set", |keys| vm(keys, |set| VmDo::Set(Box::new(set)))),
    ("vm.migrate", |keys| vm(keys, VmDo::Migrate)),
    ("vm.start", |keys| vm(keys, VmDo::Start)),
    ("vm.stop", |keys| vm(keys, VmDo::Stop)),
    ("node.cordon", |keys| node(keys, NodeDo::Cordon)),
    ("node.uncordon", |keys| node(keys, NodeDo::Uncordon)),
    ("node.set", |keys| node(keys, NodeDo::Set)),
    ("node.delete", |keys| node(keys, NodeDo::Delete)),
    ("node.taint", |keys| node(keys, NodeDo::Taint)),
    ("pod.create", |keys| {
        pod(keys, |new| PodDo::Create(Box::new(new)))
    }),
    ("pod.set", |keys| pod(keys, PodDo::Set)),
    ("pod.delete", |keys| pod(keys, PodDo::Delete)),
    ("pdb.create", |keys| {
        pdb(keys, |new| PdbDo::Create(Box::new(new)))
    }),
    ("pdb.set", |keys| pdb(keys, PdbDo::Set)),
    ("pdb.delete", |keys| pdb(keys, PdbDo::Delete)),
    ("object.apply", |keys| args(keys).map(Do::Apply)),
    ("lease.hold", |keys| args(keys).map(Do::Lease)),
];

/// Reads the keys of the event `name`; `None` when there is no such event.
pub(in crate::scenario) fn read(
    name: &str,
    keys: Keys<'_>,
) -> Option<(&'static str, Result<Do, Error>)> {
    let (name, reader) = NAMES.iter().find(|(known, _)| *known == name)?;
    Some((name, reader(keys)))
}

/// An event without keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct None {}

fn args<T: DeserializeOwned>(keys: Keys<'_>) -> Result<T, Error> {
    T::deserialize(ValueDeserializer::from(keys))
}

fn host<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> HostDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Host(make(keys)))
}

fn agent<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> AgentDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Agent(make(keys)))
}

fn api<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> ApiDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Api(make(keys)))
}

fn vm<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> VmDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Vm(make(keys)))
}

fn node<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> NodeDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Node(make(keys)))
}

fn pod<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> PodDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Pod(make(keys)))
}

fn pdb<T: DeserializeOwned>(keys: Keys<'_>, make: fn(T) -> PdbDo) -> Result<Do, Error> {
    args(keys).map(|keys| Do::Pdb(make(keys)))
}

fn down(keys: Keys<'_>, kind: DownKind) -> Result<Do, Error> {
    args(keys).map(|via| Do::Host(HostDo::Down(kind, via)))
}

fn disk(keys: Keys<'_>, state: DiskState) -> Result<Do, Error> {
    args(keys).map(|path| Do::Host(HostDo::Disk(state, path)))
}
