//! The stop job of `vmdrain-hold.service` on this front: `vmdrain-agent hold-stop` itself, as PID 1 runs it.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::super::stage::NotPlayed;
use super::BinaryStage;
use crate::logind::Kind;
use crate::systemd1::System;

/// `JobTimeoutSec=` of the targets, in the story's time.
const JOB_TIMEOUT: Duration = Duration::from_secs(30 * 60);

impl BinaryStage {
    /// The target is started past logind: logind ends, the daemon goes on, the stop job runs.
    pub(super) async fn begin_to_stop(&mut self, kind: Kind) -> Result<(), NotPlayed> {
        let target = match kind {
            Kind::Poweroff => "poweroff.target",
            Kind::Reboot => "reboot.target",
            Kind::Halt => "halt.target",
            Kind::Kexec => "kexec.target",
            Kind::SoftReboot => "soft-reboot.target",
        };
        self.pid1.set(self.system(System {
            job_timeout: self.real(JOB_TIMEOUT),
            ..System::stopping(target)
        }));
        self.logind.stop().await;
        self.history.stopping(&self.logind.events());
        // In a system that ends no service is started again.
        self.starts = None;
        let child = Command::new(&self.setup.binary)
            .args(self.global())
            .arg("hold-stop")
            .env("NO_COLOR", "1")
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| NotPlayed::Cannot(format!("hold-stop: {error}")))?;
        self.stopping = Some((child, kind));
        Ok(())
    }

    /// Whether it has ended, and the host is to go down.
    pub(super) fn stop_job_ended(&mut self) -> bool {
        let Some((child, _)) = &mut self.stopping else {
            return false;
        };
        !matches!(child.try_wait(), Ok(None))
    }

    /// Lets the host go when it has ended.
    pub(super) fn stop_job_over(&mut self) {
        if self.stop_job_ended()
            && let Some((_, kind)) = self.stopping.take()
        {
            self.logind.bypass(kind);
        }
    }
}
