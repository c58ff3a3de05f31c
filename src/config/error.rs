//! What is wrong with a configuration: each complaint names where it stands and which key it is about.

use std::fmt;

/// One complaint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, the environment variable or the option.
    pub origin: String,
    /// The key, as `section.key`; empty when the whole layer cannot be read.
    pub key: String,
    /// What is wrong, and where it is known, what would be right.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.what)
        } else {
            write!(f, "{}: {}: {}", self.origin, self.key, self.what)
        }
    }
}

/// Everything that is wrong, in the order of the layers; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The complaints.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}
