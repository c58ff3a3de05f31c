//! How is a field of a JSON object read and written without a page of unwrapping?

use serde_json::{Value, json};

use super::names;

/// The text at a dotted path (`status.nodeName`), empty when it is not there.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a dotted path.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(object, |value, field| value.get(field))
}

/// Whether the value at a dotted path is `true`.
pub fn flag(object: &Value, path: &str) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether something other than null is at a dotted path.
pub fn has(object: &Value, path: &str) -> bool {
    at(object, path).is_some_and(|value| !value.is_null())
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "metadata.namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "metadata.uid")
}

/// `status.phase`.
pub fn phase(object: &Value) -> &str {
    text(object, "status.phase")
}

/// A label, empty when it is not there.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"]
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// An annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"]
        .get(key)
        .and_then(Value::as_str)
}

/// An annotation that holds seconds; anything unreadable counts as absent.
pub fn seconds(object: &Value, key: &str) -> Option<std::time::Duration> {
    let number: f64 = annotation(object, key)?.parse().ok()?;
    std::time::Duration::try_from_secs_f64(number).ok()
}

/// Whether the object is being deleted.
pub fn deleting(object: &Value) -> bool {
    has(object, "metadata.deletionTimestamp")
}

/// Whether a pod, VMI or VMIM has ended.
pub fn ended(object: &Value) -> bool {
    matches!(phase(object), "Succeeded" | "Failed")
}

/// A condition of `status.conditions`.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

/// Whether a condition has status `True`.
pub fn is_true(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition; its transition time moves only when its status changes.
pub fn set_condition(
    object: &mut Value,
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let same = condition(object, type_).is_some_and(|old| {
        old["status"] == status && text(old, "reason") == reason && text(old, "message") == message
    });
    if same {
        return;
    }
    let since = condition(object, type_)
        .filter(|old| old["status"] == status)
        .map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
    let mut fresh = json!({"type": type_, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
    for (field, value) in [("reason", reason), ("message", message)] {
        if !value.is_empty() {
            fresh[field] = json!(value);
        }
    }
    let list = &mut object["status"]["conditions"];
    match list
        .as_array_mut()
        .and_then(|all| all.iter_mut().find(|old| old["type"] == type_))
    {
        Some(old) => *old = fresh,
        None => push(list, fresh),
    }
}

/// Takes a condition away.
pub fn remove_condition(object: &mut Value, type_: &str) {
    if let Some(list) = object["status"]["conditions"].as_array_mut() {
        list.retain(|condition| condition["type"] != type_);
    }
}

/// Removes a field of an object; nothing happens when it is not there.
pub fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Appends to a list; anything that is not a list becomes one.
pub fn push(value: &mut Value, item: Value) {
    match value.as_array_mut() {
        Some(list) => list.push(item),
        None => *value = json!([item]),
    }
}

/// Sets `status.phase` and appends to `status.phaseTransitionTimestamps`, as VMI and VMIM do.
pub fn set_phase(object: &mut Value, phase: &str, now: &str) {
    object["status"]["phase"] = json!(phase);
    push(
        &mut object["status"]["phaseTransitionTimestamps"],
        json!({"phase": phase, "phaseTransitionTimestamp": now}),
    );
}

/// When a phase was entered the last time.
pub fn phase_since(object: &Value, phase: &str) -> Option<jiff::Timestamp> {
    object["status"]["phaseTransitionTimestamps"]
        .as_array()?
        .iter()
        .rev()
        .find(|entry| entry["phase"] == phase)
        .and_then(|entry| text(entry, "phaseTransitionTimestamp").parse().ok())
}

/// The controller owner of an object: kind, name and uid.
pub fn owner(object: &Value) -> Option<(&str, &str, &str)> {
    let owner = object["metadata"]["ownerReferences"].as_array()?.first()?;
    Some((text(owner, "kind"), text(owner, "name"), text(owner, "uid")))
}

/// Whether a pod is a launcher pod.
pub fn is_launcher(pod: &Value) -> bool {
    label(pod, names::ROLE) == names::LAUNCHER
}

/// Whether `pod` belongs to the VMI with this uid.
pub fn owned_by(pod: &Value, uid: &str) -> bool {
    owner(pod).is_some_and(|(_, _, owner)| owner == uid)
}

/// Whether the VMI's migration state belongs to the VMIM with this uid.
pub fn migrates_by(vmi: &Value, vmim_uid: &str) -> bool {
    text(vmi, "status.migrationState.migrationUid") == vmim_uid
}

/// Whether a VMI is copying right now.
pub fn is_migrating(vmi: &Value) -> bool {
    has(vmi, "status.migrationState.startTimestamp")
        && !has(vmi, "status.migrationState.endTimestamp")
}

/// The simulated date of a JSON timestamp.
pub fn time(object: &Value, path: &str) -> Option<jiff::Timestamp> {
    text(object, path).parse().ok()
}

/// A Kubernetes quantity of memory or count in whole units; 0 for anything unreadable.
pub fn quantity(value: &Value) -> u64 {
    if let Some(number) = value.as_u64() {
        return number;
    }
    let text = value.as_str().unwrap_or_default();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().unwrap_or(0);
    let factor = match &text[digits.len()..] {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 1,
    };
    number.saturating_mul(factor)
}

/// Thousandths of a CPU.
pub fn milli_cpus(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_default();
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => quantity(value).saturating_mul(1000),
    }
}

/// Whether an object has the shape that controllers rely on. A malformed one is left alone, as a typed client would skip it.
pub fn well_formed(object: &Value) -> bool {
    let map_or_absent =
        |path: &str| at(object, path).is_none_or(|value| value.is_object() || value.is_null());
    let maps = [
        "metadata",
        "metadata.labels",
        "metadata.annotations",
        "spec",
        "status",
        "status.migrationState",
        "status.activePods",
    ];
    let list_or_absent = |path: &str| {
        at(object, path).is_none_or(|value| {
            value.is_null()
                || value
                    .as_array()
                    .is_some_and(|all| all.iter().all(Value::is_object))
        })
    };
    let lists = [
        "metadata.ownerReferences",
        "spec.taints",
        "status.conditions",
        "status.phaseTransitionTimestamps",
        "status.containerStatuses",
    ];
    object.is_object()
        && maps.into_iter().all(map_or_absent)
        && lists.into_iter().all(list_or_absent)
}
