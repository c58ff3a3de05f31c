//! Which writes of VMIs, VMs and VMIMs are changed or refused by virt-api's webhooks?

use serde_json::{Value, json};

use super::VirtApi;
use crate::api::Failure;
use crate::kubevirt::fields::{condition, ended, has, label, name, namespace, push, text, uid};
use crate::kubevirt::names::{self, kind};

/// The accounts whose status writes count.
const OWN_ACCOUNTS: [&str; 3] = [
    "system:serviceaccount:kubevirt:kubevirt-apiserver",
    "system:serviceaccount:kubevirt:kubevirt-controller",
    "system:serviceaccount:kubevirt:kubevirt-handler",
];
const CONTROLLER: &str = OWN_ACCOUNTS[1];

/// Mutating and validating admission of one write.
pub(super) async fn admit(
    api: &VirtApi,
    verb: &str,
    resource: &str,
    user: &str,
    old: Option<&Value>,
    new: Option<&mut Value>,
) -> Result<(), Failure> {
    let (entry, path) = match resource {
        kind::VMIS => (
            "virtualmachineinstances-mutator.kubevirt.io",
            "/virtualmachineinstances-mutate",
        ),
        kind::VMIMS => ("migrations-mutator.kubevirt.io", "/migration-mutate-create"),
        kind::VMS => (
            "virtualmachines-mutator.kubevirt.io",
            "/virtualmachines-mutate",
        ),
        _ => return Ok(()),
    };
    let Some(new) = new else { return Ok(()) };
    if verb == "delete" {
        return Ok(());
    }
    if let Some(failure) = api.unreachable(entry, path).await {
        return Err(failure);
    }
    match (resource, old) {
        (kind::VMIS, Some(old)) => vmi_update(user, old, new),
        (kind::VMIS, None) => {
            vmi_create(api, new);
            Ok(())
        }
        (kind::VMIMS, None) => migration_create(api, user, new).await,
        _ => Ok(()),
    }
}

/// Anybody but KubeVirt's own accounts gets the old status back, silently, and may not touch the reserved labels.
fn vmi_update(user: &str, old: &Value, new: &mut Value) -> Result<(), Failure> {
    if OWN_ACCOUNTS.contains(&user) {
        return Ok(());
    }
    let reserved = [names::NODE_NAME, names::MIGRATION_TARGET];
    if reserved
        .into_iter()
        .any(|key| label(old, key) != label(new, key))
    {
        return Err(update_refused(
            "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
        ));
    }
    if old["spec"] != new["spec"] {
        return Err(update_refused("update of VMI object is restricted"));
    }
    match old.get("status") {
        Some(status) => new["status"] = status.clone(),
        None => {
            if let Some(fields) = new.as_object_mut() {
                fields.remove("status");
            }
        }
    }
    Ok(())
}

/// What the validating webhook says to an update.
fn update_refused(why: &str) -> Failure {
    let failure = Failure::webhook(
        422,
        "virtualmachineinstances-update-validator.kubevirt.io",
        why,
    );
    Failure {
        reason: Some("Invalid".to_owned()),
        ..failure
    }
    .with_cause("FieldValueNotSupported", why, "")
}

/// Fills in what KubeVirt fills in: the cluster's eviction strategy, the grace period, the finalizers.
pub(crate) fn vmi_create(api: &VirtApi, vmi: &mut Value) {
    if text(vmi, "spec.evictionStrategy").is_empty() {
        vmi["spec"]["evictionStrategy"] = json!(api.settings.cluster_eviction_strategy);
    }
    if !has(vmi, "spec.terminationGracePeriodSeconds") {
        vmi["spec"]["terminationGracePeriodSeconds"] = json!(30);
    }
    let foreground = if api.settings.since(1, 6) {
        "kubevirt.io/foregroundDeleteVirtualMachine"
    } else {
        "foregroundDeleteVirtualMachine"
    };
    for finalizer in [names::VMI_FINALIZER, foreground] {
        let there = vmi["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == finalizer));
        if !there {
            push(&mut vmi["metadata"]["finalizers"], json!(finalizer));
        }
    }
}

async fn migration_create(api: &VirtApi, user: &str, vmim: &mut Value) -> Result<(), Failure> {
    api.one_request().await;
    api.one_request().await;
    check_priority(api, user, vmim)?;
    check_migration(api, vmim)
        .map_err(|why| Failure::webhook(400, "migration-create-validator.kubevirt.io", &why))?;
    complete_migration(vmim);
    Ok(())
}

/// Label and finalizer of a new VMIM.
pub(crate) fn complete_migration(vmim: &mut Value) {
    let vmi = text(vmim, "spec.vmiName").to_owned();
    vmim["metadata"]["labels"][names::VMI_NAME] = json!(vmi);
    vmim["metadata"]["finalizers"] = json!([names::MIGRATION_FINALIZER]);
}

/// Only virt-controller may give a priority, only with the priority queue; until 1.6 the field does not exist.
fn check_priority(api: &VirtApi, user: &str, vmim: &mut Value) -> Result<(), Failure> {
    if !has(vmim, "spec.priority") {
        return Ok(());
    }
    if !api.settings.since(1, 7) {
        crate::kubevirt::fields::remove(&mut vmim["spec"], "priority");
        return Ok(());
    }
    let refuse = |why: &str| {
        let failure = Failure::webhook(422, "migration-create-validator.kubevirt.io", why);
        Err(Failure {
            reason: Some("Invalid".to_owned()),
            ..failure
        })
    };
    if !api.settings.has_priority_queue() {
        return refuse(
            "spec.migrationPriority: MigrationPriorityQueue feature gate is not enabled in kubevirt resource",
        );
    }
    if user != CONTROLLER {
        return refuse(
            "spec.migrationPriority: Migration priority queue, only virt-controller is allowed to set priority field",
        );
    }
    Ok(())
}

/// Why a VMIM may not be created.
pub(crate) fn check_migration(api: &VirtApi, vmim: &Value) -> Result<(), String> {
    let (space, name) = (namespace(vmim), text(vmim, "spec.vmiName"));
    let Some(vmi) = api.store.get_shared(kind::VMIS, space, name) else {
        return Err(format!("the VMI \"{space}/{name}\" does not exist"));
    };
    if ended(&vmi) {
        return Err("Cannot migrate VMI in finalized state.".to_owned());
    }
    if let Some(condition) =
        condition(&vmi, "LiveMigratable").filter(|condition| condition["status"] == "False")
    {
        let (reason, message) = (text(condition, "reason"), text(condition, "message"));
        return Err(format!(
            "Cannot migrate VMI, Reason: {reason}, Message: {message}"
        ));
    }
    let other = api
        .store
        .list_shared(kind::VMIMS)
        .into_iter()
        .find(|other| {
            namespace(other) == space && text(other, "spec.vmiName") == name && !ended(other)
        });
    match other {
        Some(other) => Err(format!(
            "in-flight migration detected. Active migration job ({}) is currently already in progress for VMI {}.",
            uid(&other),
            self::name(&vmi)
        )),
        None => Ok(()),
    }
}
