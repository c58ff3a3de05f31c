//! `api.*` and `virt_*`: the API server or a part of KubeVirt misbehaves.

use serde::Deserialize;

use crate::scenario::values::Span;

/// `api.*`.
#[derive(Clone, Debug)]
pub enum ApiDo {
    /// Another answer.
    Answer(Answer),
    /// Connection reset.
    Drop(Trouble),
    /// No answer.
    Hang(Trouble),
    /// Slow.
    Delay(Trouble),
    /// Refuses connections.
    Down(Until),
    /// 410.
    ExpireWatches,
    /// Closed.
    CloseWatches,
    /// New credentials.
    RotateCredentials(Rotate),
}

/// A part of KubeVirt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtPart {
    /// virt-api.
    Api,
    /// virt-controller.
    Controller,
    /// virt-handler.
    Handler,
}

keys! {
    /// Keys of `api.answer`.
    Answer {
        /// Verb.
        verb: Option<String>,
        /// Resource.
        resource: Option<String>,
        /// Subresource.
        subresource: Option<String>,
        /// Name.
        name: Option<String>,
        /// HTTP status.
        status: u16,
        /// `Status.reason`.
        reason: Option<String>,
        /// `Status.message`.
        #[serde(default)] message: String,
        /// `details.causes`.
        #[serde(default)] causes: Vec<Cause>,
        /// Header `Retry-After` in seconds.
        retry_after: Option<Span>,
        /// How often.
        times: Option<u32>,
        /// Until when.
        until: Option<Span>,
    }
    /// One of `details.causes`.
    Cause {
        /// Its reason.
        reason: String,
        /// Its message.
        #[serde(default)] message: String,
    }
    /// Keys of `api.drop`, `.hang` and `.delay`.
    Trouble {
        /// Verb.
        verb: Option<String>,
        /// Resource.
        resource: Option<String>,
        /// Subresource.
        subresource: Option<String>,
        /// Name.
        name: Option<String>,
        /// How slow.
        by: Option<Span>,
        /// How often.
        times: Option<u32>,
        /// Until when.
        until: Option<Span>,
        /// The write happens first.
        #[serde(default)] after_write: bool,
    }
    /// Keys of `api.down`.
    Until {
        /// Until when.
        until: Option<Span>,
    }
    /// Keys of `api.rotate_credentials`.
    Rotate {
        /// How long the old ones still work.
        #[serde(default)] grace: Span,
    }
    /// Keys of `virt_*.down`.
    VirtDown {
        /// Which node's virt-handler.
        node: Option<String>,
        /// Until when.
        until: Option<Span>,
    }
}
