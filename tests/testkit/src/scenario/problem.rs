//! What is wrong with a scenario file, and on which line?

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A fault in a scenario file. Prints as `file.toml:12: sentence`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The file as it was named.
    pub file: PathBuf,
    /// The line, counted from 1; 0 when the file could not be read at all.
    pub line: usize,
    /// What is wrong: lower case, no trailing dot.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.trim_end().replace('\n', " ");
        match self.line {
            0 => write!(f, "{}: {text}", self.file.display()),
            line => write!(f, "{}:{line}: {text}", self.file.display()),
        }
    }
}

/// A file being read: turns positions into lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// The line of a byte position, counted from 1.
    pub(super) fn line(&self, position: usize) -> usize {
        let end = position.min(self.text.len());
        self.text[..end].matches('\n').count() + 1
    }

    /// A problem at a place of the text.
    pub(super) fn problem(&self, span: &Range<usize>, text: impl Into<String>) -> Problem {
        self.problem_at(self.line(span.start), text)
    }

    /// A problem on a line.
    pub(super) fn problem_at(&self, line: usize, text: impl Into<String>) -> Problem {
        Problem {
            file: self.file.to_path_buf(),
            line,
            text: text.into(),
        }
    }

    /// What the TOML reader said; `whole` is the place to blame when it named none.
    pub(super) fn toml_problem(&self, error: &toml::de::Error, whole: &Range<usize>) -> Problem {
        let span = error.span().unwrap_or_else(|| whole.clone());
        self.problem(&span, error.message())
    }
}
