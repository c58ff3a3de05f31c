//! Both sides beside each other: plays a scene on each, lets them come to rest, and once more what was disturbed.
//!
//! What a controller does at last may come a second later on one side, and many seconds later on a busy machine. So a scene has not ended
//! before nothing has changed for a while *and* both sides have had the same changes; only when that does not come in time, they differ.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::changes::Changes;
use super::orders::{self, Finding, Order};
use super::report::News;
use super::scene::{Played, Told};
use super::side::{LOOK, Side};
use super::table::{Difference, Scene};
use super::verdict::{self, Outcome, Verdict};
use crate::clock::SimClock;

/// Nothing may change for so long before the changes are compared.
const QUIET: Duration = Duration::from_millis(2500);
/// A side that lacks something that the other has done has so long to do it as well.
const CATCH_UP: Duration = Duration::from_secs(45);
/// No scene needs longer to come to rest.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a scene is played at most, when it was disturbed.
const PLAYS: usize = 3;
/// A story whose order differs is played so many times more: what swaps among them is a race, not an order.
const MORE: usize = 4;

/// Two clusters, and who hears of them.
pub struct Stand<'a> {
    /// The simulated one.
    pub model: &'a Side,
    /// The real one.
    pub real: &'a Side,
    /// Differences of the changes that are known in every scene.
    pub everywhere: &'a [Difference],
    /// The real servers that had to be started again so far.
    pub revived: &'a (dyn Fn() -> Vec<String> + Sync),
    /// So many scenes are played at a time.
    pub places: Semaphore,
    /// Hears what happens.
    pub tell: &'a (dyn Fn(&News<'_>) + Sync),
}

impl Stand<'_> {
    /// Plays a scene on both sides and compares.
    pub async fn compare(&self, scene: &Scene) -> Verdict {
        let version = self.model.kubevirt;
        let judge = |(told, really): &(Told, Told)| {
            verdict::judge(scene, told, really, version, self.everywhere)
        };
        let both = async |play| {
            let agree = |model: &Changes, real: &Changes| self.agree(scene, model, real);
            self.both(scene, play, agree).await
        };
        let fine = |played: &(Told, Told)| judge(played).passed();
        let played = self.undisturbed(&scene.name, both, fine).await;
        let mut verdict = judge(&played);
        verdict.took = played.1.took;
        (self.tell)(&News::Judged(&verdict));
        verdict
    }

    /// Plays a story several times on both sides and compares the order of the changes.
    pub async fn order(&self, story: &Scene, plays: usize, races: &[Difference]) -> Finding {
        let play = async |numbers: std::ops::Range<usize>| {
            // A story and a scene may have the same name.
            let all = numbers.map(|number| self.story(story, (number + 1) * PLAYS));
            futures_util::future::join_all(all).await
        };
        let mut all = play(0..plays).await;
        let mut finding = orders::find(story, &all, races);
        if !finding.breaches.is_empty() && all.iter().all(|(one, two)| whole(one) && whole(two)) {
            (self.tell)(&News::Again(&format!(
                "{}: the order differs, {MORE} more plays show whether it is one",
                story.name
            )));
            all.extend(play(plays..plays + MORE).await);
            finding = orders::find(story, &all, races);
        }
        finding
    }

    async fn story(&self, story: &Scene, number: usize) -> (Told, Told) {
        self.undisturbed(
            &story.name,
            async |play| {
                let steps = |changes: &Changes| Order::of(changes).steps();
                let agree = |model: &Changes, real: &Changes| steps(model) == steps(real);
                self.both(story, number + play, agree).await
            },
            |(model, real)| whole(model) && whole(real),
        )
        .await
    }

    /// Once more, as long as it is not `fine` and something on the real side was not as it should be meanwhile.
    async fn undisturbed(
        &self,
        name: &str,
        play: impl AsyncFn(usize) -> (Told, Told),
        fine: impl Fn(&(Told, Told)) -> bool,
    ) -> (Told, Told) {
        let mut number = 0;
        loop {
            let place = self.places.acquire().await;
            let before = (self.revived)().len();
            let played = play(number).await;
            drop(place);
            number += 1;
            if number == PLAYS || fine(&played) {
                return played;
            }
            let ended = (self.revived)().split_off(before);
            let why = if !ended.is_empty() {
                format!("{} ended and was started again", ended.join(", "))
            } else if played.1.is_late() && !played.0.is_late() {
                "virt-api did not answer in time".to_owned()
            } else {
                return played;
            };
            (self.tell)(&News::Again(&format!("{name}: {why} meanwhile; once more")));
        }
    }

    fn agree(&self, scene: &Scene, model: &Changes, real: &Changes) -> bool {
        let version = self.model.kubevirt;
        let (outcome, _) = verdict::of_changes(scene, model, real, version, self.everywhere);
        !matches!(outcome, Outcome::Wrong(_))
    }

    /// Plays a scene on both sides, until both have come to rest and agree.
    async fn both(
        &self,
        scene: &Scene,
        play: usize,
        agree: impl Fn(&Changes, &Changes) -> bool,
    ) -> (Told, Told) {
        if scene.real_only {
            let told = Played::begin(scene, self.real, play).await.end().await;
            return (Told::default(), told);
        }
        let (mut model, mut real) = tokio::join!(
            Played::begin(scene, self.model, play),
            Played::begin(scene, self.real, play)
        );
        if model.goes_on() && real.goes_on() && !rest(&model, &real, agree).await {
            for side in [&mut model, &mut real] {
                if side.quiet() < QUIET {
                    side.fail("it never became quiet");
                }
            }
        }
        tokio::join!(model.end(), real.end())
    }
}

/// Waits until both are quiet and agree; whether at least the former came in time.
async fn rest(
    model: &Played<'_>,
    real: &Played<'_>,
    agree: impl Fn(&Changes, &Changes) -> bool,
) -> bool {
    let clock = SimClock::new(1.0);
    loop {
        let quiet = model.quiet().min(real.quiet());
        if quiet >= QUIET {
            if clock.elapsed() > CATCH_UP || agree(&model.changes(), &real.changes()) {
                return true;
            }
            tokio::time::sleep(5 * LOOK).await;
        } else if clock.elapsed() > PATIENCE {
            return false;
        } else {
            tokio::time::sleep(QUIET.saturating_sub(quiet)).await;
        }
    }
}

fn whole(told: &Told) -> bool {
    told.problem.is_none()
}
