//! How is logind asked to go down, and who forbids it?
//!
//! Flags 0 and no interaction. Other people's block locks are respected on every version: systemd 256 and older
//! would ignore them for root, so we look before we ask.

use super::login1::{self, CallError, Inhibitor, ManagerProxy, within};
use super::timing::Timing;
use crate::drain::action::LogindAnswer;
use crate::drain::trigger::Then;
use zbus::Connection;

/// Asks once; the answer comes before the host goes.
pub async fn ask(bus: &Connection, then: Then, timing: &Timing) -> LogindAnswer {
    let manager = match login1::manager(bus).await {
        Ok(manager) => manager,
        Err(e) => return LogindAnswer::Failed(format!("logind cannot be asked to {then}: {e}")),
    };
    match within(timing.probe, "ListInhibitors", manager.list_inhibitors()).await {
        Ok(all) => {
            if let Some(said) = blockers(&all, then, &["block"]) {
                return LogindAnswer::Blocked(said);
            }
        }
        Err(error) => tracing::warn!(%error, "cannot see whether somebody blocks the shutdown"),
    }
    let asked = within(timing.work, then.word(), request(&manager, then)).await;
    match asked {
        Ok(()) => LogindAnswer::Accepted,
        Err(e) if e.in_progress() => LogindAnswer::Accepted,
        Err(e) => refused(&manager, then, &e, timing).await,
    }
}

async fn request(manager: &ManagerProxy<'_>, then: Then) -> zbus::Result<()> {
    let with_flags = match then {
        Then::Poweroff => manager.power_off_with_flags(0).await,
        Then::Reboot => manager.reboot_with_flags(0).await,
        Then::Halt => manager.halt_with_flags(0).await,
        Then::Kexec => manager.reboot_with_flags(login1::REBOOT_VIA_KEXEC).await,
        Then::SoftReboot => manager.reboot_with_flags(login1::SOFT_REBOOT).await,
    };
    match with_flags {
        Err(e) if CallError::from(e.clone()).unknown() => match then {
            Then::Poweroff => manager.power_off(false).await,
            Then::Reboot => manager.reboot(false).await,
            Then::Halt => manager.halt(false).await,
            Then::Kexec | Then::SoftReboot => Err(e),
        },
        answer => answer,
    }
}

async fn refused(
    manager: &ManagerProxy<'_>,
    then: Then,
    error: &CallError,
    timing: &Timing,
) -> LogindAnswer {
    if error.silent() {
        // The request may have arrived: the property tells.
        let call = manager.preparing_for_shutdown();
        if let Ok(true) = within(timing.probe, "PreparingForShutdown", call).await {
            return LogindAnswer::Accepted;
        }
    }
    let call = manager.list_inhibitors();
    if let Ok(all) = within(timing.probe, "ListInhibitors", call).await
        && let Some(said) = blockers(&all, then, &["block", "block-weak"])
    {
        return LogindAnswer::Blocked(said);
    }
    let cure = match error.name.rsplit('.').next() {
        _ if error.unknown() => "this systemd is too old for it",
        Some("AccessDenied") => {
            "is the target masked, or does the agent not run as root? `systemctl status systemd-logind` and the journal tell"
        }
        Some("InteractiveAuthorizationRequired") => {
            "the agent needs a polkit rule for it, or has to run as root"
        }
        _ => "`systemctl status systemd-logind` and the journal tell more",
    };
    LogindAnswer::Failed(format!(
        "logind refused to {then}: {}; {cure}",
        error.text.trim_end_matches('.')
    ))
}

/// Names everybody who forbids it, and what to do.
fn blockers(all: &[Inhibitor], then: Then, modes: &[&str]) -> Option<String> {
    let holders: Vec<String> = all
        .iter()
        .filter(|one| one.on_shutdown() && modes.contains(&one.mode.as_str()))
        .map(|one| {
            format!(
                "{} (pid {}, uid {}: {})",
                one.who, one.pid, one.uid, one.why
            )
        })
        .collect();
    if holders.is_empty() {
        return None;
    }
    Some(format!(
        "{} forbids it with a block lock: the host was not asked to {then}. Wait until that program is done or end it (`systemd-inhibit --list` shows it), then run `vmdrain-agent {then}` again",
        holders.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blockers_are_named_with_their_reason_and_the_cure() {
        let lock = |who: &str, mode: &str, what: &str| Inhibitor {
            what: what.into(),
            who: who.into(),
            why: "updating firmware".into(),
            mode: mode.into(),
            uid: 0,
            pid: 77,
        };
        let all = [
            lock("kubelet", "delay", "shutdown"),
            lock("fwupd", "block", "sleep:shutdown"),
            lock("gnome", "block", "sleep"),
            lock("weak", "block-weak", "shutdown"),
        ];
        let said = blockers(&all, Then::Reboot, &["block"]).unwrap();
        assert!(
            said.starts_with("fwupd (pid 77, uid 0: updating firmware) forbids"),
            "{said}"
        );
        assert!(said.contains("vmdrain-agent reboot"));
        assert_eq!(blockers(&all[..1], Then::Reboot, &["block"]), None);
    }
}
