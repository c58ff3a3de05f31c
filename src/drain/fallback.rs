//! When must which guest be told, so that each gets its grace period before the deadline (design section 3.3)?
//!
//! Guests are told by groups (`vmdrain.io/stop-order`, databases last): a group when those before it are gone, or
//! when it could not end in time otherwise. Pure arithmetic on times; who may be stopped at all is not asked here.

use super::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// A guest that is still here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Key of its track.
    pub key: String,
    /// Later groups have higher numbers; 0 without the annotation.
    pub order: i64,
    /// How long it may take from the request to the end of its pod.
    pub needs: Duration,
}

/// Guests with the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their order.
    pub order: i64,
    /// The one that needs longest is first.
    pub guests: Vec<Guest>,
    /// When they have to be told at the latest, so that they and those after them end in time, one group after the
    /// other.
    pub latest: Mono,
}

/// All groups, first to last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The groups.
    pub groups: Vec<Group>,
    /// The time is too short for all groups one after the other: they overlap.
    pub overlap: bool,
    /// What the guest that needs longest needs.
    pub longest: Duration,
}

impl Schedule {
    /// The schedule for these guests and this deadline.
    pub fn of(guests: Vec<Guest>, deadline: Mono, now: Mono) -> Self {
        let mut by_order: BTreeMap<i64, Vec<Guest>> = BTreeMap::new();
        for guest in guests {
            by_order.entry(guest.order).or_default().push(guest);
        }
        let mut after = Duration::ZERO;
        let mut groups = Vec::new();
        let mut longest = Duration::ZERO;
        for (order, mut guests) in by_order.into_iter().rev() {
            guests.sort_by(|a, b| b.needs.cmp(&a.needs).then_with(|| a.key.cmp(&b.key)));
            let needs = guests.first().map(|g| g.needs).unwrap_or_default();
            longest = longest.max(needs);
            after = after.saturating_add(needs);
            groups.push(Group {
                order,
                guests,
                latest: deadline - after,
            });
        }
        groups.reverse();
        let overlap = groups.len() > 1 && groups.first().is_some_and(|g| g.latest < now);
        Self {
            groups,
            overlap,
            longest,
        }
    }

    /// When the first group has to be told; `None` without guests.
    pub fn begins(&self) -> Option<Mono> {
        self.groups.first().map(|group| group.latest)
    }

    /// Guests whose turn has come: the first group that is still here, and every other one that could not wait for it.
    pub fn due(&self, now: Mono) -> impl Iterator<Item = &Guest> {
        let turn = move |(at, group): &(usize, &Group)| *at == 0 || group.latest <= now;
        let groups = self.groups.iter().enumerate().filter(turn);
        groups.flat_map(|(_, group)| &group.guests)
    }

    /// The next moment at which another group's turn comes by itself.
    pub fn next(&self, now: Mono) -> Option<Mono> {
        let later = self.groups.iter().map(|group| group.latest);
        later.filter(|at| *at > now).min()
    }
}

/// Reads `vmdrain.io/stop-order`.
///
/// # Errors
/// A sentence part: what is wrong with it.
pub fn stop_order(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| {
        format!(
            "annotation vmdrain.io/stop-order is \"{text}\", which is no whole number; 0 is taken"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1000;

    fn guest(key: &str, order: i64, needs: u64) -> Guest {
        Guest {
            key: key.into(),
            order,
            needs: Duration::from_secs(needs),
        }
    }

    fn due(schedule: &Schedule, now: u64) -> Vec<&str> {
        schedule.due(Mono(now)).map(|g| g.key.as_str()).collect()
    }

    #[test]
    fn one_group_begins_when_its_longest_needs_it() {
        let guests = vec![guest("a", 0, 30), guest("b", 0, 180)];
        let schedule = Schedule::of(guests, Mono(1000 * S), Mono(0));
        assert_eq!(schedule.begins(), Some(Mono(820 * S)));
        assert_eq!(due(&schedule, 820 * S), ["b", "a"]);
        assert_eq!(schedule.longest, Duration::from_secs(180));
        assert!(!schedule.overlap);
    }

    #[test]
    fn groups_follow_each_other_and_databases_are_last() {
        let guests = vec![
            guest("db", 10, 120),
            guest("web", 0, 30),
            guest("app", 5, 60),
        ];
        let schedule = Schedule::of(guests, Mono(1000 * S), Mono(0));
        assert_eq!(schedule.begins(), Some(Mono(790 * S)));
        assert_eq!(due(&schedule, 790 * S), ["web"]);
        // web takes its whole time: app at 820, db at 880.
        assert_eq!(schedule.next(Mono(790 * S)), Some(Mono(820 * S)));
        assert_eq!(due(&schedule, 820 * S), ["web", "app"]);
        assert_eq!(due(&schedule, 880 * S), ["web", "app", "db"]);
        // web is gone early: app's turn has come.
        let left = vec![guest("db", 10, 120), guest("app", 5, 60)];
        let schedule = Schedule::of(left, Mono(1000 * S), Mono(0));
        assert_eq!(due(&schedule, 795 * S), ["app"]);
    }

    #[test]
    fn when_time_is_short_groups_overlap_so_that_the_last_still_gets_its_own() {
        let guests = vec![guest("db", 10, 120), guest("web", 0, 100)];
        let now = Mono(850 * S);
        let schedule = Schedule::of(guests, Mono(1000 * S), now);
        assert!(schedule.overlap);
        assert_eq!(due(&schedule, now.0), ["web"]);
        assert_eq!(due(&schedule, 880 * S), ["web", "db"]);
        // Too short for anything: all at once.
        let guests = vec![guest("db", 10, 120), guest("web", 0, 100)];
        let schedule = Schedule::of(guests, Mono(900 * S), now);
        assert_eq!(due(&schedule, now.0), ["web", "db"]);
    }

    #[test]
    fn nobody_left_means_nothing_to_begin() {
        let schedule = Schedule::of(Vec::new(), Mono(5), Mono(0));
        assert_eq!((schedule.begins(), schedule.next(Mono(0))), (None, None));
        assert_eq!(due(&schedule, 100), [""; 0]);
    }

    #[test]
    fn the_annotation_is_a_whole_number() {
        assert_eq!(stop_order(" 10 "), Ok(10));
        assert_eq!(stop_order("-5"), Ok(-5));
        assert!(stop_order("last").unwrap_err().contains("\"last\""));
    }
}
