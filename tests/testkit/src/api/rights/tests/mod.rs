//! Does every identity get what the real servers gave it? (control-plane.md 6.a and 6.b)

mod kubelet;
mod tiers;

use crate::api::Identity;
use crate::api::tests::Wire;

fn node() -> Identity {
    Identity::kubelet("node01")
}

#[track_caller]
fn refused(wire: &Wire, ending: &str) {
    assert_eq!(
        (wire.code, wire.body["reason"].as_str()),
        (403, Some("Forbidden")),
        "{wire:?}"
    );
    assert!(
        wire.message().ends_with(ending),
        "{} does not end with {ending}",
        wire.message()
    );
}
