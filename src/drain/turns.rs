//! In which order are VMs migrated, and which of them would not be gone before their guests need the time?
//!
//! Longest first, because that fills the slots best. A guest with a long grace period has to be told early, though: where
//! that order would shut down more guests than need be, those whose moment comes first are migrated first.

use super::time::Mono;
use std::cmp::Reverse;
use std::time::Duration;

/// A VM that waits for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Memory in bytes.
    pub memory: u64,
    /// How long its migration takes, once it has a slot.
    pub takes: Duration,
    /// When its guest is told at the latest; `None`: nobody does that.
    pub latest: Option<Mono>,
}

/// The order, as places in the list of those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// All of them.
    pub order: Vec<usize>,
    /// Those that would not be gone in time.
    pub without: Vec<usize>,
    /// It is not simply the longest first.
    pub hurries: bool,
}

impl Turns {
    /// The order over these slots, each given by when it is free. Equal ones keep their places.
    pub fn of(waiting: &[Waiting], slots: &[Mono]) -> Self {
        let size = |at: &usize| Reverse(waiting.get(*at).map(|w| w.memory));
        let mut longest: Vec<usize> = (0..waiting.len()).collect();
        longest.sort_by_key(size);
        let without = late(&longest, waiting, slots);
        if without.is_empty() {
            return Self {
                order: longest,
                without,
                hurries: false,
            };
        }
        let mut soonest = longest.clone();
        let moment = |at: &usize| waiting.get(*at).and_then(|w| w.latest);
        soonest.sort_by_key(|at| (moment(at).is_none(), moment(at)));
        let hurried = late(&soonest, waiting, slots);
        if hurried.len() >= without.len() {
            return Self {
                order: longest,
                without,
                hurries: false,
            };
        }
        // What does not come in time takes no slot from those that do.
        soonest.sort_by_key(|at| hurried.contains(at));
        Self {
            order: soonest,
            without: hurried,
            hurries: true,
        }
    }
}

/// Which ones would end too late in this order. Those take no slot.
fn late(order: &[usize], waiting: &[Waiting], slots: &[Mono]) -> Vec<usize> {
    let mut slots = slots.to_vec();
    let mut late = Vec::new();
    for at in order {
        let (Some(vm), Some(slot)) = (waiting.get(*at), slots.iter_mut().min()) else {
            continue;
        };
        let ends = *slot + vm.takes;
        if vm.latest.is_some_and(|latest| ends > latest) {
            late.push(*at);
        } else {
            *slot = ends;
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(memory: u64, latest: u64) -> Waiting {
        Waiting {
            memory,
            takes: Duration::from_secs(memory),
            latest: (latest > 0).then_some(Mono(latest * 1000)),
        }
    }

    #[test]
    fn longest_first_while_nobody_is_late() {
        let all = [vm(5, 100), vm(20, 200), vm(10, 0)];
        let turns = Turns::of(&all, &[Mono(0)]);
        assert_eq!((turns.order, turns.without), (vec![1, 2, 0], vec![]));
        assert!(!turns.hurries);
    }

    #[test]
    fn one_whose_moment_comes_first_goes_first_when_that_helps() {
        let all = [vm(20, 200), vm(20, 200), vm(5, 15)];
        let turns = Turns::of(&all, &[Mono(0)]);
        assert_eq!((turns.order, turns.without), (vec![2, 0, 1], vec![]));
        assert!(turns.hurries);
        // It would be late either way: the others are not put off for it.
        let all = [vm(20, 200), vm(20, 200), vm(5, 3)];
        let turns = Turns::of(&all, &[Mono(0)]);
        assert_eq!((turns.order, turns.without), (vec![0, 1, 2], vec![2]));
    }

    #[test]
    fn of_many_with_the_same_moment_the_longest_come_first() {
        let all = [vm(10, 25), vm(10, 25), vm(12, 25), vm(1, 25)];
        let turns = Turns::of(&all, &[Mono(0)]);
        assert_eq!(turns.order, [2, 0, 1, 3]);
        assert_eq!(turns.without, [1]);
        assert!(!turns.hurries);
    }

    #[test]
    fn nobody_waits() {
        assert_eq!(Turns::of(&[], &[Mono(0)]), Turns::default());
        assert_eq!(Turns::of(&[vm(1, 5)], &[]).without, [0; 0]);
    }
}
