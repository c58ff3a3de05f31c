//! Is the system really going down, and how long may our stop job take? Pure: what PID 1 said goes in.
//!
//! The stop job of vmdrain-hold.service runs in four cases that look alike from inside: a shutdown, `systemctl
//! stop`, a restart, an upgrade. Only the first one may move a VM.

use super::login1::USEC_INFINITY;
use crate::drain::trigger::Then;
use std::time::Duration;

/// `JobTimeoutSec=` of poweroff.target and its kin, counted from the moment at which the job was queued: then PID 1
/// forces the host down, whatever any unit asks for.
pub const JOB_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Kept free before that moment, but never more than a fifth of the time: the job was queued a little before we were
/// started, and the units that we keep alive need some time to end.
const MARGIN: Duration = Duration::from_secs(120);

/// A job of PID 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Unit.
    pub unit: String,
    /// `start`, `stop`, …
    pub kind: String,
}

impl Job {
    /// It is one of the jobs with which the system ends.
    pub fn ends_the_system(&self) -> bool {
        self.kind == "start" && (self.unit == "shutdown.target" || self.then().is_some())
    }

    /// What comes after the end, where this job tells.
    fn then(&self) -> Option<Then> {
        Some(match self.unit.as_str() {
            "poweroff.target" => Then::Poweroff,
            "reboot.target" => Then::Reboot,
            "halt.target" => Then::Halt,
            "kexec.target" => Then::Kexec,
            "soft-reboot.target" => Then::SoftReboot,
            _ => return None,
        })
    }
}

/// What PID 1 said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `Manager.SystemState`, or why it cannot be read.
    pub state: Result<String, String>,
    /// The job list, or why it cannot be read.
    pub jobs: Result<Vec<Job>, String>,
    /// Smallest `JobTimeoutUSec` of the jobs that end the system, in microseconds.
    pub job_limit: Option<u64>,
    /// `TimeoutStopUSec` of our unit, in microseconds.
    pub stop_limit: Option<u64>,
}

impl Default for Seen {
    fn default() -> Self {
        Self::nothing("PID 1 was not asked")
    }
}

impl Seen {
    /// PID 1 cannot be asked.
    pub fn nothing(why: &str) -> Self {
        Self {
            state: Err(why.to_owned()),
            jobs: Err(why.to_owned()),
            job_limit: None,
            stop_limit: None,
        }
    }
}

/// Whether the system goes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does.
    Down {
        /// What comes afterwards, where that is known.
        then: Option<Then>,
        /// How it was found out.
        says: String,
    },
    /// It does not, as far as can be seen.
    Up {
        /// How it was found out.
        says: String,
    },
}

/// The decision. An unreadable job list is decided by the system state, which says so.
pub fn fate(seen: &Seen) -> Fate {
    let stopping = matches!(seen.state.as_deref(), Ok("stopping"));
    match (&seen.jobs, &seen.state) {
        (Ok(jobs), state) => {
            let ends: Vec<&Job> = jobs.iter().filter(|job| job.ends_the_system()).collect();
            let then = ends.iter().find_map(|job| job.then());
            match (ends.first(), stopping) {
                (Some(job), _) => Fate::Down {
                    then,
                    says: format!(
                        "{} is being started",
                        then.map_or(job.unit.clone(), |then| format!("{then}.target"))
                    ),
                },
                (None, true) => Fate::Down {
                    then: None,
                    says: "the system state is \"stopping\"".into(),
                },
                (None, false) => Fate::Up {
                    says: match state {
                        Ok(state) => {
                            format!("the system state is \"{state}\" and no job ends the system")
                        }
                        Err(why) => format!(
                            "no job ends the system (the system state cannot be read: {why})"
                        ),
                    },
                },
            }
        }
        (Err(why), Ok(state)) => {
            let says = format!(
                "the system state is \"{state}\"; the job list cannot be read ({why}), so the state alone decides"
            );
            if stopping {
                Fate::Down { then: None, says }
            } else {
                Fate::Up { says }
            }
        }
        (Err(why), Err(_)) => Fate::Up {
            says: format!("neither the job list nor the system state can be read ({why})"),
        },
    }
}

