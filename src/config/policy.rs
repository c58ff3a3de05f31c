//! What the settings become: the core's policy, a faster copy of themselves, a file.

use super::settings::Settings;
use super::values::span_text;
use crate::drain::hooks::Knobs;
use crate::drain::others::Rules;
use crate::drain::policy::{Policy, Timing};
use crate::drain::ways::Ways;
use serde_json::{Map, Value};
use std::time::Duration;

impl Settings {
    /// The core's policy for the node `node_name`. The ids of the host are left empty: the host
    /// adapter knows them.
    pub fn policy(&self, node_name: &str) -> Policy {
        Policy {
            pacing: self.drain.pacing,
            deadline: self.drain.deadline,
            on_deadline: self.drain.on_deadline,
            unreachable: self.drain.api_unreachable_timeout,
            max_attempts: self.drain.max_attempts,
            consent: self.drain.allow_guest_shutdown,
            on_foreign_uncordon: self.drain.on_foreign_uncordon,
            on_scheduled: self.host.on_scheduled_shutdown,
            migration_rate: self.budget.rate(),
            margin: self.budget.margin,
            requests: self.request.node_annotation,
            hooks: Knobs {
                timeout: self.gates.hook_timeout,
                failure: self.gates.hook_failure,
            },
            restore: self.restore.enabled,
            restore_wait: self.restore.wait,
            ways: Ways {
                default: self.policy.default,
                rules: self.policy.rule.clone(),
                skip: self.drain.skip.clone(),
            },
            others: Rules {
                scope: self.drain.scope,
                empty_dir: self.drain.allow_empty_dir,
                unmanaged: self.drain.allow_unmanaged_pods,
                order: self.drain.order.clone(),
                skip: self.drain.skip.clone(),
            },
            volume_wait: self.gates.volume_attachments,
            timing: Timing {
                request: self.cluster.request_timeout,
                ..self.timing.core
            },
            ..Policy::for_node(node_name)
        }
    }

    /// The same settings in a world that runs `factor` times as fast: every duration is divided by
    /// it, and the migration rate multiplied. For tests against simulated clusters.
    ///
    /// # Errors
    /// A sentence when the factor is outside 0.001 to a million.
    pub fn scaled(&self, factor: f64) -> Result<Self, String> {
        if !(0.001..=1e6).contains(&factor) {
            return Err(format!(
                "the speed {factor} is not between 0.001 and a million"
            ));
        }
        let mut fast = self.clone();
        let quicken = |span: Duration| Duration::from_secs_f64(span.as_secs_f64() / factor);
        for span in [
            &mut fast.cluster.request_timeout,
            &mut fast.drain.api_unreachable_timeout,
            &mut fast.budget.margin,
            &mut fast.restore.wait,
            &mut fast.gates.hook_timeout,
            &mut fast.gates.volume_attachments,
        ] {
            *span = quicken(*span);
        }
        fast.drain.deadline = fast.drain.deadline.map(quicken);
        for rule in &mut fast.policy.rule {
            rule.deadline = rule.deadline.map(quicken);
        }
        for entry in &mut fast.maintenance {
            entry.deadline = entry.deadline.map(quicken);
        }
        fast.budget.migration_rate = Some(quicker_rate(self.budget.rate(), factor));
        let mut timing = serde_json::to_value(&self.timing).map_err(|why| why.to_string())?;
        each_span(&mut timing, &|span| {
            Value::from(quicken(span).as_secs_f64())
        });
        fast.timing = serde_json::from_value(timing).map_err(|why| why.to_string())?;
        Ok(fast)
    }

    /// All settings as a tree, durations as text.
    pub(super) fn tree(&self) -> Map<String, Value> {
        let mut tree = match serde_json::to_value(self) {
            Ok(Value::Object(tree)) => tree,
            Ok(_) | Err(_) => Map::new(),
        };
        if let Some(timing) = tree.get_mut("timing") {
            if let Value::Object(timing) = timing {
                // One key, one value: the time limit of a request is `cluster.request_timeout`.
                timing.remove("request");
            }
            each_span(timing, &|span| Value::from(span_text(span)));
        }
        tree
    }

    /// A configuration file with exactly these settings.
    ///
    /// # Errors
    /// A sentence when a value cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(&self.tree()).map_err(|why| why.to_string())
    }
}

/// Bytes per second in the faster world, at least one.
fn quicker_rate(rate: u64, factor: f64) -> u64 {
    let thousandths = Duration::from_secs_f64(factor).as_millis();
    let quicker = u128::from(rate) * thousandths / 1000;
    u64::try_from(quicker).unwrap_or(u64::MAX).max(1)
}

/// Replaces every duration of the time constants: those are seconds with a fraction, counts have none.
fn each_span(tree: &mut Value, change: &impl Fn(Duration) -> Value) {
    match tree {
        Value::Object(table) => table
            .values_mut()
            .for_each(|value| each_span(value, change)),
        Value::Number(number) if number.is_f64() => {
            let span = number.as_f64().map(Duration::try_from_secs_f64);
            if let Some(Ok(span)) = span {
                *tree = change(span);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}
