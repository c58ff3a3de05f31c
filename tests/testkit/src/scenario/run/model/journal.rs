//! What the agent writes to its journal, caught from `tracing` in this process.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::super::scene::{Journal, Line};
use crate::clock::SimClock;

/// Catches the agent's lines; what the simulated world says is left out.
#[derive(Debug)]
pub(in super::super) struct Catcher {
    pub(in super::super) journal: Journal,
    pub(in super::super) clock: SimClock,
}

impl<S: Subscriber> Layer<S> for Catcher {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with("vmdrain_agent") {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.journal.write(Line {
            at: self.clock.elapsed(),
            level: metadata.level().as_str().to_ascii_lowercase(),
            text: fields.message,
            fields: fields.others,
        });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: BTreeMap<String, String>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
        } else {
            self.others.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = write!(text, "{value:?}");
        self.put(field, text);
    }
}
