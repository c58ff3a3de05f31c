//! What has changed in the store since the last look?

use crate::api::{Change, ChangeKind, Store};

/// Follows a store's history.
#[derive(Debug, Default)]
pub struct Changes {
    revision: u64,
}

impl Changes {
    /// Everything since the last call.
    pub fn take(&mut self, store: &Store) -> Vec<Change> {
        if let Ok(changes) = store.changes_since(self.revision) {
            self.revision = changes.last().map_or(self.revision, |last| last.revision);
            return changes;
        }
        // The history was compacted (a fault of the story): the newest objects are enough.
        self.revision = store.revision();
        everything(store)
    }
}

/// All objects that the observer follows, as if they had just changed.
fn everything(store: &Store) -> Vec<Change> {
    const FOLLOWED: [&str; 4] = [
        "nodes",
        "pods",
        "virtualmachineinstances",
        "virtualmachineinstancemigrations",
    ];
    let mut all = Vec::new();
    for resource in FOLLOWED {
        all.extend(
            store
                .list_shared(resource)
                .into_iter()
                .map(|object| Change {
                    revision: store.revision(),
                    kind: ChangeKind::Modified,
                    resource: resource.to_owned(),
                    previous: Some(object.clone()),
                    object,
                }),
        );
    }
    all
}
