//! Which KubeVirt versions can be built here?

use std::fmt;
use std::str::FromStr;

/// A KubeVirt that `tests/control-plane` pins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.5.0: with a budget for every VM, without a way to cancel an evacuation.
    V1_5,
    /// 1.7.0.
    #[default]
    V1_7,
    /// 1.8.0.
    V1_8,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V1_5, Self::V1_7, Self::V1_8];

    /// `1.7.0`.
    pub fn full(self) -> &'static str {
        match self {
            Self::V1_5 => "1.5.0",
            Self::V1_7 => "1.7.0",
            Self::V1_8 => "1.8.0",
        }
    }

    /// 7 for 1.7.0.
    pub fn minor(self) -> u32 {
        match self {
            Self::V1_5 => 5,
            Self::V1_7 => 7,
            Self::V1_8 => 8,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.full())
    }
}

impl FromStr for Version {
    type Err = String;

    /// `1.7` or `1.7.0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |version: &&Self| {
            let full = version.full();
            text == full || Some(text) == full.strip_suffix(".0")
        };
        Self::ALL.iter().find(fits).copied().ok_or_else(|| {
            format!("there is no control plane with KubeVirt {text}; there are 1.5, 1.7 and 1.8")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_full() {
        assert_eq!("1.7".parse(), Ok(Version::V1_7));
        assert_eq!("1.8.0".parse(), Ok(Version::V1_8));
        assert!("1.9".parse::<Version>().is_err());
        assert!("1".parse::<Version>().is_err());
    }
}
