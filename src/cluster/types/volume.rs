//! VolumeAttachments: which volume is attached to which node?

use super::guard::Thin;
use super::meta::{Meta, nullable};
use crate::drain::world::AttachedVolume;
use serde::Deserialize;

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Attachment {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    attacher: String,
    node_name: String,
    #[serde(deserialize_with = "nullable")]
    source: Source,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Source {
    persistent_volume_name: Option<String>,
}

impl Thin for Attachment {
    /// With the node; the server knows no selector for it.
    type View = (String, AttachedVolume);
    const RESOURCE: &'static str = "volumeattachments";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<Self::View, String> {
        let own = self.metadata.reference()?.name;
        let volume = self.spec.source.persistent_volume_name;
        Ok((
            self.spec.node_name,
            AttachedVolume {
                volume: volume.filter(|name| !name.is_empty()).unwrap_or(own),
                attacher: self.spec.attacher,
            },
        ))
    }
}
