//! Does the model answer like the real servers?
//!
//! - [`table`]: the requests, in `table/*.toml`: scenes with VMs, steps that bring them into a state, requests that are compared.
//! - [`side`]: one of the two clusters, reached by a client per identity. [`switches`]: rights, and the way to virt-api.
//! - [`stand`]: both sides beside each other. [`scene`]: plays one scene on one side. [`answer`]: what of an answer counts. [`names`]: what is the same but for its name.
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
pub mod stand;
pub mod states;
pub mod switches;
pub mod table;
pub mod verdict;

use std::path::PathBuf;

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::plane;
use report::{News, Report};
use side::Side;
use stand::Stand;
use table::Scene;

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
    /// How many scenes are played at a time; without a number what the version bears.
    pub jobs: Option<usize>,
}

/// As [`run`]; without a kubeconfig a control plane is started for it, and ended afterwards.
pub async fn run_anywhere(
    mut options: Options,
    tell: &(dyn Fn(&News<'_>) + Sync),
) -> anyhow::Result<Report> {
    if !options.kubeconfig.as_os_str().is_empty() {
        return run(&options, tell, &Vec::new).await;
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
    let revived = || plane.revivals();
    tokio::select! {
        report = Box::pin(run(&options, tell, &revived)) => report,
        () = plane.keep_alive() => anyhow::bail!("nobody looks after the real servers any more"),
    }
}

/// Plays every scene on both sides; `tell` hears each verdict as it is found. `revived` names the real servers that had to be
/// started again so far: what differs while that happens is played once more.
pub async fn run(
    options: &Options,
    tell: &(dyn Fn(&News<'_>) + Sync),
    revived: &(dyn Fn() -> Vec<String> + Sync),
) -> anyhow::Result<Report> {
    let folder = options.table.as_deref();
    let plays = |scene: &Scene| scene.concerns(options.kubevirt) && wanted(scene, &options.only);
    let (alone, together): (Vec<Scene>, Vec<Scene>) = table::all(folder)?
        .into_iter()
        .filter(|scene| plays(scene))
        .partition(|scene| scene.alone);
    let mut stories = table::stories(folder)?;
    stories
        .scene
        .retain(|story| plays(story) && options.plays > 0);
    let everywhere = table::everywhere(folder)?;
    let model = Side::model(options.kubevirt)?;
    let real = Side::real(&options.kubeconfig, options.kubevirt, options.play).await?;
    let stand = Stand {
        model: &model,
        real: &real,
        everywhere: &everywhere,
        revived,
        places: Semaphore::new(options.jobs.unwrap_or(places(options.kubevirt)).max(1)),
        tell,
    };
    // The stories mostly wait, so the scenes go on beside them.
    let ordered = stories
        .scene
        .iter()
        .map(|story| stand.order(story, options.plays, &stories.race));
    let scenes = together.iter().map(|scene| stand.compare(scene));
    let (orders, mut verdicts) = tokio::join!(join_all(ordered), join_all(scenes));
    for scene in &alone {
        verdicts.push(Box::pin(stand.compare(scene)).await);
    }
    let mut report = Report::new(options.kubevirt, verdicts);
    report.orders = orders;
    if options.only.is_empty() {
        report.forget_nothing(&everywhere);
    }
    Ok(report)
}

/// So many scenes at a time: they mostly wait. virt-api 1.5 itself asks no more than 5 requests a second.
fn places(kubevirt: (u8, u8)) -> usize {
    if kubevirt < (1, 6) { 3 } else { 10 }
}

fn wanted(scene: &Scene, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| scene.name.contains(part.as_str()))
}

/// Reads `1.7` or `1.7.0`.
pub fn version(text: &str) -> anyhow::Result<(u8, u8)> {
    let mut parts = text.split('.').map(str::parse::<u8>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => anyhow::bail!("{text:?} is no version of KubeVirt"),
    }
}
