//! One look at logind without a lock of our own: does it list the daemon's, how long does it wait, who else holds?

use super::hold;
use super::limits;
use super::login1::{self, CallError, ManagerProxy, within};
use super::system1;
use super::timing::Timing;
use crate::doctor::LogindFacts;
use std::path::Path;
use std::time::Duration;

/// Shorter than this no VM can be moved.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// Asks logind at `address` (`None`: on the system bus); its files are read below `root`, where they belong to it.
///
/// # Errors
/// Why it cannot be asked.
pub async fn look(
    address: Option<&str>,
    root: Option<&Path>,
    timing: &Timing,
) -> Result<LogindFacts, String> {
    asked(address, root, timing).await.map_err(|e| e.text)
}

async fn asked(
    address: Option<&str>,
    root: Option<&Path>,
    timing: &Timing,
) -> Result<LogindFacts, CallError> {
    let probe = timing.probe;
    let bus = login1::connect(address, probe).await?;
    let manager = ManagerProxy::builder(&bus)
        .cache_properties(zbus::proxy::CacheProperties::No)
        .build()
        .await?;
    let usec = manager.inhibit_delay_max_usec();
    let usec = within(probe, "InhibitDelayMaxUSec", usec).await?;
    let all = within(probe, "ListInhibitors", manager.list_inhibitors()).await?;
    let metadata = manager.preparing_for_shutdown_with_metadata();
    let metadata = within(probe, "PreparingForShutdownWithMetadata", metadata).await;
    let said = root.map(limits::read);
    // Whoever runs the daemon, its lock has its name; a check-up may run as somebody else.
    let ours = all
        .iter()
        .find(|lock| lock.is_hold_of(hold::WHO, lock.uid))
        .map(|lock| lock.uid);
    let mut others = hold::others(&all, ours.unwrap_or(u32::MAX));
    others.extend(system1::guest_stoppers(&bus, probe).await);
    // Nobody else uses this connection; a goodbye that is not heard is none the worse.
    let _ = bus.close().await;
    Ok(LogindFacts {
        limit: hold::view(false, Some(usec), "").limit.unwrap_or_default(),
        trouble: hold::limit_trouble(usec, metadata.is_ok(), LEAST_LIMIT, said.as_ref()),
        limit_by: hold::limit_by(usec, said.as_ref()),
        held: ours.is_some(),
        others,
    })
}
