//! What does a patch make of an object? JSON patch, merge patch, strategic merge patch and (simplified) server-side apply.

mod strategic;

use serde_json::Value;

use super::failure::Failure;
use super::kinds::Kind;

/// A patch as it was sent.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Merge with lists merged by key, for built-in kinds.
    Strategic(Value),
    /// Server-side apply: sets what is named. Field ownership is not modelled, so nothing is ever taken away or in conflict.
    Apply(Value),
}

impl Patch {
    /// Reads a patch; 415 for a type that this kind does not support, 400 for a body that cannot be read.
    pub fn read(content_type: &str, body: &[u8], kind: &Kind) -> Result<Self, Failure> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::bad_request(format!("error decoding patch: {error}"))
        };
        let value = || {
            serde_json::from_slice::<Value>(body).map_err(|error| {
                if error.is_eof() {
                    unreadable(&"unexpected end of JSON input")
                } else {
                    unreadable(&error)
                }
            })
        };
        match media {
            "application/json-patch+json" if value()?.is_object() => Err(unreadable(
                &"json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            )),
            "application/json-patch+json" => serde_json::from_slice(body)
                .map(Self::Json)
                .map_err(|error| unreadable(&error)),
            "application/merge-patch+json" => Ok(Self::Merge(value()?)),
            "application/strategic-merge-patch+json" if !kind.is_kubevirt() => {
                Ok(Self::Strategic(value()?))
            }
            "application/apply-patch+yaml" | "application/apply-patch+json" => {
                let text = std::str::from_utf8(body).map_err(|error| unreadable(&error))?;
                serde_saphyr::from_str(text)
                    .map(Self::Apply)
                    .map_err(|error| unreadable(&error))
            }
            "application/strategic-merge-patch+json" => Err(Failure::unsupported_patch()),
            _ => Err(Failure::unsupported_media_type()),
        }
    }

    /// Whether it may create the object.
    pub fn is_apply(&self) -> bool {
        matches!(self, Self::Apply(_))
    }

    /// The object after the patch; 422 when a JSON patch does not fit (a failed `test`, a missing path).
    pub fn apply(&self, old: &Value) -> Result<Value, Failure> {
        let mut new = old.clone();
        match self {
            Self::Json(patch) => {
                json_patch::patch(&mut new, patch).map_err(|_| Failure::patch_test_failed())?;
            }
            Self::Merge(patch) => json_patch::merge(&mut new, patch),
            Self::Strategic(patch) | Self::Apply(patch) => strategic::merge(&mut new, patch),
        }
        if new.is_object() {
            Ok(new)
        } else {
            Err(Failure::bad_request("the patch does not leave an object"))
        }
    }
}
