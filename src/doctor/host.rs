//! The daemon, its configuration, and logind: does a shutdown wait, how long, and who else acts on it?

use super::{Check, Facts, List};
use crate::drain::machine::holder_note;
use std::time::Duration;

const DAEMON: Check = Check("agent", "operating.md#what-runs");
const CONFIG: Check = Check("config", "configuration.md#where-values-come-from");
const CONSENT: Check = Check("config.consent", "configuration.md#drain-how-a-drain-goes");
const LOGIND: Check = Check("logind", "operating.md#the-life-of-a-shutdown");
const LIMIT: Check = Check("logind.limit", "operating.md#sizing-the-limit");
const LOCK: Check = Check("logind.lock", "operating.md#the-life-of-a-shutdown");
const KUBELET: Check = Check(
    "kubelet.race",
    "operating.md#kubelets-own-graceful-shutdown",
);
const OTHERS: Check = Check("logind.others", "operating.md#the-life-of-a-shutdown");

pub(super) fn judge(facts: &Facts, list: &mut List) {
    match &facts.daemon {
        Ok((version, state)) => list.ok(DAEMON, format!("version {version} runs, state {state}")),
        Err(why) => list.fail(
            DAEMON,
            format!("the daemon does not answer: {why}; without it a shutdown does not wait for a drain (the stop job drains, if its unit is active)"),
            "`systemctl enable --now vmdrain-agent`; `systemctl status vmdrain-agent` tells why it does not run",
        ),
    }
    match &facts.config {
        Ok(()) => list.ok(CONFIG, "the configuration is valid"),
        Err(why) => list.fail(
            CONFIG,
            format!("the configuration is not valid: {why}"),
            "correct these lines; `vmdrain-agent config check` looks again. A running daemon keeps its old settings, the next start would fail",
        ),
    }
    if facts.guests_never_stopped {
        list.note(
            CONSENT,
            "drain.allow_guest_shutdown is \"never\": VMs that cannot migrate stay until the host goes down under them",
        );
    }
    logind(facts, list);
}

fn logind(facts: &Facts, list: &mut List) {
    let logind = match &facts.logind {
        Ok(logind) => logind,
        Err(why) => {
            return list.unknown(
                LOGIND,
                format!("logind cannot be asked: {why}"),
                "check `systemctl status systemd-logind dbus`",
            );
        }
    };
    let by = match logind.limit_by.as_str() {
        "" => String::new(),
        by => format!(", set by {by}"),
    };
    if logind.trouble.is_empty() {
        list.ok(
            LIMIT,
            format!("a shutdown waits up to {}{by}", span(logind.limit)),
        );
    } else {
        list.fail(
            LIMIT,
            logind.trouble.clone(),
            "`InhibitDelayMaxSec=45min` in a file whose name sorts last, such as /etc/systemd/logind.conf.d/zz-vmdrain-agent.conf, then `systemctl reload systemd-logind` (systemd 252: `systemctl kill -s HUP systemd-logind`)",
        );
    }
    if logind.held {
        list.ok(LOCK, "logind lists our delay lock");
    } else {
        list.fail(
            LOCK,
            "logind does not list our delay lock: a shutdown would not wait",
            "start the daemon; when it runs, `vmdrain-agent status` says why logind refused the lock",
        );
    }
    let mut quiet = Vec::new();
    for holder in &logind.others {
        let kubelet = holder.who == "kubelet";
        match holder_note(holder) {
            Some(says) if kubelet => list.fail(
                KUBELET,
                says,
                "set shutdownGracePeriod and shutdownGracePeriodByPodPriority to 0 in the kubelet's configuration and restart the kubelet; or go down by `vmdrain-agent reboot` and `vmdrain-agent poweroff` only",
            ),
            Some(says) => list.warn(
                OTHERS,
                says,
                format!("look who it is: `systemd-inhibit --list` shows {}", holder.who),
            ),
            None if holder.mode.starts_with("block") => list.note(
                OTHERS,
                format!(
                    "{} forbids a shutdown ({}): `vmdrain-agent reboot` would be refused by logind after the drain, `systemctl reboot -i` goes past it",
                    holder.who, holder.why
                ),
            ),
            None => quiet.push(holder.who.as_str()),
        }
    }
    if logind.others.iter().all(|holder| holder.who != "kubelet") {
        list.ok(KUBELET, "the kubelet does not act on a shutdown");
    }
    if !quiet.is_empty() {
        list.note(
            OTHERS,
            format!(
                "others delay a shutdown as well, none that is known to touch VMs: {}",
                quiet.join(", ")
            ),
        );
    }
}

/// `45m`, `30s`, `1h 5m`.
pub(super) fn span(span: Duration) -> String {
    let s = span.as_secs();
    match (s / 3600, s % 3600 / 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, 0, _) => format!("{h}h"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}
