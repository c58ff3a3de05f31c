//! How does a host reach the control plane: a network namespace with one cable to this machine, and a door to the API server at its end.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::plane::Plane;
use crate::scratch::tool;

/// Addresses of the range that is set aside for tests of networks (RFC 2544): one /24 for a host's cable, one for its pods.
const CABLES: [u8; 2] = [198, 18];
const PODS: [u8; 2] = [198, 19];

/// The network of one host. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Network {
    /// Name of the namespace.
    pub(crate) name: String,
    /// The host's address.
    pub(crate) address: Ipv4Addr,
    /// This machine's address at the other end of the cable.
    pub(crate) gateway: Ipv4Addr,
    /// The pods' network.
    pub(crate) pods: String,
    door: JoinHandle<()>,
}

impl Network {
    /// Lays the cable. `name` begins the names of this run.
    pub(crate) fn make(name: &str, plane: &Arc<Plane>) -> anyhow::Result<Self> {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Another run of the suite at the same time hardly ever takes the same ones.
        let run_takes = u8::try_from(std::process::id() % 16).unwrap_or(0) * 16;
        let number = count.wrapping_add(run_takes);
        let name = format!("{name}-{number}");
        let [a, b] = CABLES;
        let gateway = Ipv4Addr::new(a, b, number, 1);
        let address = Ipv4Addr::new(a, b, number, 2);
        // An interface's name has at most 15 characters.
        let cable = format!("vmd{number}-{}", std::process::id() % 100_000);
        let laid = lay(&name, &cable, gateway, address);
        let door = laid.and_then(|()| open(plane, gateway));
        let door = door.inspect_err(|_| remove(&name))?;
        Ok(Self {
            name,
            address,
            gateway,
            pods: format!("{}.{}.{number}.0/24", PODS[0], PODS[1]),
            door,
        })
    }

    /// Takes the host's end of the cable down.
    pub(crate) fn cut(&self) -> anyhow::Result<()> {
        tool(Command::new("ip").args(["-n", &self.name, "link", "set", "eth0", "down"]))
    }

    /// Removes the networks of a run that was killed.
    pub(crate) fn clear_old(run: &str) {
        let names = std::fs::read_dir("/run/netns")
            .into_iter()
            .flatten()
            .flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            if name.starts_with(&format!("{run}-")) {
                remove(&name);
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.door.abort();
        remove(&self.name);
    }
}

fn lay(name: &str, cable: &str, gateway: Ipv4Addr, address: Ipv4Addr) -> anyhow::Result<()> {
    let here = |words: &str| tool(Command::new("ip").args(words.split(' ')));
    let there = |words: &str| tool(Command::new("ip").args(["-n", name]).args(words.split(' ')));
    here(&format!("netns add {name}"))?;
    here(&format!(
        "link add {cable} type veth peer name eth0 netns {name}"
    ))?;
    here(&format!("addr add {gateway}/24 dev {cable}"))?;
    here(&format!("link set {cable} up"))?;
    there("link set lo up")?;
    there(&format!("addr add {address}/24 dev eth0"))?;
    there("link set eth0 up")?;
    there(&format!("route add default via {gateway}"))
}

/// The cable goes with the namespace.
fn remove(name: &str) {
    if let Err(error) = tool(Command::new("ip").args(["netns", "delete", name])) {
        crate::complain(&format!("the network {name} stays: {error:#}"));
    }
}

/// Whoever comes to the API server's port at this machine's end of the cable is let through to it.
fn open(plane: &Arc<Plane>, gateway: Ipv4Addr) -> anyhow::Result<JoinHandle<()>> {
    let port = plane.port;
    let listener = plane
        .block(TcpListener::bind((gateway, port)))
        .with_context(|| format!("cannot listen at {gateway}:{port}"))?;
    Ok(plane.spawn(async move {
        while let Ok((visitor, _)) = listener.accept().await {
            tokio::spawn(pass(visitor, port));
        }
    }))
}

async fn pass(mut visitor: TcpStream, port: u16) {
    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        // Either end may break off; both are then closed.
        let _ = tokio::io::copy_bidirectional(&mut visitor, &mut server).await;
    }
}
