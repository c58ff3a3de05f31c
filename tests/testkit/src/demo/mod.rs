//! The demonstration: the shipped binary empties a host of eight VMs before it is powered off.
//!
//! No root and no cluster: the API server, KubeVirt and logind are simulated, the agent is real.

mod report;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::{Child, Command};

use crate::scenario::Scenario;
use crate::scenario::run::{Live, Shipped};

/// The story that is shown.
const STORY: &str = include_str!("story.toml");

/// What follows the end is shown for so long: VMs that were shut down start elsewhere.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// Shows the demonstration in real time; true when everything went as it should.
pub async fn show(agent: &Path) -> anyhow::Result<bool> {
    let story = Scenario::parse(Path::new("demo"), STORY)?;
    let shipped = Shipped {
        binary: agent.to_owned(),
        speed: 1.0,
    };
    say(
        "A simulated cluster with the nodes n1, n2 and n3; eight VMs run on n1, which is this host.",
    )?;
    say(
        "Starting the API server (HTTPS), KubeVirt's controllers, a private bus with a stand-in logind …",
    )?;
    let live = Live::start(&story, &shipped, 1).await?;
    say("vmdrain-agent runs and holds a delay lock: a shutdown will wait for it.\n")?;
    say("$ systemctl poweroff        # in two seconds\n$ vmdrain-agent status -w\n")?;
    let mut display = display(agent, live.global())?;
    let played = Box::pin(live.play(false, AFTERWARDS)).await;
    // The display ends with the agent at the latest; nobody waits for it.
    let _ = display.kill().await;
    let (verdict, ending) = played?;
    say(&report::text(&ending))?;
    if !verdict.passed {
        say(&verdict.text())?;
    }
    Ok(verdict.passed)
}

/// The agent's own live display, on our terminal.
fn display(agent: &Path, global: &[String]) -> anyhow::Result<Child> {
    Command::new(agent)
        .args(global)
        .args(["status", "-w"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", agent.display()))
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{text}")?;
    out.flush()
}
