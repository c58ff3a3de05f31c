//! The small languages inside strings: owners, outcomes of migrations, what follows a pod.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// Gives a type that reads itself from a string by `FromStr` with a sentence as error.
macro_rules! from_text {
    ($($kind:ty),+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::read(&text).map_err(D::Error::custom)
            }
        }
    )+};
}

from_text!(VmOwner, PodOwner, Outcome, Recreated, Version);

/// KubeVirt's version, `1.4` to `1.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 1.
    pub major: u32,
    /// 4 to 9.
    pub minor: u32,
}

impl Version {
    fn read(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a version of KubeVirt that is modelled (1.4 to 1.9)");
        let (major, minor) = text.split_once('.').ok_or_else(bad)?;
        let minor: u32 = minor.parse().map_err(|_| bad())?;
        if major != "1" || !(4..=9).contains(&minor) {
            return Err(bad());
        }
        Ok(Self { major: 1, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Who owns a VMI, and so who makes a new one when its guest has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmOwner {
    /// A VirtualMachine with this run strategy; `running`: with the old `spec.running: true`.
    Vm(String),
    /// A VirtualMachineInstanceReplicaSet.
    ReplicaSet,
    /// A VirtualMachinePool (its VMs run always).
    Pool,
    /// An object of a kind that KubeVirt does not know.
    Other(String),
    /// A standalone VMI.
    Nobody,
}

impl VmOwner {
    fn read(text: &str) -> Result<Self, String> {
        const STRATEGIES: [&str; 6] = [
            "Always",
            "RerunOnFailure",
            "Manual",
            "Once",
            "Halted",
            "running",
        ];
        if let Some(kind) = text.strip_prefix("other/")
            && !kind.is_empty()
        {
            return Ok(Self::Other(kind.into()));
        }
        match text {
            "replica_set" => Ok(Self::ReplicaSet),
            "pool" => Ok(Self::Pool),
            "none" => Ok(Self::Nobody),
            _ => match text.strip_prefix("vm/") {
                Some(strategy) if STRATEGIES.contains(&strategy) => Ok(Self::Vm(strategy.into())),
                _ => Err(format!(
                    "'{text}' is not an owner: vm/<{}>, replica_set, pool, other/<kind> or none",
                    STRATEGIES.join("|")
                )),
            },
        }
    }
}

/// How one attempt to migrate ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Moved.
    Ok,
    /// Fails while copying, with this reason.
    Fail(String),
    /// Copies for ever.
    Stuck,
    /// No node takes the target pod.
    Unschedulable(String),
    /// The target pod never starts.
    Pending,
}

impl Outcome {
    fn read(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        match (word, rest) {
            ("ok", "") => Ok(Self::Ok),
            ("stuck", "") => Ok(Self::Stuck),
            ("pending", "") => Ok(Self::Pending),
            ("fail", why) => Ok(Self::Fail(if why.is_empty() {
                "source node reported migration failed".into()
            } else {
                why.into()
            })),
            ("unschedulable", why) => Ok(Self::Unschedulable(why.into())),
            _ => Err(format!(
                "'{text}' is not an outcome: ok, fail:<reason>, stuck, unschedulable:<message> or pending"
            )),
        }
    }
}

/// Who owns a pod that is not a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodOwner {
    /// A controller: kind and name.
    Controller(String, String),
    /// A static pod of the kubelet.
    Mirror,
    /// Nobody.
    Nobody,
}

impl PodOwner {
    fn read(text: &str) -> Result<Self, String> {
        const KINDS: [&str; 4] = ["ReplicaSet", "DaemonSet", "StatefulSet", "Job"];
        match (text, text.split_once('/')) {
            ("mirror", _) => Ok(Self::Mirror),
            ("none", _) => Ok(Self::Nobody),
            (_, Some((kind, name))) if KINDS.contains(&kind) && !name.is_empty() => {
                Ok(Self::Controller(kind.into(), name.into()))
            }
            _ => Err(format!(
                "'{text}' is not an owner: <{}>/<name>, mirror or none",
                KINDS.join("|")
            )),
        }
    }
}

/// What comes after a pod that has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recreated {
    /// Nothing.
    Never,
    /// A pod with another name on another node.
    Elsewhere,
    /// A pod with the same name on this node; `None`: it finds no node.
    SameName(Option<String>),
}

impl Recreated {
    fn read(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("same_name:")) {
            ("never", _) => Ok(Self::Never),
            ("elsewhere", _) => Ok(Self::Elsewhere),
            (_, Some("pending")) => Ok(Self::SameName(None)),
            (_, Some(node)) if !node.is_empty() => Ok(Self::SameName(Some(node.into()))),
            _ => Err(format!(
                "'{text}' is not one of never, elsewhere, same_name:<node>, same_name:pending"
            )),
        }
    }
}

/// Whether a VM can be migrated: `true`, `false`, or the reason of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Migratable {
    /// It can.
    Yes,
    /// It cannot, for this reason.
    No(String),
}

impl<'de> Deserialize<'de> for Migratable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Migratable;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or the reason of the condition LiveMigratable")
            }
            fn visit_bool<E: Error>(self, can: bool) -> Result<Migratable, E> {
                Ok(if can {
                    Migratable::Yes
                } else {
                    Migratable::No("DisksNotLiveMigratable".into())
                })
            }
            fn visit_str<E: Error>(self, why: &str) -> Result<Migratable, E> {
                Ok(Migratable::No(why.into()))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A number or a percentage, as in a disruption budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many pods.
    Pods(u32),
    /// So many of hundred, as text with its `%`.
    Percent(String),
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Share;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of pods or a percentage such as \"75%\"")
            }
            fn visit_i64<E: Error>(self, pods: i64) -> Result<Share, E> {
                u32::try_from(pods)
                    .map(Share::Pods)
                    .map_err(|_| E::custom(format!("{pods} is not a number of pods")))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Share, E> {
                match text.strip_suffix('%').map(str::parse::<u8>) {
                    Some(Ok(_)) => Ok(Share::Percent(text.into())),
                    _ => Err(E::custom(format!("'{text}' is not a percentage"))),
                }
            }
        }
        from.deserialize_any(Reader)
    }
}

/// What the agent's credentials may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything the RBAC manifest grants.
    Full,
    /// Only the kubelet's own rights.
    Base,
    /// The kubelet's rights and these, e.g. `list virtualmachineinstances`.
    Granted(Vec<String>),
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Rights;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"full\", \"base\" or a list of what is granted")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<Rights, E> {
                match word {
                    "full" => Ok(Rights::Full),
                    "base" => Ok(Rights::Base),
                    _ => Err(E::custom(format!(
                        "'{word}' is neither full nor base nor a list of what is granted"
                    ))),
                }
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Rights, A::Error> {
                let mut granted = Vec::new();
                while let Some(right) = list.next_element()? {
                    granted.push(right);
                }
                Ok(Rights::Granted(granted))
            }
        }
        from.deserialize_any(Reader)
    }
}
