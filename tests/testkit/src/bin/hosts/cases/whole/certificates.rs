//! The kubelet's certificate runs out in the middle of a drain, and the kubelet has a new one.

use std::time::Duration;

use anyhow::ensure;

use super::super::{between, seconds};
use super::{let_go_in_time, moved_away};
use crate::suite::{Case, Context, OLDER};
use crate::whole::stage::{Plan, play};

pub(super) const CASES: &[Case] = &[Case {
    number: "w8",
    name: "the_kubelet_rotates_its_certificate",
    on: OLDER,
    limit: 180,
    run: rotates,
}];

/// The first certificate's life. The kubelet asks for a new one after 70 to 90 % of it.
const LIFE: Duration = Duration::from_secs(60);
/// The VMs copy for so long: the drain begins with the first certificate and ends with the second.
const COPIES: f64 = 60.0;

fn rotates(context: &Context) -> anyhow::Result<String> {
    let mut plan = Plan::moving(COPIES);
    plan.kubelet.certificate = LIFE;
    plan.limit = 120;
    let begun = context.patience.now();
    play(context, &plan, |stage| {
        let newest = stage
            .host
            .root
            .join("var/lib/kubelet/pki/kubelet-client-current.pem");
        let target = || std::fs::read_link(&newest).ok();
        let first = target();
        let typed = stage.types_well(&["systemctl", "poweroff"])?.typed;
        ensure!(
            between(begun, typed) < LIFE,
            "the first certificate was over before the drain began: this shows nothing"
        );
        stage.wait(
            "the agent has cordoned with the first certificate",
            Duration::from_secs(10),
            || Ok(stage.chronicle.cordoned_at().is_some()),
        )?;
        ensure!(
            target() == first,
            "the kubelet has renewed its certificate already: this shows nothing"
        );
        let renewed = stage.wait("the kubelet renews its certificate", LIFE, || {
            Ok(target() != first)
        })?;
        let down = stage.wait_down(Duration::from_secs(150))?;
        let (measured, empty) = moved_away(stage, typed, &down, 2)?;
        ensure!(
            between(begun, empty) > LIFE + Duration::from_secs(5),
            "the drain was over with the first certificate: this shows nothing"
        );
        let lock = let_go_in_time(&down, empty)?;
        Ok(format!(
            "renewed {} into the drain; {measured}, {lock}",
            seconds(between(typed, renewed))
        ))
    })
}
