//! How does a test get a bus of its own?

use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use zbus::names::{BusName, UniqueName};

/// Looks for the socket this often, this many times: five seconds in all.
const LOOKS: (u32, Duration) = (500, Duration::from_millis(10));

/// A private `dbus-daemon`. Everybody who can reach its folder may do everything on it.
#[derive(Debug)]
pub struct Bus {
    folder: TempDir,
    daemon: Option<Child>,
}

impl Bus {
    /// Starts one and waits until it takes connections.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("bus").tempdir()?;
        let mut bus = Self {
            folder,
            daemon: None,
        };
        std::fs::write(bus.config(), bus.policy())?;
        bus.launch().await?;
        Ok(bus)
    }

    /// Its address, the same after a restart.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    /// `systemctl restart dbus`: every connection ends.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        self.launch().await
    }

    /// Ends it; [`Bus::restart`] brings it back.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // Both fail only when the process is gone already.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    async fn launch(&mut self) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(self.socket());
        let daemon = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg("--nopidfile")
            .arg("--config-file")
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start dbus-daemon; on Debian it is in the package dbus-daemon")?;
        self.daemon = Some(daemon);
        for _ in 0..LOOKS.0 {
            if std::os::unix::net::UnixStream::connect(self.socket()).is_ok() {
                return Ok(());
            }
            tokio::time::sleep(LOOKS.1).await;
        }
        bail!("dbus-daemon takes no connections on {}", self.address())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("bus.conf")
    }

    fn policy(&self) -> String {
        format!(
            r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>custom</type>
  <listen>{}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#,
            self.address()
        )
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal in logind's clothes from a connection that is not logind's: to everybody, or past all match rules
/// to one connection alone.
pub async fn spoof<B>(address: &str, to: Option<&str>, member: &str, body: &B) -> anyhow::Result<()>
where
    B: serde::Serialize + zbus::DynamicType + Sync,
{
    let bus = zbus::connection::Builder::address(address).build().await?;
    let to = to.map(UniqueName::try_from).transpose()?.map(BusName::from);
    bus.emit_signal(
        to,
        super::facts::PATH,
        super::facts::INTERFACE,
        member,
        body,
    )
    .await?;
    // The signal is on its way before the connection closes: an answer from the bus comes after it.
    zbus::fdo::DBusProxy::new(&bus).await?.get_id().await?;
    Ok(())
}
