//! What is listed and watched, with which selectors, and which right is missing when that is refused.

use super::client::Connection;
use super::fault;
use super::timing::Timing;
use super::types::{Guarded, Thin};
use crate::drain::action::{Fault, FaultClass};
use crate::drain::time::Mono;
use crate::drain::world::ObjectRef;
use kube::api::{ListParams, WatchParams};
use serde::Deserialize;
use serde_json::Value;

/// A kind of object, narrowed down to what concerns this node.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    path: String,
    labels: Option<String>,
    fields: Option<String>,
    /// For sentences: `pods on node n1`.
    pub(crate) what: String,
    /// Nothing can be drained without it; the node's own kubelet may always see it.
    pub(crate) vital: bool,
    /// The manifest that gives the right to see it.
    gives: &'static str,
}

impl Collection {
    fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            labels: None,
            fields: None,
            what: what.into(),
            vital: false,
            gives: "rbac/reads.yaml",
        }
    }

    /// The own Node: a name as field selector is the only way that a kubelet may watch it.
    pub(crate) fn node(node: &str) -> Self {
        Self {
            fields: Some(format!("metadata.name={node}")),
            vital: true,
            ..Self::new("/api/v1/nodes", format!("node {node}"))
        }
    }

    /// All Nodes, to tell whether one of them has room.
    pub(crate) fn nodes() -> Self {
        Self {
            gives: "rbac/nodes.yaml",
            ..Self::new("/api/v1/nodes", "nodes")
        }
    }

    /// Launcher and hotplug pods. By `spec.nodeName`, because the label `kubevirt.io/nodeName` lies on migration targets.
    pub(crate) fn pods(node: &str) -> Self {
        Self {
            labels: Some("kubevirt.io in (virt-launcher,hotplug-disk)".to_owned()),
            fields: Some(format!("spec.nodeName={node}")),
            vital: true,
            ..Self::new("/api/v1/pods", format!("pods on node {node}"))
        }
    }

    /// Every pod of this node that is neither a launcher nor a hotplug pod.
    pub(crate) fn others(node: &str) -> Self {
        Self {
            labels: Some("kubevirt.io notin (virt-launcher,hotplug-disk)".to_owned()),
            fields: Some(format!("spec.nodeName={node}")),
            vital: true,
            ..Self::new("/api/v1/pods", format!("other pods on node {node}"))
        }
    }

    /// The target pod of a migration: it runs on no node yet, but carries the UID of its VMIM (kubevirt-semantics 4).
    pub(crate) fn target(migration: &ObjectRef) -> Self {
        let ObjectRef { namespace, uid, .. } = migration;
        Self {
            labels: Some(format!("kubevirt.io/migrationJobUID={uid}")),
            gives: "rbac/targets.yaml",
            ..Self::new(
                format!("/api/v1/namespaces/{namespace}/pods"),
                format!("target pods in namespace {namespace}"),
            )
        }
    }

    /// Attached volumes of the whole cluster.
    pub(crate) fn attachments() -> Self {
        Self {
            gives: "rbac/volumes.yaml",
            ..Self::new(
                "/apis/storage.k8s.io/v1/volumeattachments",
                "volumeattachments",
            )
        }
    }

    /// VMIs that run here.
    pub(crate) fn vmis_here(node: &str) -> Self {
        Self {
            labels: Some(format!("kubevirt.io/nodeName={node}")),
            ..Self::new(
                "/apis/kubevirt.io/v1/virtualmachineinstances",
                format!("virtualmachineinstances on node {node}"),
            )
        }
    }

    /// VMIs that are migrating to us.
    pub(crate) fn vmis_coming(node: &str) -> Self {
        Self {
            labels: Some(format!("kubevirt.io/migrationTargetNodeName={node}")),
            ..Self::new(
                "/apis/kubevirt.io/v1/virtualmachineinstances",
                format!("virtualmachineinstances on their way to node {node}"),
            )
        }
    }

    /// VMs of one namespace.
    pub(crate) fn machines(namespace: &str) -> Self {
        Self::new(
            format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines"),
            format!("virtualmachines of namespace {namespace}"),
        )
    }

    /// Where the objects are.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// VMIMs of the whole cluster: the slots are counted over all of them.
    pub(crate) fn migrations() -> Self {
        Self::new(
            "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
            "virtualmachineinstancemigrations",
        )
    }

    /// The KubeVirt objects; there is one.
    pub(crate) fn kubevirts() -> Self {
        Self::new("/apis/kubevirt.io/v1/kubevirts", "kubevirts")
    }

    /// Disruption budgets of all namespaces.
    pub(crate) fn budgets() -> Self {
        Self::new(
            "/apis/policy/v1/poddisruptionbudgets",
            "poddisruptionbudgets",
        )
    }

    /// Opens a watch from this version on.
    pub(crate) fn watch_request(
        &self,
        version: &str,
        timing: &Timing,
    ) -> Result<http::Request<Vec<u8>>, Fault> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(
                u32::try_from(timing.watch.as_secs())
                    .unwrap_or(290)
                    .clamp(1, 294),
            ),
            bookmarks: true,
            send_initial_events: false,
        };
        kube::core::Request::new(self.path.as_str())
            .watch(&params, version)
            .map_err(|error| {
                fault::fault(FaultClass::Fatal, &self.watch_what(), &fault::plain(&error))
            })
    }

    fn list_request(
        &self,
        page: u32,
        more: Option<String>,
    ) -> Result<http::Request<Vec<u8>>, Fault> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: Some(page),
            continue_token: more,
            ..ListParams::default()
        };
        kube::core::Request::new(self.path.as_str())
            .list(&params)
            .map_err(|error| {
                fault::fault(FaultClass::Fatal, &self.list_what(), &fault::plain(&error))
            })
    }

    /// `list pods on node n1`.
    pub(crate) fn list_what(&self) -> String {
        format!("list {}", self.what)
    }

    /// `watch pods on node n1`.
    pub(crate) fn watch_what(&self) -> String {
        format!("watch {}", self.what)
    }

    /// The sentence for a 403: what is missing, and what cures it.
    pub(crate) fn forbidden(&self, fault: &Fault) -> String {
        if self.vital {
            format!(
                "{}. The kubelet of a node may do this for its own node, an identity of its own with rbac/service-account.yaml: check `cluster.kubeconfig` and `cluster.node_name`",
                fault.text
            )
        } else {
            format!(
                "no right to list and watch {}; {} gives it to this node",
                self.what, self.gives
            )
        }
    }
}

