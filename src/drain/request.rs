//! What does the annotation `vmdrain.io/request` on the own Node ask for?
//!
//! A word (`drain`, `cancel`, `restore`), or JSON with more. It can never shut the host down: there is no word for that.

use super::others::Scope;
use super::policy::{OnDeadline, opt_seconds};
use super::trigger::Trigger;
use serde::Deserialize;
use std::time::Duration;

/// The annotation that asks.
pub const REQUEST_ANNOTATION: &str = "vmdrain.io/request";
/// The annotation with the request that was taken last.
pub const HANDLED_ANNOTATION: &str = "vmdrain.io/handled";

/// Longer texts are no request.
const LONGEST: usize = 2048;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A drain; the host stays up.
    Drain(Box<Trigger>),
    /// Call it off.
    Cancel {
        /// Also stop migrations that are under way.
        abort_migrations: bool,
    },
    /// Give the node back.
    Restore,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Drain,
    Cancel,
    Restore,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    action: Word,
    /// Makes a request of its own of one that is otherwise the same.
    #[serde(default)]
    #[expect(dead_code, reason = "only the text as a whole is compared")]
    id: String,
    #[serde(default)]
    reason: String,
    #[serde(default, with = "opt_seconds")]
    deadline: Option<Duration>,
    #[serde(default)]
    on_deadline: Option<OnDeadline>,
    #[serde(default)]
    scope: Option<Scope>,
    #[serde(default)]
    allow_guest_shutdown: bool,
    #[serde(default)]
    abort_migrations: bool,
}

/// Reads the annotation.
///
/// # Errors
/// A sentence when it is no request.
pub fn parse(text: &str) -> Result<Request, String> {
    let bad = |why: String| {
        format!(
            "{REQUEST_ANNOTATION} is no request ({why}): drain, cancel, restore, or JSON such as {{\"action\":\"drain\",\"id\":\"1\",\"deadline\":\"30m\"}}"
        )
    };
    if text.len() > LONGEST {
        return Err(bad(format!("{} characters are too many", text.len())));
    }
    let text = text.trim();
    let form = match text {
        "drain" => Form::plain(Word::Drain),
        "cancel" => Form::plain(Word::Cancel),
        "restore" => Form::plain(Word::Restore),
        _ if text.starts_with('{') => {
            serde_json::from_str(text).map_err(|why| bad(why.to_string()))?
        }
        _ => {
            let start: String = text.chars().take(40).collect();
            return Err(bad(format!("'{start}'")));
        }
    };
    if form.deadline.is_some_and(|span| span.is_zero()) {
        return Err(bad("a deadline of zero is no time at all".into()));
    }
    Ok(match form.action {
        Word::Drain => {
            let why = if form.reason.is_empty() {
                String::new()
            } else {
                format!(": {}", form.reason)
            };
            Request::Drain(Box::new(Trigger {
                reason: format!("requested on the Node ({REQUEST_ANNOTATION}){why}"),
                deadline: form.deadline,
                on_deadline: form.on_deadline,
                scope: form.scope,
                allow_guest_shutdown: form.allow_guest_shutdown,
                ..Trigger::default()
            }))
        }
        Word::Cancel => Request::Cancel {
            abort_migrations: form.abort_migrations,
        },
        Word::Restore => Request::Restore,
    })
}

impl Form {
    fn plain(action: Word) -> Self {
        Self {
            action,
            id: String::new(),
            reason: String::new(),
            deadline: None,
            on_deadline: None,
            scope: None,
            allow_guest_shutdown: false,
            abort_migrations: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_json_are_read() {
        assert_eq!(
            parse(" cancel "),
            Ok(Request::Cancel {
                abort_migrations: false
            })
        );
        assert_eq!(parse("restore"), Ok(Request::Restore));
        let text = r#"{"action":"drain","id":"7","reason":"firmware","deadline":"20m","on_deadline":"abort","scope":"all-pods","allow_guest_shutdown":true}"#;
        let Ok(Request::Drain(trigger)) = parse(text) else {
            panic!("no drain");
        };
        assert_eq!(
            *trigger,
            Trigger {
                reason: "requested on the Node (vmdrain.io/request): firmware".into(),
                deadline: Some(Duration::from_secs(1200)),
                on_deadline: Some(OnDeadline::Abort),
                scope: Some(Scope::AllPods),
                allow_guest_shutdown: true,
                ..Trigger::default()
            }
        );
    }

    #[test]
    fn what_is_no_request_is_said_and_never_powers_off() {
        let long = "x".repeat(5000);
        for (text, words) in [
            ("poweroff", "'poweroff'"),
            ("Drain", "'Drain'"),
            ("{", "EOF"),
            (r#"{"action":"reboot"}"#, "unknown variant `reboot`"),
            (
                r#"{"action":"drain","then":"poweroff"}"#,
                "unknown field `then`",
            ),
            (r#"{"action":"drain","deadline":"soon"}"#, "soon"),
            (r#"{"action":"drain","deadline":"0s"}"#, "zero"),
            (
                r#"{"action":"drain","scope":"everything"}"#,
                "unknown variant `everything`",
            ),
            (r#"{"id":"1"}"#, "missing field `action`"),
            (long.as_str(), "5000 characters"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains(words), "{said}");
            assert!(
                said.starts_with("vmdrain.io/request is no request"),
                "{said}"
            );
        }
    }
}
