//! What runs in the containers: an image of one static program, made without a registry.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// What virt-controller starts launcher pods with (`virt-launcher`, as container runtimes write it out), and what every other pod of
/// the tests is made from.
pub(crate) const IMAGE: &str = "docker.io/library/virt-launcher:latest";
/// What containerd starts first in every pod.
pub(crate) const PAUSE: &str = "localhost/vmdrain/pause:1";
/// The names under which the program is called.
const PROGRAMS: [&str; 5] = [
    "usr/bin/virt-launcher-monitor",
    "usr/bin/virt-tail",
    "usr/bin/workload",
    "usr/bin/virt-handler",
    "usr/bin/pause",
];
/// Folders that a container needs.
const FOLDERS: [&str; 9] = [
    "usr", "usr/bin", "etc", "proc", "sys", "dev", "tmp", "var", "var/run",
];

/// An OCI image layout in a tar archive with both images.
pub(crate) fn archive(program: &Path) -> anyhow::Result<Vec<u8>> {
    let program =
        fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    ensure!(
        program.starts_with(b"\x7fELF"),
        "the containers' program is no program"
    );
    let mut layer = Tar::default();
    for folder in FOLDERS {
        layer.folder(folder);
    }
    for name in PROGRAMS {
        layer.file(name, &program, 0o755);
    }
    let mut layout = Layout::default();
    let layer = layout.blob(
        "application/vnd.oci.image.layer.v1.tar",
        &layer.end(),
        &json!({}),
    );
    for (name, entry) in [(IMAGE, "/usr/bin/workload"), (PAUSE, "/usr/bin/pause")] {
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux",
            "config": {"Entrypoint": [entry]},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
            "history": [{"created_by": "vmdrain-agent tests"}],
        });
        let config = layout.json(
            "application/vnd.oci.image.config.v1+json",
            &config,
            &json!({}),
        );
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        });
        let named = json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "latest"});
        let manifest = layout.json(MANIFEST, &manifest, &named);
        layout.manifests.push(manifest);
    }
    Ok(layout.end())
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Blobs by their digest, and the manifests among them.
#[derive(Default)]
struct Layout {
    tar: Tar,
    manifests: Vec<Value>,
}

impl Layout {
    fn json(&mut self, kind: &str, content: &Value, annotations: &Value) -> Value {
        self.blob(kind, content.to_string().as_bytes(), annotations)
    }

    /// Keeps a blob; answers its descriptor.
    fn blob(&mut self, kind: &str, content: &[u8], annotations: &Value) -> Value {
        let digest = sha256(content);
        self.tar
            .file(&format!("blobs/sha256/{digest}"), content, 0o644);
        json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": content.len(), "annotations": annotations})
    }

    fn end(mut self) -> Vec<u8> {
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": self.manifests,
        });
        self.tar
            .file("index.json", index.to_string().as_bytes(), 0o644);
        self.tar
            .file("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}", 0o644);
        self.tar.end()
    }
}

fn sha256(content: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest
        .as_ref()
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

const BLOCK: usize = 512;

/// A tar archive in the making (ustar; names below 100 bytes).
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn folder(&mut self, name: &str) {
        self.entry(&format!("{name}/"), b'5', &[], 0o755);
    }

    fn file(&mut self, name: &str, content: &[u8], mode: u32) {
        self.entry(name, b'0', content, mode);
    }

    fn entry(&mut self, name: &str, kind: u8, content: &[u8], mode: u32) {
        let mut head = [0_u8; BLOCK];
        let mut put = |at: usize, text: &str| {
            head[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", content.len()));
        put(136, "14524613400");
        put(148, "        ");
        put(257, "ustar\0");
        put(263, "00");
        head[156] = kind;
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(head);
        self.0.extend(content);
        let rest = self.0.len().next_multiple_of(BLOCK);
        self.0.resize(rest, 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 2 * BLOCK]);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine's own tar reads it.
    #[test]
    fn the_archive_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, b"\x7fELF and more").unwrap();
        let tar = dir.path().join("image.tar");
        fs::write(&tar, archive(&program).unwrap()).unwrap();
        let out = std::process::Command::new("tar")
            .arg("-tf")
            .arg(&tar)
            .output()
            .unwrap();
        let names = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{names}");
        assert!(
            names.contains("index.json") && names.contains("blobs/sha256/"),
            "{names}"
        );
    }
}
