//! The kubelet's certificate runs out in the middle of a drain, and the kubelet has a new one.

use std::time::Duration;

use anyhow::ensure;

use super::super::{between, seconds};
use super::{let_go_in_time, moved_away};
use crate::suite::{Case, Context, OLDER};
use crate::whole::node::FIRST;
use crate::whole::stage::{Plan, play};

pub(super) const CASES: &[Case] = &[Case {
    number: "w8",
    name: "the_kubelet_rotates_its_certificate",
    on: OLDER,
    limit: 300,
    run: rotates,
}];

/// The first certificate is valid for so long from now. The kubelet asks for a new one after 70 to 90 % of its life, which began a
/// minute ago: 14 to 34 s from now.
const VALID: Duration = Duration::from_secs(45);
/// The VMs copy for so long: the drain begins with the first certificate and ends with the second.
const COPIES: f64 = 50.0;

fn rotates(context: &Context) -> anyhow::Result<String> {
    let mut plan = Plan::moving(COPIES);
    plan.limit = 120;
    play(context, &plan, |stage| {
        let newest = stage
            .host
            .root
            .join("var/lib/kubelet/pki/kubelet-client-current.pem");
        let target = || std::fs::read_link(&newest).ok();
        let is_first = || target().is_some_and(|name| name.ends_with(FIRST));
        let begun = stage.now();
        stage.begin_with_certificate(VALID)?;
        let typed = stage.types_well(&["systemctl", "poweroff"])?.typed;
        stage.wait("the node is cordoned", Duration::from_secs(10), || {
            Ok(stage.chronicle.cordoned_at().is_some())
        })?;
        ensure!(
            is_first(),
            "the kubelet has renewed its certificate already: this shows nothing ({:?})",
            target()
        );
        let renewed = stage.wait("the kubelet renews its certificate", VALID, || {
            Ok(!is_first())
        })?;
        let down = stage.wait_down(Duration::from_secs(150))?;
        let (measured, empty) = moved_away(stage, typed, &down, 2)?;
        ensure!(
            between(begun, empty) > VALID + Duration::from_secs(5),
            "the drain was over before the first certificate: this shows nothing"
        );
        let lock = let_go_in_time(&down, empty)?;
        Ok(format!(
            "renewed {} after the command; {measured}, {lock}",
            seconds(between(typed, renewed))
        ))
    })
}
