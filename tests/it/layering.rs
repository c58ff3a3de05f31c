//! The core stays pure: no runtime, no adapter crate, no clock, no files, nothing from outside its folder.

use std::fs;
use std::path::{Path, PathBuf};

/// What no file of the core may name, and why.
const BANNED: [(&str, &str); 12] = [
    ("tokio", "the core has no runtime"),
    ("kube::", "the core makes no request"),
    ("k8s_openapi", "the core knows no API object"),
    ("zbus", "the core knows no bus"),
    ("nix::", "the core makes no system call"),
    ("std::fs", "the core reads no file"),
    ("std::env", "the core reads no environment"),
    ("std::net", "the core opens no socket"),
    ("std::process", "the core starts no process"),
    ("Instant::now", "time is handed in"),
    ("SystemTime", "time is handed in"),
    ("Timestamp::now", "time is handed in"),
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        panic!("no folder {}", folder.display());
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "tests" {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The code of a line: without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn offences(text: &str) -> Vec<String> {
    let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, line) in shipped.lines().enumerate() {
        let line = code(line);
        for (word, why) in BANNED {
            if line.contains(word) {
                found.push(format!("line {}: {word}: {why}", at + 1));
            }
        }
        let outside = |path: &str| !path.starts_with("drain");
        if line.split("crate::").skip(1).any(outside) {
            found.push(format!(
                "line {}: the core needs nothing from outside",
                at + 1
            ));
        }
    }
    found
}

#[test]
fn the_core_is_pure() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/drain");
    let mut all = Vec::new();
    files(&folder, &mut all);
    assert!(
        all.len() > 15,
        "the core was not found in {}",
        folder.display()
    );
    let mut bad = Vec::new();
    for file in all {
        let Ok(text) = fs::read_to_string(&file) else {
            panic!("cannot read {}", file.display());
        };
        bad.extend(
            offences(&text)
                .into_iter()
                .map(|o| format!("{}: {o}", file.display())),
        );
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_guard_sees_what_it_should() {
    assert_eq!(
        offences("use crate::drain::time::Mono;\n// tokio is not used\n").len(),
        0
    );
    assert_eq!(offences("use crate::host::clock;\n").len(), 1);
    assert_eq!(
        offences("use std::{fs};\nlet now = Instant::now();\n").len(),
        1
    );
    assert_eq!(offences("use tokio::sync::mpsc;\n").len(), 1);
}
