//! What the manifest of the full tier and lists of rights add.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::{node, refused};
use crate::api::rights::{Grant, Rights, Subject};
use crate::api::tests::{Wire, get, send, world, world_with};
use crate::api::{Admission, Failure, Identity, Later, Server, Store, SubresourceRequest};
use crate::clock::SimClock;

/// Answers every aggregated request with the empty 200 of a cancel.
struct Cancels;

impl Admission for Cancels {
    fn subresource(
        &self,
        request: SubresourceRequest,
    ) -> Later<'_, Result<(u16, Vec<u8>), Failure>> {
        Box::pin(async move {
            if request.sub == "evacuate/cancel" && request.method == "PUT" {
                Ok((200, Vec::new()))
            } else {
                Err(Failure::text(404, "404: Page Not Found"))
            }
        })
    }
}

const CANCEL: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/vms/virtualmachineinstances/a/evacuate/cancel";

async fn cancel(rights: Rights) -> Wire {
    let server = Server::new(Store::new(SimClock::new(1.0), 1), Arc::new(Cancels), rights);
    send(
        &server,
        &node(),
        Method::PUT,
        CANCEL,
        json!({"evacuationNodeName": "node01"}),
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn cancelling_needs_the_first_part_of_the_subresource() {
    let words = "cannot update resource \"virtualmachineinstances/evacuate\" in API group \"subresources.kubevirt.io\" in the namespace \"vms\"";
    refused(&cancel(Rights::base()).await, words);
    refused(
        &cancel(Rights::with_list(&["update virtualmachineinstances/evacuate/cancel"]).unwrap())
            .await,
        words,
    );
    refused(
        &cancel(Rights::with_list(&["update virtualmachineinstances/*"]).unwrap()).await,
        words,
    );
    for rights in [
        Rights::full(),
        Rights::with_list(&["update vmi/evacuate"]).unwrap(),
    ] {
        let done = cancel(rights).await;
        assert_eq!((done.code, done.text.as_str()), (200, ""));
    }
}

#[tokio::test(start_paused = true)]
async fn the_full_tier_reads_everything_and_deletes_its_own_migrations() {
    let server = world_with(Rights::full());
    for uri in [
        "/apis/kubevirt.io/v1/virtualmachineinstances",
        "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
        "/apis/kubevirt.io/v1/virtualmachines",
        "/apis/kubevirt.io/v1/kubevirts?watch=true&timeoutSeconds=1",
        "/apis/policy/v1/poddisruptionbudgets",
    ] {
        assert_eq!(get(&server, &node(), uri).await.code, 200, "{uri}");
    }
    for (name, owner) in [("mine", "node01"), ("theirs", "node02")] {
        let vmim = json!({"metadata": {"name": name, "namespace": "vms", "annotations": {"kubevirt.io/evacuationMigration": owner}}});
        server
            .store
            .create("virtualmachineinstancemigrations", vmim)
            .unwrap();
    }
    let uri = |name: &str| {
        format!("/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstancemigrations/{name}")
    };
    assert_eq!(
        send(&server, &node(), Method::DELETE, &uri("mine"), Value::Null)
            .await
            .code,
        200
    );
    let denied = send(
        &server,
        &node(),
        Method::DELETE,
        &uri("theirs"),
        Value::Null,
    )
    .await;
    assert_eq!(denied.code, 422);
    assert!(
        denied
            .message()
            .ends_with("denied request: node node01 may only delete migrations that evacuate it")
    );
    assert_eq!(get(&server, &node(), "/api/v1/nodes").await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_rights_adds_what_it_says() {
    let rights = Rights::with_list(&["list,watch nodes", "get,list vmi,pdb"]).unwrap();
    let server = world_with(rights);
    assert_eq!(get(&server, &node(), "/api/v1/nodes").await.code, 200);
    assert_eq!(
        get(
            &server,
            &node(),
            "/apis/kubevirt.io/v1/virtualmachineinstances"
        )
        .await
        .code,
        200
    );
    assert_eq!(
        get(&server, &node(), "/apis/kubevirt.io/v1/virtualmachines")
            .await
            .code,
        403
    );
    for wrong in ["nodes", "read nodes", "get unicorns"] {
        assert!(
            Grant::parse(Subject::Group("g".into()), wrong)
                .unwrap_err()
                .to_string()
                .contains(wrong)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn strangers_and_handlers() {
    let server = world();
    let stranger = Identity::anonymous();
    assert_eq!(get(&server, &stranger, "/version").await.code, 200);
    refused(
        &get(&server, &stranger, "/api").await,
        "User \"system:anonymous\" cannot get path \"/api\"",
    );
    let handler = Identity::service_account("kubevirt", "kubevirt-handler");
    assert_eq!(
        get(
            &server,
            &handler,
            "/apis/kubevirt.io/v1/virtualmachineinstances"
        )
        .await
        .code,
        200
    );
    refused(
        &get(
            &server,
            &handler,
            "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances/v",
        )
        .await,
        "in the namespace \"vms\"",
    );
}
