//! The phases of a drain and where each may lead (design section 3).

/// Where the machine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing to do.
    #[default]
    Idle,
    /// Cordon, first lists.
    Preparing,
    /// VMs are on their way.
    Evacuating,
    /// The deadline is near: the guests that are left are shut down.
    FallingBack,
    /// The deadline has passed and the drain goes on (policy `hold`).
    Holding,
    /// Nothing seems to be left: fresh lists decide.
    Confirming,
    /// No VM is left; the other pods are evicted (scope `all-pods`).
    OtherPods,
    /// Nothing is left; volumes are waited for, the `post-drain` hooks run.
    Gates,
    /// Empty. The hold is released, or logind was asked, or the node just stays drained.
    Drained,
    /// The deadline came first; VMs are left.
    Deadline,
    /// Called off; marks and cordon are being undone.
    Cancelling,
    /// Called off, all undone that could be.
    Cancelled,
    /// Nothing was done: the Node object is another machine, or the drain was given up.
    Refused,
    /// The host has been down: the node is given back as soon as it can receive VMs. A new drain may begin.
    Restoring,
}

impl Phase {
    /// The name in `status`, the bus and scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Preparing => "preparing",
            Self::Evacuating => "evacuating",
            Self::FallingBack => "falling_back",
            Self::Holding => "holding",
            Self::Confirming => "confirming",
            Self::OtherPods => "other_pods",
            Self::Gates => "gates",
            Self::Drained => "drained",
            Self::Deadline => "deadline",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Restoring => "restoring",
        }
    }

    /// VMs are being moved.
    pub fn is_draining(self) -> bool {
        matches!(
            self,
            Self::Preparing
                | Self::Evacuating
                | Self::FallingBack
                | Self::Holding
                | Self::Confirming
                | Self::OtherPods
                | Self::Gates
        )
    }

    /// A new drain may begin.
    pub fn is_at_rest(self) -> bool {
        !self.is_draining() && self != Self::Cancelling
    }
}
