//! What does the program end with? One table for all commands; scripts rely on it.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Done; for a drain: the node is empty.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The drain ended with VMs left.
    Left = 3,
    /// Refused; the message says why.
    Refused = 4,
    /// The drain was called off.
    Cancelled = 5,
    /// The daemon cannot be reached.
    NoDaemon = 6,
    /// The API server cannot be reached.
    NoCluster = 7,
    /// `plan`: some VM would be shut down or left.
    NotSafe = 10,
    /// `doctor`: warnings, and nothing worse.
    Warnings = 11,
    /// `doctor`: something is broken.
    Failures = 12,
    /// Ctrl-C: nobody watches any more, the drain goes on. What a shell expects of an interrupted
    /// program, so that `vmdrain-agent trigger && …` does not go on as if the node were empty.
    Detached = 130,
}

impl Exit {
    /// Every way to end.
    pub const ALL: [Self; 12] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Left,
        Self::Refused,
        Self::Cancelled,
        Self::NoDaemon,
        Self::NoCluster,
        Self::NotSafe,
        Self::Warnings,
        Self::Failures,
        Self::Detached,
    ];

    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What a finished drain reports as its exit; a number that this version does not know counts as
    /// a failure.
    pub fn from_drain(code: u8) -> Self {
        Self::ALL
            .into_iter()
            .find(|exit| exit.code() == code)
            .unwrap_or(Self::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_a_contract() {
        let codes: Vec<u8> = Exit::ALL.into_iter().map(Exit::code).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 130]);
        for exit in Exit::ALL {
            assert_eq!(Exit::from_drain(exit.code()), exit);
        }
        assert_eq!(Exit::from_drain(99), Exit::Failed);
    }
}
