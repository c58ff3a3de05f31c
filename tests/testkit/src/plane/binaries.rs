//! Where are the real servers? `tests/control-plane/build` knows, and builds what is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::Version;

/// The script, from the tree that this program was built in.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../control-plane/build");

/// The built programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    kubernetes: PathBuf,
    kubevirt: PathBuf,
}

impl Binaries {
    /// The programs of a version, built when they are not there yet (minutes; the script says on stderr what it does).
    pub fn build(version: Version) -> anyhow::Result<Self> {
        Self::ask(&["kubernetes", version.full()])
    }

    /// The programs of a version, when they were built before.
    pub fn built(version: Version) -> anyhow::Result<Self> {
        Self::ask(&["--where", "kubernetes", version.full()])
    }

    fn ask(arguments: &[&str]) -> anyhow::Result<Self> {
        let output = Command::new(BUILD)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {BUILD}"))?;
        anyhow::ensure!(
            output.status.success(),
            "the real servers are not there (`make control-plane` builds them); why is said above"
        );
        let text = String::from_utf8(output.stdout).context("the build script prints no text")?;
        let mut folders = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(_, folder)| PathBuf::from(folder));
        let missing = "the build script named no folder";
        Ok(Self {
            kubernetes: folders.next().context(missing)?,
            kubevirt: folders.next().context(missing)?,
        })
    }

    /// A program by name: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubectl`, `kubelet`, `virt-api`,
    /// `virt-controller`, `objects`.
    pub fn program(&self, name: &str) -> PathBuf {
        let folder: &Path = match name {
            "virt-api" | "virt-controller" | "objects" => &self.kubevirt,
            _ => &self.kubernetes,
        };
        folder.join(name)
    }
}
