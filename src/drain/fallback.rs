//! When must which guest be told, so that each gets its grace period before the deadline (design section 3.3)?
//!
//! Each guest has a latest moment of its own; until then its VM may still be migrated. Guests of a later group
//! (`vmdrain.io/stop-order`, databases last) are told after those before them, whose moments come that much earlier.
//! Pure arithmetic on times; who may be stopped at all is not asked here.

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
    /// When all of them have to be gone, so that those after them end in time.
    pub gone: Mono,
}

impl Group {
    /// When this guest of the group has to be told at the latest.
    pub fn latest(&self, guest: &Guest) -> Mono {
        self.gone - guest.needs
    }

    /// When the first of its guests has to be told.
    pub fn begins(&self) -> Option<Mono> {
        self.guests.first().map(|guest| self.latest(guest))
    }
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
            groups.push(Group {
                order,
                guests,
                gone: deadline - after,
            });
            after = after.saturating_add(needs);
        }
        groups.reverse();
        let overlap = groups.len() > 1 && deadline - after < now;
        Self {
            groups,
            overlap,
            longest,
        }
    }

    /// Every guest with its latest moment, group after group.
    pub fn moments(&self) -> impl Iterator<Item = (&Guest, Mono)> {
        let each = |group| move |guest| (guest, Group::latest(group, guest));
        let groups = self.groups.iter();
        groups.flat_map(move |group| group.guests.iter().map(each(group)))
    }

    /// When the first guest has to be told; `None` without guests.
    pub fn begins(&self) -> Option<Mono> {
        self.groups.first().and_then(Group::begins)
    }

    /// Guests that cannot wait any longer.
    pub fn due(&self, now: Mono) -> impl Iterator<Item = &Guest> {
        let due = self.moments().filter(move |(_, latest)| *latest <= now);
        due.map(|(guest, _)| guest)
    }

    /// Guests whose turn has come when nobody is migrated any more: the first group that is still here, and every other
    /// guest that could not wait for it.
    pub fn turn(&self, now: Mono) -> impl Iterator<Item = &Guest> {
        let first = self.groups.first().map(|group| group.order);
        let groups = self.groups.iter();
        groups.flat_map(move |group| {
            let all = Some(group.order) == first;
            let guests = group.guests.iter();
            guests.filter(move |guest| all || group.latest(guest) <= now)
        })
    }

    /// Whom to tell now. `asked`: somebody has asked to go, so nobody is migrated any more.
    pub fn told_now(&self, asked: bool, now: Mono) -> Vec<&Guest> {
        if asked {
            self.turn(now).collect()
        } else {
            self.due(now).collect()
        }
    }

    /// The next moment at which a guest's turn comes by itself.
    pub fn next(&self, now: Mono) -> Option<Mono> {
        let later = self.moments().map(|(_, latest)| latest);
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
    fn each_guest_has_a_moment_of_its_own() {
        let guests = vec![guest("a", 0, 30), guest("b", 0, 180)];
        let schedule = Schedule::of(guests, Mono(1000 * S), Mono(0));
        assert_eq!(schedule.begins(), Some(Mono(820 * S)));
        assert_eq!(due(&schedule, 819 * S), [""; 0]);
        assert_eq!(due(&schedule, 820 * S), ["b"]);
        assert_eq!(schedule.next(Mono(820 * S)), Some(Mono(970 * S)));
        assert_eq!(due(&schedule, 970 * S), ["b", "a"]);
        // Nobody is migrated any more: nothing is gained by waiting.
        assert_eq!(turn(&schedule, 0), ["b", "a"]);
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
        assert_eq!(turn(&schedule, 795 * S), ["app"]);
        // It may still be migrated: then it waits for its own moment.
        assert_eq!(due(&schedule, 795 * S), [""; 0]);
    }

    #[test]
    fn a_group_with_one_long_grace_period_does_not_drag_the_others_along() {
        let guests = vec![
            guest("db", 10, 100),
            guest("slow", 0, 300),
            guest("web", 0, 30),
        ];
        let schedule = Schedule::of(guests, Mono(1000 * S), Mono(0));
        assert_eq!(due(&schedule, 600 * S), ["slow"]);
        assert_eq!(due(&schedule, 869 * S), ["slow"]);
        // It has to be gone when the database is told.
        assert_eq!(due(&schedule, 870 * S), ["slow", "web"]);
        assert_eq!(due(&schedule, 900 * S), ["slow", "web", "db"]);
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

    fn turn(schedule: &Schedule, now: u64) -> Vec<&str> {
        schedule.turn(Mono(now)).map(|g| g.key.as_str()).collect()
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
