//! One line of a watch: what has happened, to which object?

use crate::cluster::types::{Guarded, Thin};
use kube::core::Status;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

/// What a line tells.
#[derive(Debug)]
pub(super) enum Event<V> {
    /// The object is new, or differs from before.
    Changed(Guarded<V>),
    /// It is gone, or does not match the selector any more.
    Deleted(Guarded<V>),
    /// Nothing has changed up to this version.
    Bookmark(String),
    /// The watch has come to its end.
    Error(Box<Status>),
}

impl<V> Event<V> {
    /// Something has happened to an object.
    pub(super) fn is_change(&self) -> bool {
        match self {
            Self::Changed(_) | Self::Deleted(_) => true,
            Self::Bookmark(_) | Self::Error(_) => false,
        }
    }

    /// Reads a line; `None` for one that was cut off, which the end of the stream follows.
    pub(super) fn read<T: Thin<View = V>>(line: &str) -> kube::Result<Option<Self>> {
        match Self::typed::<T>(line) {
            Some(event) => Ok(Some(event)),
            None => Self::guarded::<T>(line),
        }
    }

    /// Straight into the thin type; `None` for everything that is not as nearly all lines are.
    fn typed<T: Thin<View = V>>(line: &str) -> Option<Self> {
        if !T::MANY {
            return None;
        }
        let line: Line<T> = serde_json::from_str(line).ok()?;
        match line.kind {
            Kind::Added | Kind::Modified => Guarded::typed(line.object).map(Self::Changed),
            Kind::Deleted => Guarded::typed(line.object).map(Self::Deleted),
            Kind::Bookmark | Kind::Error => None,
        }
    }

    /// Field by field.
    fn guarded<T: Thin<View = V>>(line: &str) -> kube::Result<Option<Self>> {
        let kind = match serde_json::from_str::<Line<IgnoredAny>>(line) {
            Ok(envelope) => envelope.kind,
            Err(error) if error.is_eof() => return Ok(None),
            // Some errors come without the envelope of an event.
            Err(error) => {
                return Err(match serde_json::from_str::<Status>(line) {
                    Ok(status) => kube::Error::Api(Box::new(status)),
                    Err(_) => kube::Error::SerdeError(error),
                });
            }
        };
        match kind {
            Kind::Added | Kind::Modified => object::<T>(line).map(Self::Changed),
            Kind::Deleted => object::<T>(line).map(Self::Deleted),
            Kind::Bookmark => within::<Bookmark>(line)
                .map(|bookmark| Self::Bookmark(bookmark.metadata.resource_version)),
            Kind::Error => within::<Box<Status>>(line).map(Self::Error),
        }
        .map(Some)
        .map_err(kube::Error::SerdeError)
    }
}

/// The envelope. Not kube's own type: that one copies the whole object before it looks at it.
#[derive(Deserialize)]
struct Line<O> {
    #[serde(rename = "type")]
    kind: Kind,
    object: O,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

fn within<O: DeserializeOwned>(line: &str) -> serde_json::Result<O> {
    serde_json::from_str::<Line<O>>(line).map(|line| line.object)
}

fn object<T: Thin>(line: &str) -> serde_json::Result<Guarded<T::View>> {
    within::<Value>(line).map(|value| Guarded::of::<T>(&value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::types::migration::Migration;
    use crate::drain::world::MigrationView;

    fn read(line: &str) -> kube::Result<Option<Event<MigrationView>>> {
        Event::read::<Migration>(line)
    }

    #[test]
    fn whichever_comes_first_and_however_odd_the_object() {
        let object =
            r#"{"metadata":{"name":"m","uid":"u","resourceVersion":"7"},"spec":{"vmiName":"vm1"}}"#;
        for line in [
            format!(r#"{{"type":"ADDED","object":{object}}}"#),
            format!(r#"{{"object":{object},"type":"MODIFIED"}}"#),
        ] {
            let Ok(Some(Event::Changed(seen))) = read(&line) else {
                panic!("{line}");
            };
            assert_eq!((seen.at.name.as_str(), seen.version.as_str()), ("m", "7"));
            assert!(seen.view.is_ok_and(|view| view.vm.name == "vm1"));
        }
        let odd = r#"{"type":"DELETED","object":{"metadata":{"name":"m","uid":"u"},"spec":{"vmiName":7}}}"#;
        let Ok(Some(Event::Deleted(seen))) = read(odd) else {
            panic!("{odd}");
        };
        assert_eq!(seen.at.name, "m");
        assert!(seen.view.is_err_and(|why| why.contains("spec.vmiName")));
    }

    #[test]
    fn what_is_no_object() {
        let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"X","apiVersion":"v1","metadata":{"resourceVersion":"12"}}}"#;
        assert!(matches!(read(bookmark), Ok(Some(Event::Bookmark(version))) if version == "12"));
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(read(gone), Ok(Some(Event::Error(status))) if status.code == 410));
        let bare = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"X","code":500}"#;
        assert!(matches!(read(bare), Err(kube::Error::Api(status)) if status.code == 500));
        assert!(matches!(read(r#"{"type":"ADDED","obj"#), Ok(None)));
        assert!(matches!(read("<html>"), Err(kube::Error::SerdeError(_))));
    }
}
