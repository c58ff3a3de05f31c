//! Which keys do `Trigger` and `Cancel` take? One table for both directions, so that client and daemon agree.

use super::error::BusError;
use crate::drain::policy::seconds;
use crate::drain::trigger::{Ending, Trigger};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use zbus::{OwnedVariant, Variant};

/// A deadline beyond this is a slip (microseconds taken for something else), and none at all.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The options of a call, `a{sv}`.
pub type Options = BTreeMap<String, OwnedVariant>;

/// Reads the options of `Trigger`: `then` (s), `reason` (s), `deadline` (t in microseconds, or s as in `30m`),
/// `on_deadline` (s), `allow_guest_shutdown` (b), `scope` (s), `keep_cordoned` (b), `shutdown_vms` (b), `stop_job` (b).
pub fn trigger_from(options: &Options) -> Result<Trigger, BusError> {
    let mut trigger = Trigger::default();
    for (key, value) in options {
        match key.as_str() {
            "then" => trigger.then = Some(word(key, value)?),
            "reason" => text(key, value)?.clone_into(&mut trigger.reason),
            "deadline" => trigger.deadline = Some(span(key, value)?),
            "on_deadline" => trigger.on_deadline = Some(word(key, value)?),
            "allow_guest_shutdown" => trigger.allow_guest_shutdown = flag(key, value)?,
            "scope" => trigger.scope = Some(word(key, value)?),
            "keep_cordoned" => trigger.keep_cordoned = flag(key, value)?,
            "shutdown_vms" => trigger.shutdown_vms = flag(key, value)?,
            "stop_job" => trigger.stop_job = flag(key, value)?,
            _ => return Err(unknown(key, "Trigger")),
        }
    }
    Ok(trigger)
}

/// Writes a trigger as such options; what is not set is left out.
pub fn trigger_to(trigger: &Trigger) -> Options {
    // Destructured, so that a new field is a compile error here and not a key that is forgotten.
    let Trigger {
        then,
        reason,
        deadline,
        on_deadline,
        allow_guest_shutdown,
        keep_cordoned,
        scope,
        shutdown_vms,
        stop_job,
        // Signals are the agent's own to hear.
        signal: _,
    } = trigger;
    let mut options = Options::new();
    put_word(&mut options, "then", then.as_ref());
    if !reason.is_empty() {
        put(&mut options, "reason", Variant::new(reason.clone()));
    }
    if let Some(span) = deadline {
        let usec = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        put(&mut options, "deadline", Variant::new(usec));
    }
    put_word(&mut options, "on_deadline", on_deadline.as_ref());
    put(
        &mut options,
        "allow_guest_shutdown",
        Variant::new(*allow_guest_shutdown),
    );
    put_word(&mut options, "scope", scope.as_ref());
    put(&mut options, "keep_cordoned", Variant::new(*keep_cordoned));
    if *shutdown_vms {
        put(&mut options, "shutdown_vms", Variant::new(true));
    }
    if *stop_job {
        put(&mut options, "stop_job", Variant::new(true));
    }
    options
}

/// Reads the options of `Cancel`: `abort_migrations` (b).
pub fn cancel_from(options: &Options) -> Result<bool, BusError> {
    let mut abort_migrations = false;
    for (key, value) in options {
        match key.as_str() {
            "abort_migrations" => abort_migrations = flag(key, value)?,
            _ => return Err(unknown(key, "Cancel")),
        }
    }
    Ok(abort_migrations)
}

/// Writes them.
pub fn cancel_to(abort_migrations: bool) -> Options {
    let mut options = Options::new();
    put(
        &mut options,
        "abort_migrations",
        Variant::new(abort_migrations),
    );
    options
}

/// Reads the options of `Release`: `shutdown_vms` (b), `proceed` (b), at most one of them.
pub fn release_from(options: &Options) -> Result<Ending, BusError> {
    let (mut shutdown_vms, mut proceed) = (false, false);
    for (key, value) in options {
        match key.as_str() {
            "shutdown_vms" => shutdown_vms = flag(key, value)?,
            "proceed" => proceed = flag(key, value)?,
            _ => return Err(unknown(key, "Release")),
        }
    }
    match (shutdown_vms, proceed) {
        (true, true) => Err(BusError::invalid(
            "options 'shutdown_vms' and 'proceed' exclude each other",
        )),
        (true, false) => Ok(Ending::ShutdownVms),
        (false, true) => Ok(Ending::Proceed),
        (false, false) => Ok(Ending::Policy),
    }
}

/// Writes them.
pub fn release_to(ending: Ending) -> Options {
    let mut options = Options::new();
    match ending {
        Ending::Policy => {}
        Ending::ShutdownVms => put(&mut options, "shutdown_vms", Variant::new(true)),
        Ending::Proceed => put(&mut options, "proceed", Variant::new(true)),
    }
    options
}

/// By how much a deadline is moved.
pub fn extension_from(usec: u64) -> Result<Duration, BusError> {
    let by = Duration::from_micros(usec);
    if by.is_zero() || by > LONGEST {
        return Err(BusError::invalid(
            "a deadline is moved by more than nothing and less than a year (microseconds)",
        ));
    }
    Ok(by)
}

/// For a call that takes no options yet.
pub fn none_from(options: &Options, call: &str) -> Result<(), BusError> {
    match options.keys().next() {
        Some(key) => Err(unknown(key, call)),
        None => Ok(()),
    }
}

fn unknown(key: &str, call: &str) -> BusError {
    BusError::invalid(format!("{call} knows no option '{key}'"))
}