/// How long a drain of the stop job may take, counted from now. `extends`: PID 1 hears us ask for more time
/// (`EXTEND_TIMEOUT_USEC`), so that `TimeoutStopSec=` of our unit is no limit.
pub fn budget(seen: &Seen, extends: bool) -> Duration {
    let finite = |usec: Option<u64>| {
        usec.filter(|usec| *usec != USEC_INFINITY)
            .map(Duration::from_micros)
    };
    // An infinite or unread limit of the targets counts as the usual one: no host hangs for ever.
    let job = finite(seen.job_limit).unwrap_or(JOB_LIMIT);
    let stop = finite(seen.stop_limit).filter(|_| !extends);
    let most = stop.map_or(job, |stop| stop.min(job));
    most.saturating_sub(MARGIN.min(most / 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(unit: &str, kind: &str) -> Job {
        Job {
            unit: unit.into(),
            kind: kind.into(),
        }
    }

    fn seen(state: Result<&str, &str>, jobs: Result<Vec<Job>, &str>) -> Seen {
        Seen {
            state: state.map(str::to_owned).map_err(str::to_owned),
            jobs: jobs.map_err(str::to_owned),
            ..Seen::default()
        }
    }

    fn down(then: Option<Then>, says: &str) -> Fate {
        Fate::Down {
            then,
            says: says.into(),
        }
    }

    #[test]
    fn only_a_system_that_is_going_down_counts() {
        let ending = || {
            vec![
                job("shutdown.target", "start"),
                job("reboot.target", "start"),
            ]
        };
        let restart = || {
            vec![
                job("vmdrain-hold.service", "restart"),
                job("x.service", "start"),
            ]
        };
        let of_jobs = down(Some(Then::Reboot), "reboot.target is being started");
        assert_eq!(fate(&seen(Ok("stopping"), Ok(ending()))), of_jobs);
        assert_eq!(
            fate(&seen(Ok("running"), Ok(ending()))),
            of_jobs,
            "the job is newer than the state"
        );
        assert_eq!(fate(&seen(Err("no answer"), Ok(ending()))), of_jobs);
        assert_eq!(
            fate(&seen(
                Ok("running"),
                Ok(vec![job("shutdown.target", "start")])
            )),
            down(None, "shutdown.target is being started")
        );
        assert_eq!(
            fate(&seen(Ok("stopping"), Ok(vec![]))),
            down(None, "the system state is \"stopping\"")
        );
        for state in ["running", "degraded", "maintenance", "starting"] {
            assert!(
                matches!(fate(&seen(Ok(state), Ok(restart()))), Fate::Up { .. }),
                "{state}"
            );
        }
        let called_off = vec![job("shutdown.target", "stop"), job("reboot.target", "stop")];
        assert!(matches!(
            fate(&seen(Ok("running"), Ok(called_off))),
            Fate::Up { .. }
        ));
    }

    #[test]
    fn an_unreadable_job_list_is_decided_by_the_state_and_said() {
        let Fate::Down { then: None, says } = fate(&seen(Ok("stopping"), Err("denied"))) else {
            panic!("it is going down");
        };
        assert!(
            says.contains("denied") && says.contains("state alone decides"),
            "{says}"
        );
        let Fate::Up { says } = fate(&seen(Ok("running"), Err("denied"))) else {
            panic!("it is not going down");
        };
        assert!(
            says.contains("denied") && says.contains("state alone decides"),
            "{says}"
        );
        let Fate::Up { says } = fate(&Seen::nothing("no bus")) else {
            panic!("nothing is known");
        };
        assert!(says.contains("no bus"), "{says}");
    }

    #[test]
    fn the_budget_ends_before_any_limit() {
        let seconds = |job: Option<u64>, stop: Option<u64>, extends| {
            let usec = |s: Option<u64>| s.map(|s| if s == u64::MAX { s } else { s * 1_000_000 });
            let seen = Seen {
                job_limit: usec(job),
                stop_limit: usec(stop),
                ..Seen::default()
            };
            budget(&seen, extends).as_secs()
        };
        assert_eq!(
            seconds(None, None, true),
            1680,
            "28 min: a minute more is what the rest may take"
        );
        assert_eq!(
            seconds(Some(1800), Some(90), true),
            1680,
            "PID 1 is asked for more time"
        );
        assert_eq!(
            seconds(Some(1800), Some(90), false),
            72,
            "and cannot be asked here"
        );
        assert_eq!(seconds(Some(1800), Some(u64::MAX), false), 1680);
        assert_eq!(
            seconds(Some(u64::MAX), None, true),
            1680,
            "no host hangs for ever"
        );
        assert_eq!(
            seconds(Some(3600), Some(900), true),
            3480,
            "an administrator has raised it"
        );
        assert_eq!(seconds(Some(10), Some(1740), true), 8);
        assert_eq!(seconds(Some(0), None, true), 0);
    }
}
