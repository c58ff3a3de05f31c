//! Any object as it is: the event `object.apply`.

use serde_json::{Value, json};

use super::super::stage::NotPlayed;
use super::{Others, Played};

impl Others<'_> {
    /// Any object, malformed or not: past the server's checks, as an old or broken client could have stored it.
    pub(super) fn apply(&self, yaml: &str) -> Played {
        let cannot = |why: String| NotPlayed::Cannot(format!("object.apply: {why}"));
        let object: Value =
            serde_saphyr::from_str(yaml).map_err(|error| cannot(error.to_string()))?;
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let Some(known) = crate::api::kinds::KINDS
            .iter()
            .find(|known| known.kind == kind)
        else {
            return Err(cannot(format!("there is no kind '{kind}'")));
        };
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let store = self.cluster.store();
        let space = if known.namespaced && text("namespace").is_empty() {
            "default".into()
        } else {
            text("namespace")
        };
        let mut object = object.clone();
        if known.namespaced {
            object["metadata"]["namespace"] = json!(space);
        }
        let replaced = store.update(known.plural, &space, &text("name"), |old| {
            *old = object.clone();
        });
        if replaced.is_none() {
            store
                .create(known.plural, object)
                .map_err(|failure| cannot(failure.message))?;
        }
        Ok(())
    }
}
