//! How are durations, sizes and rates written in a scenario?
//!
//! `90s` `5m` `1h30m` `200ms` · `8Gi` `512Mi` · `1Gi/s`. A bare number is refused: nobody should have to guess its unit.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A duration such as `1h30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A duration that may go backwards, such as `-1h`: for `host.clock_jump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// How far.
    pub by: Duration,
    /// Backwards.
    pub back: bool,
}

impl<'de> Deserialize<'de> for Jump {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let (back, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(&text)),
        };
        let by = duration(rest).map_err(serde::de::Error::custom)?;
        Ok(Self { by, back })
    }
}

/// A duration, or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eventually {
    /// After this long.
    After(Duration),
    /// Not at all.
    Never,
}

impl Eventually {
    /// The duration, `None` for never.
    pub fn after(self) -> Option<Duration> {
        match self {
            Self::After(span) => Some(span),
            Self::Never => None,
        }
    }
}

impl<'de> Deserialize<'de> for Eventually {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "never" {
            return Ok(Self::Never);
        }
        duration(&text)
            .map(Self::After)
            .map_err(|why| serde::de::Error::custom(format!("{why}, nor \"never\"")))
    }
}

/// Bytes, such as `8Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        size(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Bytes per second, such as `1Gi/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let rate = match text.strip_suffix("/s").map(size) {
            Some(Ok(bytes)) if bytes > 0 => Ok(Self(bytes)),
            _ => Err(format!("'{text}' is not a rate such as 1Gi/s")),
        };
        rate.map_err(serde::de::Error::custom)
    }
}

/// Reads `90s`, `5m`, `1h30m`, `200ms`: units once each, from large to small.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let bad = || format!("'{text}' is not a duration such as 90s, 5m or 1h30m");
    let (mut rest, mut smallest, mut total) = (text, None, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let tail = &rest[digits..];
        let end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let unit = UNITS.iter().position(|(name, _)| *name == &tail[..end]);
        let unit = unit.filter(|unit| smallest < Some(*unit)).ok_or_else(bad)?;
        let span = number.checked_mul(UNITS[unit].1).ok_or_else(bad)?;
        total = total.checked_add(span).ok_or_else(bad)?;
        smallest = Some(unit);
        rest = &tail[end..];
    }
    if smallest.is_none() {
        return Err(bad());
    }
    Ok(Duration::from_millis(total))
}

/// Reads `8Gi`, `512Mi`, `1024`.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("", 1),
    ];
    let bad = || format!("'{text}' is not a size such as 8Gi or 512Mi");
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| bad())?;
    let unit = UNITS.iter().find(|(name, _)| *name == &text[digits..]);
    unit.and_then(|(_, factor)| number.checked_mul(*factor))
        .ok_or_else(bad)
}

/// A duration as it would be written in a scenario: `1h30m`, `1.250s`.
pub fn show(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    let hours = (seconds >= 3600).then(|| format!("{}h", seconds / 3600));
    let minutes = (seconds % 3600 >= 60).then(|| format!("{}m", seconds % 3600 / 60));
    let rest = match (seconds % 60, millis) {
        (0, 0) if seconds > 0 => None,
        (whole, 0) => Some(format!("{whole}s")),
        (whole, millis) => Some(format!("{whole}.{millis:03}s")),
    };
    [hours, minutes, rest].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = |text| duration(text).map(|span| span.as_millis());
        assert_eq!(ms("90s"), Ok(90_000));
        assert_eq!(ms("1h30m"), Ok(5_400_000));
        assert_eq!(ms("1m200ms"), Ok(60_200));
        for bad in ["", "5", "5 m", "m", "-5s", "5s1h", "5s5s", "1.5s", "5x"] {
            assert!(duration(bad).is_err(), "{bad} was taken for a duration");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("8Gi"), Ok(8 << 30));
        assert_eq!(size("500M"), Ok(500_000_000));
        for bad in ["", "Gi", "8gi", "8 Gi", "-1Gi", "99999999Ti"] {
            assert!(size(bad).is_err(), "{bad} was taken for a size");
        }
    }

    #[test]
    fn shown_as_written() {
        for text in ["0s", "45s", "1m", "1h30m", "2h5s"] {
            assert_eq!(duration(text).map(show), Ok(text.to_owned()));
        }
        assert_eq!(show(Duration::from_millis(61_250)), "1m1.250s");
    }
}
