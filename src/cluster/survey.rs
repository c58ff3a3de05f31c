//! One look at everything that a plan needs: the picture of a drain, and where it can be seen, other nodes and how many
//! VMs a broken budget covers.

use super::KubeCluster;
use super::collection::{Collection, list};
use super::types::Thin;
use super::types::room::{Demand, RoomyNode};
use super::watch::Scene;
use crate::agent::ports::Clock;
use crate::drain::action::FaultClass;
use crate::drain::budgets::{Class, diagnose};
use crate::drain::plan::Survey;
use crate::drain::world::{PdbView, Picture, Sight};
use futures_util::future::join_all;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::sync::Arc;

/// More broken budgets than that are not counted one by one.
const COUNTED: usize = 20;

/// A list of which only the length matters.
#[derive(Deserialize)]
struct Counted {
    items: Vec<IgnoredAny>,
    #[serde(default)]
    metadata: More,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct More {
    remaining_item_count: Option<usize>,
}

impl<C: Clock> KubeCluster<C> {
    /// Everything, as it is now. `others`: also the pods that are no VM's.
    pub(super) async fn look_around(&self, others: bool) -> Survey {
        let scene = Scene::new(
            &self.node_name,
            Arc::clone(&self.connection),
            Arc::clone(&self.clock),
            Arc::clone(&self.timing),
            Arc::clone(&self.interest),
            Arc::clone(&self.doors),
        );
        let (picture, nodes) = tokio::join!(
            scene.look_once(others),
            self.sight::<RoomyNode>(Collection::nodes())
        );
        let (covered, needs) =
            tokio::join!(self.covered(&picture), self.needs(nodes.seen().is_some()));
        Survey {
            picture,
            covered,
            needs,
            nodes,
        }
    }

    async fn sight<T: Thin>(&self, collection: Collection) -> Sight<Vec<T::View>> {
        let now = self.clock.now();
        match list::<T>(&self.connection, &collection, &self.timing, now).await {
            Ok(listing) => Sight::Seen {
                value: listing
                    .items
                    .into_iter()
                    .filter_map(|item| item.view.ok())
                    .collect(),
                fresh: now,
            },
            Err(fault) if fault.class == FaultClass::Denied => Sight::Forbidden {
                why: collection.forbidden(&fault),
            },
            Err(fault) if fault.class == FaultClass::Gone => Sight::Missing,
            Err(fault) => Sight::Broken {
                why: fault.text,
                since: now,
            },
        }
    }

    /// What the launcher pods demand; of no use where no other node can be seen.
    async fn needs(&self, of_use: bool) -> BTreeMap<String, crate::drain::plan::Needs> {
        if !of_use {
            return BTreeMap::new();
        }
        let seen = self
            .sight::<Demand>(Collection::pods(&self.node_name))
            .await;
        seen.seen()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    /// How many VMs each budget covers that Kubernetes cannot count itself.
    async fn covered(&self, picture: &Picture) -> BTreeMap<String, usize> {
        if picture.vmis.seen().is_none() {
            return BTreeMap::new();
        }
        let broken =
            |pdb: &&PdbView| matches!(diagnose(pdb, &[], &[]), Class::NeverSatisfiable { .. });
        let budgets = picture.pdbs.seen().into_iter().flatten().filter(broken);
        let counts = budgets
            .take(COUNTED)
            .map(|pdb| async move { Some((pdb.pdb.to_string(), self.count_vmis(pdb).await?)) });
        join_all(counts).await.into_iter().flatten().collect()
    }

    /// VMIs that a budget's selector fits; their labels are those of their pods.
    async fn count_vmis(&self, pdb: &PdbView) -> Option<usize> {
        let path = format!(
            "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances",
            pdb.pdb.namespace
        );
        let params = ListParams {
            label_selector: Some(pdb.selector.to_string()).filter(|text| !text.is_empty()),
            limit: Some(self.timing.page),
            ..ListParams::default()
        };
        let what = format!("count the VMIs of budget {}", pdb.pdb);
        let request = Request::new(path).list(&params);
        let sent = self.send(&what, request);
        let answer = tokio::time::timeout(self.timing.request, sent)
            .await
            .ok()?
            .ok()?;
        if !answer.is_success() {
            return None;
        }
        let page: Counted = serde_json::from_slice(&answer.body).ok()?;
        Some(page.items.len() + page.metadata.remaining_item_count.unwrap_or(0))
    }
}
