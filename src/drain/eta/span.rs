//! A range of time, and its words: as coarse as the knowledge is.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// From now. In JSON whole seconds: more would be a lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// When all goes well.
    #[serde(with = "whole")]
    pub low: Duration,
    /// The best guess.
    #[serde(with = "whole")]
    pub likely: Duration,
    /// When it does not.
    #[serde(with = "whole")]
    pub high: Duration,
}

/// Durations in whole seconds.
mod whole {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64((*span + Duration::from_millis(500)).as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_secs)
    }
}

impl Span {
    /// The end of the last of them.
    pub fn longest(spans: impl Iterator<Item = Self>) -> Self {
        spans.fold(Self::default(), |most, span| Self {
            low: most.low.max(span.low),
            likely: most.likely.max(span.likely),
            high: most.high.max(span.high),
        })
    }

    /// Just then.
    pub fn at(moment: Duration) -> Self {
        Self {
            low: moment,
            likely: moment,
            high: moment,
        }
    }

    /// One after the other.
    #[must_use]
    pub fn and_then(self, next: Self) -> Self {
        Self {
            low: self.low + next.low,
            likely: self.likely + next.likely,
            high: self.high + next.high,
        }
    }

    /// Nothing goes on after `end`.
    #[must_use]
    pub fn ends_by(self, end: Duration) -> Self {
        Self {
            low: self.low.min(end),
            likely: self.likely.min(end),
            high: self.high.min(end),
        }
    }

    /// The same in steps as coarse as one may honestly say them.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self {
            low: round(self.low),
            likely: round(self.likely),
            high: round(self.high),
        }
    }
}

/// To the next 5 s, beyond two minutes 30 s, beyond ten minutes 1 min, beyond an hour 5 min.
fn round(span: Duration) -> Duration {
    let step = match span.as_secs() {
        0..120 => 5,
        120..600 => 30,
        600..3600 => 60,
        _ => 300,
    };
    let whole = span.as_secs_f64();
    let steps = Duration::from_secs(step);
    let times = (whole / steps.as_secs_f64()).round();
    Duration::try_from_secs_f64(times * steps.as_secs_f64()).unwrap_or(span)
}

/// `about 4m (2m 30s to 8m)`, or `about 4m` when the ends would say the same.
pub fn words(span: Span) -> String {
    let span = span.rounded();
    let text = |d: Duration| {
        let s = d.as_secs();
        match (s / 3600, s % 3600 / 60, s % 60) {
            (0, 0, s) => format!("{s}s"),
            (0, m, 0) => format!("{m}m"),
            (0, m, s) => format!("{m}m {s}s"),
            (h, 0, _) => format!("{h}h"),
            (h, m, _) => format!("{h}h {m}m"),
        }
    };
    if span.high == Duration::ZERO {
        return "a few seconds".into();
    }
    let likely = text(span.likely.max(Duration::from_secs(5)));
    if span.low == span.high {
        return format!("about {likely}");
    }
    format!("about {likely} ({} to {})", text(span.low), text(span.high))
}
