//! Where do messages go, and which?
//!
//! To the journal with fields when systemd has connected our stderr to it, else to stderr as text.
//! Our own messages from `info` on, of others only what is wrong. kube's client is silent: it reports
//! every 5xx at ERROR, and the driver already says what such an answer means.

use nix::sys::stat::fstat;
use std::io::IsTerminal;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, reload};

/// What is shown of each crate when nothing else is asked for.
const BASE: &str = "kube_client=off,kube_runtime=warn,warn";

/// Name in the journal.
const IDENTIFIER: &str = "vmdrain-agent";

/// Where the messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The journal's native protocol, with fields.
    Journal,
    /// Text on stderr.
    Stderr,
}

/// Changes the level of a running program.
#[derive(Clone, Debug)]
pub struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Takes a new `log.level`.
    ///
    /// # Errors
    /// A sentence when it is no level; the old one stays.
    pub fn set(&self, level: &str) -> Result<(), String> {
        let filter = filter(level)?;
        self.0.reload(filter).map_err(|why| why.to_string())
    }
}

/// The filter for a `log.level`: one of the five words for our own messages, or directives such as
/// `vmdrain_agent=debug,kube_client=warn`, which are put on top of the usual ones.
///
/// # Errors
/// A sentence when it is neither.
pub fn filter(level: &str) -> Result<Targets, String> {
    let bad = || {
        format!(
            "'{level}' is neither error, warn, info, debug or trace nor a filter such as vmdrain_agent=debug,kube_client=warn"
        )
    };
    if level.contains(['[', '{']) {
        return Err(format!(
            "'{level}' names spans or fields, which cannot be chosen here; a filter names modules and their level, such as vmdrain_agent::cluster=debug"
        ));
    }
    let words = ["off", "error", "warn", "info", "debug", "trace"];
    let directives = if words.contains(&level) {
        format!("vmdrain_agent={level},{BASE}")
    } else if level.contains('=') {
        format!("vmdrain_agent=info,{BASE},{level}")
    } else {
        return Err(bad());
    };
    directives.parse().map_err(|_| bad())
}

/// Starts to log; once per process. Answers where to, and the handle that changes the level.
///
/// # Errors
/// A sentence when the level is bad or something else logs already.
pub fn start(level: &str) -> Result<(Destination, Level), String> {
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let registry = tracing_subscriber::registry().with(filter);
    let told = |started: Result<(), TryInitError>| started.map_err(|why| why.to_string());
    if stderr_is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()) {
        // Without the socket the text on stderr still ends up in the journal.
        if let Ok(journal) = tracing_journald::layer() {
            told(registry.with(with_our_fields(journal)).try_init())?;
            return Ok((Destination::Journal, Level(handle)));
        }
        let plain = tracing_subscriber::fmt::layer()
            .fmt_fields(without_message_id())
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .without_time();
        told(registry.with(plain).try_init())?;
        return Ok((Destination::Stderr, Level(handle)));
    }
    let colour = std::io::stderr().is_terminal() && !no_colour();
    let text = tracing_subscriber::fmt::layer()
        .fmt_fields(without_message_id())
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .boxed();
    told(registry.with(text).try_init())?;
    Ok((Destination::Stderr, Level(handle)))
}

/// The id of a message is for the journal's catalog; as text it would be noise.
fn without_message_id() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(|writer, field, value| match field.name() {
        "message_id" => Ok(()),
        "message" => write!(writer, "{value:?} "),
        name => write!(writer, "{name}={value:?} "),
    })
}

/// <https://no-color.org>: set to anything but the empty text.
fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Fields without a prefix (so that `message_id` is `MESSAGE_ID`), INFO as informational rather than
/// as notice, and a name that does not depend on how the binary was called.
fn with_our_fields(journal: tracing_journald::Layer) -> tracing_journald::Layer {
    journal
        .with_field_prefix(None)
        .with_syslog_identifier(IDENTIFIER.into())
        .with_priority_mappings(PriorityMappings {
            error: Priority::Error,
            warn: Priority::Warning,
            info: Priority::Informational,
            debug: Priority::Debug,
            trace: Priority::Debug,
        })
}

/// Whether `JOURNAL_STREAM` (device and inode, systemd.exec(5)) is what our stderr is. A child of a
/// service inherits the variable but may write somewhere else.
fn stderr_is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    let (Ok(device), Ok(inode)) = (device.parse::<u64>(), inode.parse::<u64>()) else {
        return false;
    };
    fstat(std::io::stderr()).is_ok_and(|found| found.st_dev == device && found.st_ino == inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_or_a_filter() {
        for good in [
            "info",
            "off",
            "trace",
            "kube_client=debug",
            "vmdrain_agent::drain=trace,info",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["", "loud", "infos", "vmdrain_agent=loud"] {
            let why = filter(bad).expect_err(bad);
            assert!(why.contains(bad) && why.contains("debug"), "{why}");
        }
    }

    #[test]
    fn spans_and_fields_are_refused_and_not_taken_for_a_module() {
        for bad in [
            "vmdrain_agent[drain]=debug",
            "[drain{id=3}]=trace",
            "vmdrain_agent[{vm}]=info",
        ] {
            let why = filter(bad).expect_err(bad);
            assert!(
                why.contains(bad) && why.contains("spans") && why.contains("modules"),
                "{why}"
            );
        }
    }

    #[test]
    fn the_usual_filter_is_ours_at_info_and_silences_the_client() {
        let text = filter("info").expect("good").to_string();
        for part in ["vmdrain_agent=info", "kube_client=off", "kube_runtime=warn"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_journal_is_used_only_when_stderr_is_it() {
        let own = fstat(std::io::stderr()).expect("stderr exists");
        let matching = format!("{}:{}", own.st_dev, own.st_ino);
        let other = format!("{}:{}", own.st_dev, own.st_ino + 1);
        assert!(stderr_is_journal(Some(&matching)));
        for not in [None, Some(""), Some("8"), Some("a:b"), Some(other.as_str())] {
            assert!(!stderr_is_journal(not), "{not:?}");
        }
    }
}
