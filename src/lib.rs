//! vmdrain-agent: empties a KubeVirt host of virtual machines before the host goes down.

pub mod agent;
pub mod cluster;
pub mod drain;
