//! How many bytes is a Kubernetes quantity such as `2Gi`, `1500M` or `1.5e9`?

use serde::Deserialize;

/// A quantity as servers write it: text, or a bare number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Quantity {
    Number(u64),
    Text(String),
}

impl Quantity {
    /// In whole bytes, rounded down; `None` when it is not a quantity.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Number(bytes) => Some(*bytes),
            Self::Text(text) => parse(text),
        }
    }

    /// In thousandths, for CPUs.
    pub(crate) fn thousandths(&self) -> Option<u64> {
        match self {
            Self::Number(whole) => whole.checked_mul(1000),
            Self::Text(text) => match text.trim().strip_suffix('m') {
                Some(thousandths) => thousandths.parse().ok(),
                None => parse_times(text, 1000),
            },
        }
    }
}

/// Reads the text form.
fn parse(text: &str) -> Option<u64> {
    parse_times(text, 1)
}

/// The same, so many times as much.
fn parse_times(text: &str, factor: u128) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let places = u32::try_from(fraction.len()).ok()?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (times, over) = scale(suffix)?;
    let over = over.checked_mul(10_u128.checked_pow(places)?)?;
    u64::try_from(digits.checked_mul(times)?.checked_mul(factor)? / over).ok()
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    const K: u128 = 1024;
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (K, 1),
        "Mi" => (K.pow(2), 1),
        "Gi" => (K.pow(3), 1),
        "Ti" => (K.pow(4), 1),
        "Pi" => (K.pow(5), 1),
        "Ei" => (K.pow(6), 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("128", Some(128)),
            ("64Ki", Some(65_536)),
            ("2Gi", Some(2_147_483_648)),
            ("1.5Gi", Some(1_610_612_736)),
            ("1500M", Some(1_500_000_000)),
            ("1e9", Some(1_000_000_000)),
            ("1.5e3", Some(1500)),
            ("12E", Some(12_000_000_000_000_000_000)),
            ("2500m", Some(2)),
            ("1e-3", Some(0)),
            ("", None),
            (".", None),
            ("Gi", None),
            ("1.2.3", None),
            ("1gib", None),
            ("-1", None),
            ("99999999999E", None),
            ("1e99", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
        assert_eq!(Quantity::Number(7).bytes(), Some(7));
    }
}
