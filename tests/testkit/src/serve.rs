//! `clustersim serve`: a simulated cluster for `kubectl`, for a bench, for anybody, until Ctrl-C.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use crate::api::front::{Options as HttpsOptions, serve_https};
use crate::api::log::Entry;
use crate::clock::SimClock;
use crate::scenario::Scenario;
use crate::scenario::run::cluster::{Cluster, Machine};

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kubeconfigs and certificates are written here.
    pub dir: PathBuf,
    /// The port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// How many simulated seconds pass in a real one.
    pub speed: f64,
    /// Seed of everything that is random.
    pub seed: u64,
    /// The host's node has this machine's ids, so that an agent here takes it for its own.
    pub this_machine: bool,
    /// Where all requests are written at the end, as JSON.
    pub requests: Option<PathBuf>,
}

/// Serves the cluster of a scenario (its timeline is not played) until `stop` is done.
pub async fn serve(
    scenario: &Scenario,
    options: &Options,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let clock = SimClock::from_wall(options.speed);
    let machine = if options.this_machine {
        this_machine()
    } else {
        Machine::default()
    };
    let cluster =
        Cluster::start(scenario, &clock, options.seed, &machine).map_err(anyhow::Error::msg)?;
    let https = HttpsOptions {
        port: options.port,
        ..HttpsOptions::in_dir(&options.dir)
    };
    let serving = serve_https(cluster.server.clone(), https).await?;
    let mut out = io::stdout();
    writeln!(out, "server      {}", serving.url)?;
    writeln!(out, "KUBECONFIG  {}", serving.paths.admin.display())?;
    for (node, path) in &serving.paths.kubelets {
        writeln!(out, "kubelet     {node} {}", path.display())?;
    }
    writeln!(out, "ready; Ctrl-C ends it")?;
    out.flush()?;
    stop.await;
    serving.shutdown().await;
    if let Some(file) = &options.requests {
        let all: Vec<_> = cluster.server.log.entries().iter().map(row).collect();
        let text = serde_json::to_string_pretty(&all)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn this_machine() -> Machine {
    let machine = vmdrain_agent::host::Identity::read();
    Machine {
        boot_id: machine.boot_id,
        machine_id: machine.machine_id,
        system_uuid: machine.system_uuid,
    }
}

fn row(entry: &Entry) -> serde_json::Value {
    serde_json::json!({
        "at": entry.at.as_secs_f64(),
        "answered": entry.answered.as_ref().map(Duration::as_secs_f64),
        "user": entry.user, "agent": entry.agent, "verb": entry.verb, "resource": entry.resource,
        "subresource": entry.subresource, "namespace": entry.namespace, "name": entry.name,
        "dry_run": entry.dry_run, "status": entry.status, "message": entry.message,
    })
}
