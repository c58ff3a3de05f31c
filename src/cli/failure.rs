//! How is a failed command told? What happened, what it means, what to do; once, on stderr.

use super::daemon::CallError;
use super::exit::Exit;
use crate::config::ConfigError;
use std::fmt;
use std::io::{self, ErrorKind};

/// A command that did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub what: String,
    /// What it means for the VMs and the host; may be empty.
    pub means: String,
    /// What to do; may be empty when `what` says it already.
    pub cure: String,
    /// How the program ends.
    pub exit: Exit,
}

impl Failure {
    /// A failure with its three sentences.
    pub fn new(
        exit: Exit,
        what: impl Into<String>,
        means: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            means: means.into(),
            cure: cure.into(),
            exit,
        }
    }

    /// The reader of our output has gone away (`… | head`): nothing to tell anybody.
    pub fn is_silent(&self) -> bool {
        self.what.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for more in [&self.means, &self.cure] {
            if !more.is_empty() {
                write!(f, "\n  {more}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unreachable(why) => Self::new(
                Exit::NoDaemon,
                format!("the daemon cannot be reached: {why}"),
                "Without a daemon nobody moves the VMs of this host away when it goes down.",
                "Look at `systemctl status vmdrain-agent` and start it with `systemctl start vmdrain-agent`. `vmdrain-agent trigger --standalone` drains without a daemon.",
            ),
            CallError::Refused(why) => Self::new(Exit::Refused, why, "", ""),
            CallError::Denied(why) => Self::new(
                Exit::Refused,
                format!("not allowed: {why}"),
                "Nothing was changed.",
                "Run the command as root.",
            ),
            CallError::Failed(why) => Self::new(
                Exit::Failed,
                why,
                "The daemon is there but could not do it.",
                "`vmdrain-agent status` and `journalctl -u vmdrain-agent` tell more.",
            ),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(
            Exit::Failed,
            format!("the configuration is not valid\n{error}"),
            "Nothing was started with it; a running daemon keeps its old settings.",
            "Correct the lines above; `vmdrain-agent config check` looks again. docs/configuration.md describes every key.",
        )
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, "", "", "");
        }
        Self::new(
            Exit::Failed,
            format!("the output cannot be written: {error}"),
            "",
            "",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_daemon_has_its_exit_code() {
        let table = [
            (CallError::Unreachable("no bus".into()), Exit::NoDaemon),
            (
                CallError::Refused("a drain is running".into()),
                Exit::Refused,
            ),
            (CallError::Denied("polkit".into()), Exit::Refused),
            (CallError::Failed("broken".into()), Exit::Failed),
        ];
        for (error, exit) in table {
            let said = error.to_string();
            let failure = Failure::from(error);
            assert_eq!(failure.exit, exit);
            assert!(failure.to_string().contains(&said), "{failure}");
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = Failure::from(io::Error::from(ErrorKind::BrokenPipe));
        assert!(gone.is_silent());
        assert_eq!(gone.exit, Exit::Done);
        assert!(!Failure::from(io::Error::from(ErrorKind::StorageFull)).is_silent());
    }
}
