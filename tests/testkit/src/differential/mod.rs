//! Does the model answer like the real servers?
//!
//! - [`table`]: the requests, in `table/*.toml`: scenes with VMs, steps that bring them into a state, requests that are compared.
//! - [`side`]: one of the two clusters, reached by a client per identity.
//! - [`scene`]: plays one scene on one side. [`answer`]: what of an answer counts. [`names`]: what is the same but for its name.
//! - [`changes`]: what happened to the objects meanwhile.
//! - [`verdict`]: the comparison. A difference is an error unless the table lists it with its reason; a listed difference that is none is
//!   an error as well, so that the list cannot rot.
//! - [`orders`]: in which order the real controllers write, against the model's.

pub mod answer;
pub mod changes;
pub mod manifests;
pub mod names;
pub mod orders;
pub mod report;
pub mod scene;
pub mod side;
pub mod table;
pub mod verdict;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use crate::plane;
use report::Report;
use side::Side;
use table::{Difference, Scene};
use verdict::Verdict;

/// What is compared.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kubeconfig of a cluster administrator of the real servers; empty: a control plane of our own.
    pub kubeconfig: PathBuf,
    /// The KubeVirt version that runs there, major and minor.
    pub kubevirt: (u8, u8),
    /// Whether kubelets and virt-handlers have to be played there (they are already in a control plane of ours).
    pub play: bool,
    /// Only scenes whose name contains one of these; empty: all.
    pub only: Vec<String>,
    /// How often each story whose order is compared is played; 0: not at all.
    pub plays: usize,
    /// A folder with the table's files, instead of those that are built in.
    pub table: Option<PathBuf>,
    /// How many scenes are played at a time.
    pub jobs: usize,
}

/// As [`run`]; without a kubeconfig a control plane is started for it, and ended afterwards.
pub async fn run_anywhere(mut options: Options, tell: &dyn Fn(&Verdict)) -> anyhow::Result<Report> {
    if !options.kubeconfig.as_os_str().is_empty() {
        return run(&options, tell).await;
    }
    let (major, minor) = options.kubevirt;
    let version: plane::Version = format!("{major}.{minor}")
        .parse()
        .map_err(anyhow::Error::msg)?;
    let folder = tempfile::Builder::new().prefix("differential").tempdir()?;
    let plane = plane::ControlPlane::start(plane::Options::new(version, folder.path()), |step| {
        tracing::info!("{step}");
    })
    .await?;
    options.kubeconfig = plane.kubeconfig(&plane::Who::Admin)?;
    options.play = true;
    let report = run(&options, tell).await;
    drop(plane);
    report
}

/// Plays every scene on both sides; `tell` hears each verdict as it is found.
pub async fn run(options: &Options, tell: &dyn Fn(&Verdict)) -> anyhow::Result<Report> {
    let scenes: Vec<Scene> = table::all(options.table.as_deref())?
        .into_iter()
        .filter(|scene| scene.concerns(options.kubevirt) && wanted(scene, &options.only))
        .collect();
    let everywhere = table::everywhere(options.table.as_deref())?;
    let model = Arc::new(Side::model(options.kubevirt)?);
    let real = Arc::new(Side::real(&options.kubeconfig, options.kubevirt, options.play).await?);
    let (alone, together): (Vec<Scene>, Vec<Scene>) =
        scenes.into_iter().partition(|scene| scene.alone);
    let mut verdicts = Vec::new();
    let mut playing = stream::iter(together)
        .map(|scene| compare(scene, &model, &real, &everywhere))
        .buffered(options.jobs.max(1));
    while let Some(verdict) = playing.next().await {
        tell(&verdict);
        verdicts.push(verdict);
    }
    for scene in alone {
        let verdict = compare(scene, &model, &real, &everywhere).await;
        tell(&verdict);
        verdicts.push(verdict);
    }
    let orders = orders::record(&model, &real, options.plays, options.table.as_deref()).await?;
    let mut report = Report::new(options.kubevirt, verdicts);
    report.orders = orders;
    if options.only.is_empty() {
        report.forget_nothing(&everywhere);
    }
    Ok(report)
}

fn wanted(scene: &Scene, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| scene.name.contains(part.as_str()))
}

async fn compare(
    scene: Scene,
    model: &Arc<Side>,
    real: &Arc<Side>,
    everywhere: &[Difference],
) -> Verdict {
    let ours = async {
        if scene.real_only {
            scene::Told::default()
        } else {
            scene::play(&scene, model).await
        }
    };
    let (told, really) = tokio::join!(ours, scene::play(&scene, real));
    verdict::judge(scene, &told, &really, model.kubevirt, everywhere)
}

/// Reads `1.7` or `1.7.0`.
pub fn version(text: &str) -> anyhow::Result<(u8, u8)> {
    let mut parts = text.split('.').map(str::parse::<u8>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => anyhow::bail!("{text:?} is no version of KubeVirt"),
    }
}