fn mistyped(key: &str, wanted: &str, value: &OwnedVariant) -> BusError {
    let is = value.value_signature();
    BusError::invalid(format!(
        "option '{key}' has to be {wanted}, not of type '{is}'"
    ))
}

fn text<'v>(key: &str, value: &'v OwnedVariant) -> Result<&'v str, BusError> {
    value
        .try_into()
        .map_err(|_| mistyped(key, "a string (s)", value))
}

fn flag(key: &str, value: &OwnedVariant) -> Result<bool, BusError> {
    value
        .try_into()
        .map_err(|_| mistyped(key, "a boolean (b)", value))
}

fn span(key: &str, value: &OwnedVariant) -> Result<Duration, BusError> {
    let span = any_span(key, value)?;
    if span > LONGEST {
        return Err(BusError::invalid(format!(
            "option '{key}' is longer than a year, which is no deadline"
        )));
    }
    Ok(span)
}

fn any_span(key: &str, value: &OwnedVariant) -> Result<Duration, BusError> {
    if let Ok(usec) = u64::try_from(value) {
        return Ok(Duration::from_micros(usec));
    }
    let wanted = "microseconds (t) or a text such as '30m' (s)";
    let text = <&str>::try_from(value).map_err(|_| mistyped(key, wanted, value))?;
    seconds::parse(text).map_err(|why| BusError::invalid(format!("option '{key}': {why}")))
}

/// One of the words of an enum; serde's message lists them.
fn word<T: DeserializeOwned>(key: &str, value: &OwnedVariant) -> Result<T, BusError> {
    let word = text(key, value)?;
    serde_json::from_value(Value::String(word.to_owned()))
        .map_err(|why| BusError::invalid(format!("option '{key}': {why}")))
}

fn put(options: &mut Options, key: &str, value: Variant<'_>) {
    // Only a file descriptor can fail to become owned; there is none among these.
    if let Ok(value) = OwnedVariant::try_from(value) {
        options.insert(key.to_owned(), value);
    }
}

fn put_word<T: Serialize>(options: &mut Options, key: &str, value: Option<&T>) {
    if let Some(Ok(Value::String(word))) = value.map(serde_json::to_value) {
        put(options, key, Variant::new(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::others::Scope;
    use crate::drain::policy::OnDeadline;
    use crate::drain::trigger::Then;

    fn options(key: &str, value: Variant<'_>) -> Options {
        let mut options = Options::new();
        put(&mut options, key, value);
        options
    }

    #[test]
    fn a_trigger_survives_the_wire() {
        let full = Trigger {
            then: Some(Then::SoftReboot),
            reason: "firmware".into(),
            deadline: Some(Duration::from_secs(1800)),
            on_deadline: Some(OnDeadline::Proceed),
            allow_guest_shutdown: true,
            keep_cordoned: true,
            scope: Some(Scope::AllPods),
            shutdown_vms: true,
            stop_job: true,
            signal: String::new(),
        };
        for trigger in [Trigger::default(), full] {
            assert_eq!(trigger_from(&trigger_to(&trigger)), Ok(trigger));
        }
        for abort in [true, false] {
            assert_eq!(cancel_from(&cancel_to(abort)), Ok(abort));
        }
        for ending in [Ending::Policy, Ending::ShutdownVms, Ending::Proceed] {
            assert_eq!(release_from(&release_to(ending)), Ok(ending));
        }
        assert_eq!(trigger_from(&Options::new()), Ok(Trigger::default()));
    }

    #[test]
    fn a_deadline_is_microseconds_or_a_text() {
        let read = |value| trigger_from(&options("deadline", value)).map(|t| t.deadline);
        assert_eq!(
            read(Variant::new("1h30m")),
            Ok(Some(Duration::from_secs(5400)))
        );
        assert_eq!(
            read(Variant::new(5_000_000_u64)),
            Ok(Some(Duration::from_secs(5)))
        );
        let said = read(Variant::new("soon")).unwrap_err().to_string();
        assert!(
            said.contains("'deadline'") && said.contains("soon"),
            "{said}"
        );
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        let cases = [
            ("deadlin", Variant::new("1m"), "no option 'deadlin'"),
            (
                "then",
                Variant::new(true),
                "'then' has to be a string (s), not of type 'b'",
            ),
            (
                "then",
                Variant::new("sleep"),
                "option 'then': unknown variant `sleep`",
            ),
            (
                "keep_cordoned",
                Variant::new("yes"),
                "'keep_cordoned' has to be a boolean",
            ),
            (
                "deadline",
                Variant::new(u64::MAX),
                "option 'deadline' is longer than a year",
            ),
            (
                "deadline",
                Variant::new(-1_i64),
                "'deadline' has to be microseconds",
            ),
        ];
        for (key, value, says) in cases {
            let said = trigger_from(&options(key, value)).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
        assert!(cancel_from(&options("abort", Variant::new(true))).is_err());
        assert!(release_from(&options("now", Variant::new(true))).is_err());
        let mut both = release_to(Ending::Proceed);
        both.append(&mut release_to(Ending::ShutdownVms));
        assert!(release_from(&both).is_err());
        assert!(extension_from(0).is_err() && extension_from(u64::MAX).is_err());
        assert_eq!(extension_from(1_000_000), Ok(Duration::from_secs(1)));
        assert!(none_from(&options("x", Variant::new(true)), "Restore").is_err());
        assert!(none_from(&Options::new(), "Restore").is_ok());
    }
}
