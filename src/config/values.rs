//! How durations and rates are written: `90s`, `1h30m`, `auto`, `1Gi/s`.

use std::time::Duration;

/// A duration as a person would write it, e.g. `1h30m`, `250ms`; read back by
/// [`crate::drain::policy::seconds::parse`].
pub fn span_text(span: Duration) -> String {
    let millis = span.as_millis();
    if !span.subsec_nanos().is_multiple_of(1_000_000)
        || (!millis.is_multiple_of(1000) && millis > 10_000)
    {
        return format!("{}s", span.as_secs_f64());
    }
    if millis == 0 {
        return "0s".into();
    }
    if !millis.is_multiple_of(1000) {
        return format!("{millis}ms");
    }
    let seconds = span.as_secs();
    let mut text = String::new();
    for (size, unit) in [(3600, "h"), (60, "m"), (1, "s")] {
        let count = match unit {
            "h" => seconds / size,
            "m" => seconds % 3600 / size,
            _ => seconds % 60,
        };
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
        }
    }
    text
}

/// Suffixes of sizes, the largest first, so that the first exact one is the shortest text.
const UNITS: [(&str, u64); 8] = [
    ("Ti", 1 << 40),
    ("T", 1_000_000_000_000),
    ("Gi", 1 << 30),
    ("G", 1_000_000_000),
    ("Mi", 1 << 20),
    ("M", 1_000_000),
    ("Ki", 1 << 10),
    ("K", 1000),
];

/// Reads `1Gi/s`, `500M/s` or `1048576/s` as bytes per second.
///
/// # Errors
/// A sentence when the text is no rate, or zero.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a rate such as 1Gi/s or 500M/s");
    let size = text.trim().strip_suffix("/s").ok_or_else(bad)?;
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| size.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((size, 1));
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 3 {
        return Err(bad());
    }
    let thousandths: u64 = format!("{part:0<3}").parse().map_err(|_| bad())?;
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let bytes = (u128::from(whole) * 1000 + u128::from(thousandths)) * u128::from(unit) / 1000;
    match u64::try_from(bytes) {
        Ok(0) => Err(format!(
            "'{text}' is a rate of zero, with it nothing would ever arrive"
        )),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(bad()),
    }
}

/// A rate as [`parse_rate`] reads it.
pub fn rate_text(bytes: u64) -> String {
    let (suffix, unit) = UNITS
        .iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit) && bytes > 0)
        .copied()
        .unwrap_or(("", 1));
    format!("{}{suffix}/s", bytes / unit)
}

/// A duration, written as text; a bare number counts seconds.
pub(super) mod span {
    use crate::drain::policy::seconds;
    use serde::{Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::config) fn serialize<S: Serializer>(
        span: &Duration,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::span_text(*span))
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        seconds::deserialize(from)
    }
}

/// A duration or `auto`.
pub(super) mod auto_span {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f64),
        Text(String),
    }

    #[allow(
        clippy::ref_option,
        reason = "serde's `with` hands the field over by reference"
    )]
    pub(in crate::config) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => to.serialize_str(&super::span_text(*span)),
            None => to.serialize_str("auto"),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        use serde::de::Error;
        let form = Form::deserialize(from)
            .map_err(|_| D::Error::custom("expected \"auto\" or a duration such as 30m"))?;
        match form {
            Form::Text(text) if text == "auto" => Ok(None),
            Form::Text(text) => crate::drain::policy::seconds::parse(&text)
                .map(Some)
                .map_err(|why| D::Error::custom(format!("{why}, nor \"auto\""))),
            Form::Number(n) => Duration::try_from_secs_f64(n)
                .map(Some)
                .map_err(D::Error::custom),
        }
    }
}

/// A rate in bytes per second or `auto`.
pub(super) mod auto_rate {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[allow(
        clippy::ref_option,
        reason = "serde's `with` hands the field over by reference"
    )]
    pub(in crate::config) fn serialize<S: Serializer>(
        rate: &Option<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match rate {
            Some(rate) => to.serialize_str(&super::rate_text(*rate)),
            None => to.serialize_str("auto"),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<u64>, D::Error> {
        let text = String::deserialize(from)?;
        if text == "auto" {
            return Ok(None);
        }
        super::parse_rate(&text)
            .map(Some)
            .map_err(|why| D::Error::custom(format!("{why}, nor \"auto\"")))
    }
}
