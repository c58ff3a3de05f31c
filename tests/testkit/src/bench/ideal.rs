//! How short could a drain be? Longest first over the slots, nothing ever waits, KubeVirt's own set-up per migration included.

use std::time::Duration;

/// What KubeVirt itself takes for one migration, besides the copying; measured with a single VM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SetUp {
    /// From the eviction to the final VMIM (the slot is free), without the copying.
    pub(super) slot: Duration,
    /// From there until the node is empty; once per drain.
    pub(super) tail: Duration,
}

/// The shortest drain of VMs that copy for these times over `slots` slots.
pub(super) fn drain(copies: &[Duration], slots: usize, set_up: SetUp) -> Duration {
    let mut copies = copies.to_vec();
    copies.sort_unstable();
    let mut busy = vec![Duration::ZERO; slots.max(1)];
    for copy in copies.into_iter().rev() {
        if let Some(first) = busy.iter_mut().min() {
            *first += copy + set_up.slot;
        }
    }
    let last = busy.into_iter().max().unwrap_or_default();
    if last.is_zero() {
        last
    } else {
        last + set_up.tail
    }
}

/// The mean of several.
pub(super) fn mean(all: &[SetUp]) -> SetUp {
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX).max(1);
    SetUp {
        slot: all.iter().map(|one| one.slot).sum::<Duration>() / count,
        tail: all.iter().map(|one| one.tail).sum::<Duration>() / count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(all: &[u64]) -> Vec<Duration> {
        all.iter().copied().map(Duration::from_secs).collect()
    }

    #[test]
    fn longest_first_over_the_slots() {
        let set_up = SetUp {
            slot: Duration::from_secs(2),
            tail: Duration::from_secs(1),
        };
        // 9+2 beside 5+2 and 4+2, then the tail.
        assert_eq!(
            drain(&seconds(&[4, 9, 5]), 2, set_up),
            Duration::from_secs(14)
        );
        assert_eq!(
            drain(&seconds(&[20; 10]), 2, set_up),
            Duration::from_secs(111)
        );
        assert_eq!(drain(&seconds(&[3]), 0, set_up), Duration::from_secs(6));
        assert_eq!(drain(&[], 2, set_up), Duration::ZERO);
    }

    #[test]
    fn the_mean_of_set_ups() {
        let one = |slot, tail| SetUp {
            slot: Duration::from_secs(slot),
            tail: Duration::from_secs(tail),
        };
        assert_eq!(mean(&[one(2, 1), one(4, 3)]), one(3, 2));
        assert_eq!(mean(&[]), SetUp::default());
    }
}
