//! When is each expectation looked at, and what was the result?

use std::time::Duration;

use super::judge::judge;
use super::scene::Scene;
use crate::scenario::expect::{Expect, When};
use crate::scenario::values::show;

/// How an expectation has fared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Not decided yet; what was there at the last look.
    Open(Option<String>),
    Held,
    Failed {
        at: Duration,
        why: String,
    },
}

/// One expectation over the whole story.
#[derive(Debug)]
struct Track {
    expect: Expect,
    state: State,
}

/// An expectation that did not hold.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Miss {
    /// Line in the file.
    pub line: usize,
    /// The expectation in one line.
    pub expected: String,
    /// Seconds into the story.
    pub at: f64,
    /// What was there instead.
    pub but: String,
}

/// How far a real clock may be off, in the story's time; nothing where time is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slack {
    /// At any moment.
    pub fixed: Duration,
    /// And this part of the time that has passed: every step costs a little.
    pub share: f64,
    /// And as much as the machine was late.
    pub late: Duration,
    /// Real controllers take their own time, of which the story's clock knows nothing: what comes may come so much later.
    pub behind: Duration,
}

impl Slack {
    /// At a moment of the story.
    pub fn at(self, moment: Duration) -> Duration {
        self.fixed + moment.mul_f64(self.share) + self.late
    }
}

/// All expectations of a story.
#[derive(Debug)]
pub struct Tracker {
    tracks: Vec<Track>,
    slack: Slack,
}

impl Tracker {
    /// Nothing looked at yet.
    pub fn new(expectations: &[Expect], slack: Slack) -> Self {
        let tracks = expectations
            .iter()
            .map(|expect| Track {
                expect: expect.clone(),
                state: State::Open(None),
            })
            .collect();
        Self { tracks, slack }
    }

    /// The next moment after `now` at which something has to be looked at.
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let moments = self.tracks.iter().filter(|track| track.is_open());
        moments
            .filter_map(|track| track.moment(self.slack))
            .filter(|at| *at > now)
            .min()
    }

    /// The last moment that an open expectation names: the story cannot end before.
    pub fn last(&self) -> Duration {
        let open = self.tracks.iter().filter(|track| track.is_open());
        open.filter_map(|track| track.moment(self.slack))
            .max()
            .unwrap_or_default()
    }

    /// The machine has been late by so much in all.
    pub fn late(&mut self, by: Duration) {
        self.slack.late = by;
    }

    /// Before anything has happened: what is true already cannot come true by some moment, so such an expectation proves nothing.
    pub fn begin(&mut self, scene: &Scene<'_>) {
        for track in &mut self.tracks {
            if matches!(track.expect.when, When::By(_)) && judge(&track.expect.what, scene).is_ok()
            {
                let why = "it is true from the beginning, so `by` proves nothing: use `at`, `always` or no time at all";
                track.fail(scene.now, why.into());
            }
        }
    }

    /// Looks at whatever is to be looked at in this scene.
    pub fn look(&mut self, scene: &Scene<'_>) {
        for track in self.tracks.iter_mut().filter(|track| track.is_open()) {
            track.look(scene, self.slack);
        }
    }

    /// The story is over.
    pub fn end(&mut self, scene: &Scene<'_>) {
        self.look(scene);
        for track in self.tracks.iter_mut().filter(|track| track.is_open()) {
            track.end(scene);
        }
    }

    /// How many expectations there are.
    pub fn len(&self) -> usize {
        self.tracks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// Everything that did not hold, in the order of the file.
    pub fn misses(&self) -> Vec<Miss> {
        let failed = self.tracks.iter().filter_map(|track| match &track.state {
            State::Failed { at, why } => Some(Miss {
                line: track.expect.line,
                expected: track.expect.text.clone(),
                at: at.as_secs_f64(),
                but: why.clone(),
            }),
            State::Open(_) | State::Held => None,
        });
        failed.collect()
    }
}

impl Track {
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// The moment at which it is decided at the latest.
    fn moment(&self, slack: Slack) -> Option<Duration> {
        match self.expect.when {
            When::At(at) | When::By(at) => Some(at + slack.at(at) + slack.behind),
            When::NeverBefore(at) => Some(at.saturating_sub(slack.at(at))),
            When::Always | When::End => None,
        }
    }

    fn look(&mut self, scene: &Scene<'_>, slack: Slack) {
        match self.expect.when {
            // A real clock meets no exact moment: true at some time around it.
            When::At(at) if scene.now + slack.at(at) >= at => {
                self.once(scene, at + slack.at(at) + slack.behind);
            }
            When::By(by) => self.once(scene, by + slack.at(by) + slack.behind),
            When::NeverBefore(before) => {
                self.not_before(scene, before.saturating_sub(slack.at(before)));
            }
            When::Always => {
                if let Err(why) = judge(&self.expect.what, scene) {
                    self.fail(scene.now, why);
                }
            }
            When::At(_) | When::End => {}
        }
    }

    /// True once, until `last`.
    fn once(&mut self, scene: &Scene<'_>, last: Duration) {
        match judge(&self.expect.what, scene) {
            Ok(()) if scene.now <= last => self.state = State::Held,
            Ok(()) => {
                let why = format!("it came true only after {}", show(last));
                self.fail(scene.now, why);
            }
            Err(why) if scene.now >= last => self.fail(scene.now, why),
            Err(why) => self.state = State::Open(Some(why)),
        }
    }

    fn not_before(&mut self, scene: &Scene<'_>, before: Duration) {
        if scene.now >= before {
            self.state = State::Held;
        } else if judge(&self.expect.what, scene).is_ok() {
            self.fail(scene.now, format!("it was true before {}", show(before)));
        }
    }

    fn end(&mut self, scene: &Scene<'_>) {
        let State::Open(last) = &self.state else {
            return;
        };
        let last = last.clone();
        self.state = match self.expect.when {
            When::NeverBefore(_) | When::Always => State::Held,
            When::End => match judge(&self.expect.what, scene) {
                Ok(()) => State::Held,
                Err(why) => State::Failed { at: scene.now, why },
            },
            When::At(_) | When::By(_) => State::Failed {
                at: scene.now,
                why: format!("the story ended before: {}", last.unwrap_or_default()),
            },
        };
    }

    fn fail(&mut self, at: Duration, why: String) {
        self.state = State::Failed { at, why };
    }
}