/// Everything that a list has brought.
pub(crate) struct Listing<V> {
    pub(crate) items: Vec<Guarded<V>>,
    /// To watch from.
    pub(crate) version: String,
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Page<T> {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: PageMeta,
    // Must be there, though it may be `null`: whatever else answers 200 in the name of the API server
    // (a proxy's page, a bare Status) would otherwise be a list of nothing, which means "the node is empty".
    #[serde(deserialize_with = "super::types::meta::nullable")]
    items: Vec<T>,
}

impl<T> Page<T> {
    fn take(mut self) -> (Page<()>, Vec<T>) {
        let items = std::mem::take(&mut self.items);
        (self.with(Vec::new()), items)
    }

    fn with<U>(self, items: Vec<U>) -> Page<U> {
        Page {
            kind: self.kind,
            metadata: self.metadata,
            items,
        }
    }

    /// `PodList` for `pods`; a plain `List` says nothing against it.
    fn is_list_of(&self, resource: &str) -> bool {
        self.kind
            .strip_suffix("List")
            .is_some_and(|kind| kind.is_empty() || format!("{}s", kind.to_lowercase()) == resource)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    more: Option<String>,
}

/// One page: straight into the thin type, or object by object when one of them is not as it should be.
fn read_page<T: Thin>(body: &[u8]) -> Result<Page<Guarded<T::View>>, serde_json::Error> {
    // As text, as watches are: one reader for both keeps the program small.
    if T::MANY
        && let Ok(text) = std::str::from_utf8(body)
        && let Ok(page) = serde_json::from_str::<Page<T>>(text)
    {
        let (whole, items) = page.take();
        let items: Option<_> = items.into_iter().map(Guarded::typed).collect();
        if let Some(items) = items {
            return Ok(whole.with(items));
        }
    }
    let (whole, items) = serde_json::from_slice::<Page<Value>>(body)?.take();
    Ok(whole.with(items.iter().map(Guarded::of::<T>).collect()))
}

/// Lists everything, page by page, with a quorum read. The list is that of one moment: when the
/// server has forgotten it half-way (410), it is read from the start again, once.
pub(crate) async fn list<T: Thin>(
    connection: &Connection,
    collection: &Collection,
    timing: &Timing,
    now: Mono,
) -> Result<Listing<T::View>, Fault> {
    let mut again = true;
    let (mut items, mut more) = (Vec::new(), None);
    loop {
        let first = more.is_none();
        let before = more.clone();
        let page = match page::<T>(connection, collection, timing, more.take(), now).await? {
            Some(page) => page,
            None if !first && again => {
                again = false;
                items.clear();
                continue;
            }
            None => return Err(forgotten(collection)),
        };
        items.extend(page.items);
        let token = page.metadata.more.filter(|token| !token.is_empty());
        if token.is_some() && token == before {
            let why = "the server names the same page as the next one again and again";
            return Err(fault::fault(
                FaultClass::Transient,
                &collection.list_what(),
                why,
            ));
        }
        more = token;
        if more.is_none() {
            return Ok(Listing {
                items,
                version: page.metadata.resource_version.unwrap_or_default(),
            });
        }
    }
}

/// What is on the first page; the rest is not asked for.
pub(crate) async fn first_page<T: Thin>(
    connection: &Connection,
    collection: &Collection,
    timing: &Timing,
    now: Mono,
) -> Result<Vec<Guarded<T::View>>, Fault> {
    let page = page::<T>(connection, collection, timing, None, now).await?;
    page.map(|page| page.items)
        .ok_or_else(|| forgotten(collection))
}

fn forgotten(collection: &Collection) -> Fault {
    let why = "the server has forgotten the version that the list began with";
    fault::fault(FaultClass::Transient, &collection.list_what(), why)
}

/// One page; `None` when the server no longer knows the list that it belongs to (410).
async fn page<T: Thin>(
    connection: &Connection,
    collection: &Collection,
    timing: &Timing,
    more: Option<String>,
    now: Mono,
) -> Result<Option<Page<Guarded<T::View>>>, Fault> {
    let what = collection.list_what();
    let request = collection.list_request(timing.page, more)?;
    let sent = connection.send(&what, now, request);
    let answer = tokio::time::timeout(timing.request, sent)
        .await
        .unwrap_or_else(|_| Err(fault::timed_out(&what, timing.request.as_secs_f64())))?;
    if answer.code == 410 {
        return Ok(None);
    }
    if !answer.is_success() {
        return Err(fault::from_reply(&what, &answer.reply()));
    }
    let page = read_page::<T>(&answer.body).map_err(|error| {
        let why = format!("the server's answer cannot be read: {error}");
        fault::fault(FaultClass::Transient, &what, &why)
    })?;
    if !page.is_list_of(T::RESOURCE) {
        let why = format!(
            "the server's answer is of kind '{}', which is no list of {}",
            page.kind,
            T::RESOURCE
        );
        return Err(fault::fault(FaultClass::Transient, &what, &why));
    }
    Ok(Some(page))
}
