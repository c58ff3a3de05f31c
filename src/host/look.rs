//! One look at logind: is the lock there, and what is pending?
//!
//! Questions that belong together go out together, each with its own limit.

use super::clock;
use super::hold::{self, Hold};
use super::limits::{self, Said};
use super::login1::{CallError, ManagerProxy, within};
use super::logind::Options;
use super::session;
use super::system1;
use crate::drain::action::{HoldView, Holder};
use crate::drain::time::Mono;
use crate::drain::trigger::Then;
use std::time::Duration;

/// What changes seldom and is not asked at every look.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What the files of logind's configuration said.
    said: Option<Said>,
    /// Units that stop guests.
    units: Option<Vec<Holder>>,
}

/// The lock and the limit; takes the lock when it is wanted and not listed. `known`: from earlier looks.
pub(super) async fn hold(
    manager: &ManagerProxy<'_>,
    hold: &Hold,
    options: &Options,
    known: &mut Known,
) -> Result<HoldView, CallError> {
    let probe = options.timing.probe;
    let (limit, all, metadata) = tokio::join!(
        within(
            probe,
            "InhibitDelayMaxUSec",
            manager.inhibit_delay_max_usec()
        ),
        within(probe, "ListInhibitors", manager.list_inhibitors()),
        within(
            probe,
            "PreparingForShutdownWithMetadata",
            manager.preparing_for_shutdown_with_metadata()
        ),
    );
    let usec = limit?;
    let all = all?;
    // The files are read again when what they set may have changed.
    if known.said.as_ref().is_none_or(|said| said.usec != usec) {
        known.said = options.root.as_deref().map(limits::read);
    }
    let said = known.said.as_ref();
    let mut held = hold.has_fd() && hold::listed(&all, uid());
    let mut trouble = String::new();
    if hold.wanted() && !held {
        match take(manager, hold, options).await {
            Ok(true) => held = true,
            Ok(false) => trouble = "logind gave a lock but does not list it".into(),
            Err(e) if e.in_progress() => {
                trouble = "the host is going down already and logind gives no new lock: it does not wait for us this time".into();
            }
            Err(e) if e.silent() => return Err(e),
            Err(e) => {
                trouble = format!(
                    "logind refused the lock: {e}; polkit has to be installed, or the agent has to run as root"
                );
            }
        }
    }
    if !hold.wanted() {
        // Released, perhaps while we were looking.
        held = false;
        trouble.clear();
    }
    if trouble.is_empty() {
        // The property came with the version that counts an infinite limit right (257).
        trouble = hold::limit_trouble(usec, metadata.is_ok(), options.least_limit, said);
    }
    let mut others = hold::others(&all, uid());
    // After the lock: a PID 1 that is slow to answer must not be in its way.
    if known.units.is_none() {
        let bus = manager.inner().connection();
        known.units = Some(system1::guest_stoppers(bus, probe).await);
    }
    others.extend(known.units.iter().flatten().cloned());
    Ok(HoldView {
        limit_by: hold::limit_by(usec, said),
        others,
        ..hold::view(held, Some(usec), trouble)
    })
}

/// Takes the lock and looks for it in the list.
async fn take(
    manager: &ManagerProxy<'_>,
    hold: &Hold,
    options: &Options,
) -> Result<bool, CallError> {
    let timing = options.timing;
    let call = manager.inhibit("shutdown", hold::WHO, hold::WHY, "delay");
    let fd = within(timing.work, "Inhibit", call).await?;
    if !hold.keep(fd.into()) {
        return Ok(false);
    }
    let all = within(timing.probe, "ListInhibitors", manager.list_inhibitors()).await?;
    Ok(hold::listed(&all, uid()))
}

/// Kind and time left of a shutdown whose signal was not heard. `limit`: logind's; `quiet`: when nothing was
/// pending yet, as far as we have looked.
pub(super) async fn pending(
    manager: &ManagerProxy<'_>,
    probe: Duration,
    limit: Option<Duration>,
    quiet: Option<Mono>,
) -> (Option<Then>, Option<Duration>) {
    let call = manager.preparing_for_shutdown_with_metadata();
    let metadata = within(probe, "PreparingForShutdownWithMetadata", call).await;
    let kind = metadata.as_ref().ok().and_then(session::kind_of);
    if metadata.is_ok() {
        // 257 and later: the end of the delay on CLOCK_MONOTONIC.
        let call = manager.scheduled_shutdown();
        if let Ok((_, usec)) = within(probe, "ScheduledShutdown", call).await {
            let left = Mono(usec / 1000).left(clock::monotonic());
            if !left.is_zero() && limit.is_none_or(|most| left <= most) {
                return (kind, Some(left));
            }
        }
    }
    // Older: no more than the limit less the time in which we did not look.
    let unseen = quiet.map(|quiet| clock::now().since(quiet));
    let left = limit.zip(unseen);
    (kind, left.map(|(most, unseen)| most.saturating_sub(unseen)))
}

fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}
