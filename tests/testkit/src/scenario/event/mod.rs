//! What happens when: one `[[at]]` of the timeline, as data.
//!
//! The name in `do` picks the variant, the other keys of the table are its fields.

/// Generates structs of keys that refuse unknown ones.
macro_rules! keys {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $kind:ty),* $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$fmeta])* pub $field: $kind),* }
    )+};
}

pub mod agent;
pub mod api;
pub mod cluster;
pub mod host;
mod names;

pub use names::NAMES;
pub(super) use names::read;

use agent::AgentDo;
use api::{ApiDo, VirtDown, VirtPart};
use cluster::{Apply, LeaseHold, NodeDo, PdbDo, PodDo, VmDo};
use host::HostDo;

use super::values::Span;

/// One event of the timeline.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, from the beginning of the story.
    pub time: Span,
    /// Its line in the file.
    pub line: usize,
    /// Its name in `do`.
    pub name: &'static str,
    /// What.
    pub what: Do,
}

/// Everything that can happen.
#[derive(Clone, Debug)]
pub enum Do {
    /// Something happens to the host.
    Host(HostDo),
    /// Something happens to the agent, or an operator uses it.
    Agent(AgentDo),
    /// The API server misbehaves.
    Api(ApiDo),
    /// A part of KubeVirt is away.
    Virt(VirtPart, VirtDown),
    /// A VM.
    Vm(VmDo),
    /// A node, touched by somebody else.
    Node(NodeDo),
    /// A pod that is no launcher, or any pod's own state.
    Pod(PodDo),
    /// A disruption budget.
    Pdb(PdbDo),
    /// Any object as it is.
    Apply(Apply),
    /// Somebody holds a drain slot.
    Lease(LeaseHold),
}
