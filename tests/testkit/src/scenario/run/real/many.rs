//! Many stories on few control planes: each worker has one and plays one story after the other on it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use super::super::many::interrupted;
use super::super::{Options, Shipped, Verdict, unplayed};
use super::on_plane;
use crate::plane::{ControlPlane, Options as PlaneOptions, Version};
use crate::scenario::Scenario;

/// No story takes longer in real time.
const LIMIT: Duration = Duration::from_secs(400);

/// With what stories are played.
#[derive(Clone, Debug)]
pub struct Planes {
    /// The agent's binary, and how many seconds of a story pass in a real one.
    pub shipped: Shipped,
    /// Which KubeVirt.
    pub version: Version,
    /// Where each control plane keeps its files, instead of a folder that is removed at the end.
    pub keep: Option<PathBuf>,
}

/// Plays all stories, on `jobs` control planes at a time; `tell` hears of each as it ends. The verdicts are in the order of the
/// stories. What the control plane cannot tell is not played, and does not start one.
pub fn play_all(
    stories: &[Scenario],
    planes: &Planes,
    options: &Options,
    jobs: usize,
    tell: impl Fn(&Verdict) + Sync,
) -> Vec<Verdict> {
    let work = Work {
        stories,
        planes,
        options,
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        done: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for number in 1..jobs.clamp(1, stories.len().max(1)) {
            let (work, tell) = (&work, &tell);
            scope.spawn(move || work.run(number, tell));
        }
        work.run(0, &tell);
    });
    let mut done = work
        .done
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, verdict)| verdict).collect()
}

struct Work<'a> {
    stories: &'a [Scenario],
    planes: &'a Planes,
    options: &'a Options,
    next: AtomicUsize,
    stopped: AtomicBool,
    done: Mutex<Vec<(usize, Verdict)>>,
}

/// A control plane and the folder that goes with it.
struct Stand {
    plane: Arc<ControlPlane>,
    _folder: Option<TempDir>,
}

impl Work<'_> {
    fn run(&self, worker: usize, tell: &(impl Fn(&Verdict) + Sync)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let mut stand = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(story) = self.stories.get(number) else {
                return;
            };
            let verdict = match &runtime {
                Ok(runtime) => runtime.block_on(self.interruptible(worker, &mut stand, story)),
                Err(error) => unplayed(story, format!("no runtime: {error}")),
            };
            tell(&verdict);
            self.done
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((number, verdict));
        }
    }

    async fn interruptible(
        &self,
        worker: usize,
        stand: &mut Option<Stand>,
        story: &Scenario,
    ) -> Verdict {
        if self.stopped.load(Ordering::Relaxed) {
            return unplayed(story, "interrupted".into());
        }
        tokio::select! {
            verdict = Box::pin(self.play(worker, stand, story)) => verdict,
            () = interrupted() => {
                self.stopped.store(true, Ordering::Relaxed);
                unplayed(story, "interrupted".into())
            }
        }
    }

    async fn play(&self, worker: usize, stand: &mut Option<Stand>, story: &Scenario) -> Verdict {
        let unfit = super::fit::unfit(story, self.planes.version);
        if !unfit.is_empty() {
            return Verdict::skipped(story.file.clone(), &story.name, unfit.join("; "));
        }
        if stand.is_none() {
            match self.stand(worker).await {
                Ok(up) => *stand = Some(up),
                Err(error) => return unplayed(story, format!("{error:#}")),
            }
        }
        let Some(up) = stand.as_ref() else {
            return unplayed(story, "there is no control plane".into());
        };
        let played = async {
            tokio::select! {
                verdict = on_plane(story, self.options, &self.planes.shipped, &up.plane) => verdict,
                () = up.plane.keep_alive() => unplayed(story, "nobody plays it".into()),
            }
        };
        let verdict = tokio::time::timeout(LIMIT, Box::pin(played)).await;
        let verdict = verdict.unwrap_or_else(|_| {
            let limit = LIMIT.as_secs();
            unplayed(
                story,
                format!("the story did not end within {limit} real seconds"),
            )
        });
        // What could not be played may have left the control plane in disorder: the next story gets another one.
        if !verdict.problems.is_empty() {
            *stand = None;
        }
        verdict
    }

    async fn stand(&self, worker: usize) -> anyhow::Result<Stand> {
        let (dir, folder) = if let Some(dir) = &self.planes.keep {
            (dir.join(format!("{}-{worker}", self.planes.version)), None)
        } else {
            let folder = tempfile::Builder::new().prefix("vmdrain-plane").tempdir()?;
            (folder.path().to_owned(), Some(folder))
        };
        let options = PlaneOptions::new(self.planes.version, dir);
        let plane = ControlPlane::start(options, |_| {})
            .await
            .context("the control plane does not start")?;
        Ok(Stand {
            plane: Arc::new(plane),
            _folder: folder,
        })
    }
}
