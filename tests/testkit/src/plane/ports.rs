//! On which ports of loopback does everything listen?

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// Below the kernel's range for outgoing connections, one of which would otherwise take a port between look and use.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

/// One port for everything that listens.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) api_server: u16,
    pub(super) virt_api: u16,
    pub(super) virt_controller: u16,
}

impl Ports {
    /// Ports on which nothing listens now, chosen by chance so that several control planes that start together do not meet.
    pub(super) fn free() -> anyhow::Result<Self> {
        let mut random = by_chance();
        let mut taken = BTreeSet::new();
        let mut next = || {
            for _ in 0..1000 {
                let port = random.random_range(RANGE);
                if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() && taken.insert(port) {
                    return Ok(port);
                }
            }
            anyhow::bail!(
                "no free port between {} and {} on this machine",
                RANGE.start,
                RANGE.end
            )
        };
        Ok(Self {
            etcd: next()?,
            etcd_peer: next()?,
            api_server: next()?,
            virt_api: next()?,
            virt_controller: next()?,
        })
    }

    /// The API server at an address.
    pub(super) fn url(&self, address: IpAddr) -> String {
        format!(
            "https://{}",
            std::net::SocketAddr::new(address, self.api_server)
        )
    }
}

/// A generator that is another one in every process.
fn by_chance() -> SmallRng {
    // The standard library's hasher has random keys of its own.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    SmallRng::seed_from_u64(hasher.finish())
}
