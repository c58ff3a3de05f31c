//! Which start of the host is this, and has the host been down since another one?
//!
//! A reboot, a kexec and a loss of power change the boot id. A soft-reboot does not: the kernel runs on, and only
//! systemd counts it (`SoftRebootsCount`, 256 and later) or tells when user space began
//! (`UserspaceTimestampMonotonic`, which 254 and 255 have to do with). A restart of the agent, of logind or of
//! PID 1 (`daemon-reexec`) changes none of the three.

use serde::{Deserialize, Serialize};

/// What systemd says about the user space that runs now; each is absent where it could not be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Userspace {
    /// `SoftRebootsCount` of `org.freedesktop.systemd1.Manager` (systemd 256 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_reboots: Option<u64>,
    /// `UserspaceTimestampMonotonic` of the same, in microseconds of `CLOCK_MONOTONIC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
}

impl Userspace {
    /// Nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// One start of the host.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Boot id, with or without dashes; empty when unknown.
    pub boot: &'a str,
    /// Its user space.
    pub userspace: Userspace,
}

/// What has happened to the host between two starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// It is the same start: the host was not down.
    Same,
    /// Another boot id.
    Rebooted,
    /// The same kernel, another user space.
    SoftRebooted,
    /// It cannot be told: what it takes was not known then, or is not known now.
    Unknown,
}

impl Since {
    /// The host was down in between.
    pub fn was_down(self) -> bool {
        matches!(self, Self::Rebooted | Self::SoftRebooted)
    }
}

impl Start<'_> {
    /// What has happened since `before`.
    pub fn since(self, before: Start<'_>) -> Since {
        let plain = |id: &str| id.trim().replace('-', "").to_ascii_lowercase();
        let (then, now) = (plain(before.boot), plain(self.boot));
        if then.is_empty() || now.is_empty() {
            return Since::Unknown;
        }
        if then != now {
            return Since::Rebooted;
        }
        let differs = |then: Option<u64>, now: Option<u64>| Some(then? != now?);
        let (old, new) = (before.userspace, self.userspace);
        match differs(old.soft_reboots, new.soft_reboots)
            .or_else(|| differs(old.started, new.started))
        {
            Some(true) => Since::SoftRebooted,
            Some(false) => Since::Same,
            // Nobody ever said anything: nothing that could have changed was there.
            None if old.is_unknown() && new.is_unknown() => Since::Same,
            None => Since::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn userspace(soft_reboots: Option<u64>, started: Option<u64>) -> Userspace {
        Userspace {
            soft_reboots,
            started,
        }
    }

    #[test]
    fn every_way_to_come_up() {
        let none = Userspace::default();
        let both = |count, at| userspace(Some(count), Some(at));
        let old = |at| userspace(None, Some(at));
        // Boot id and user space then, and now.
        let cases = [
            (("b1", none), ("b1", none), Since::Same),
            (("b1", both(0, 5)), ("b1", both(0, 5)), Since::Same),
            // systemd 254 and 255, and everything before, has only the time.
            (("b1", old(5)), ("b1", old(5)), Since::Same),
            (("b1", old(5)), ("b1", old(9)), Since::SoftRebooted),
            (("b1", both(0, 5)), ("b1", both(1, 9)), Since::SoftRebooted),
            // The count decides where both have it.
            (("b1", both(1, 5)), ("b1", both(1, 6)), Since::Same),
            // systemd was upgraded in between: what both have decides.
            (("b1", old(5)), ("b1", both(0, 5)), Since::Same),
            (("b1", old(5)), ("b1", both(1, 9)), Since::SoftRebooted),
            (("b1", both(0, 5)), ("b2", both(0, 5)), Since::Rebooted),
            (("b1", none), ("b2", both(0, 5)), Since::Rebooted),
            (("b1", none), ("b1", both(0, 5)), Since::Unknown),
            (("b1", both(0, 5)), ("b1", none), Since::Unknown),
            (("", none), ("b1", none), Since::Unknown),
            (("b1", none), ("", none), Since::Unknown),
            (("0A-b1", none), ("0ab1", none), Since::Same),
        ];
        for (then, now, wanted) in cases {
            let start = |(boot, userspace)| Start { boot, userspace };
            let since = start(now).since(start(then));
            assert_eq!(since, wanted, "{then:?} -> {now:?}");
            assert_eq!(
                since.was_down(),
                matches!(wanted, Since::Rebooted | Since::SoftRebooted)
            );
        }
    }
}
