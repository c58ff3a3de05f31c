//! What does `/proc` say about one process?

use crate::drain::local::LAUNCHER_EXTRA;
use crate::drain::world::VmName;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The directory of one process.
pub(super) struct Entry(PathBuf);

impl Entry {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn bytes(&self, file: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(file))
    }

    /// Names of processes may be anything but text.
    pub(super) fn text(&self, file: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(file)?).into_owned())
    }
}

/// The command line of a process.
pub(super) struct Arguments(Vec<String>);

impl Arguments {
    pub(super) fn of(cmdline: &[u8]) -> Self {
        let words = cmdline.split(|byte| *byte == 0);
        Self(
            words
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
        )
    }

    /// The program's name without its folder.
    pub(super) fn program(&self) -> &str {
        let path = self.0.first().map_or("", String::as_str);
        path.rsplit('/').next().unwrap_or_default()
    }

    /// The value of an option, as `--name value` or `--name=value`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut words = self.0.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if word == name {
                return words.next();
            }
            let value = word
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('='));
            if value.is_some() {
                return value;
            }
        }
        None
    }

    /// The VM as virt-controller has named it to virt-launcher.
    pub(super) fn vm(&self) -> VmName {
        let value = |name| self.value(name).unwrap_or_default().to_owned();
        VmName {
            namespace: value("--namespace"),
            name: value("--name"),
        }
    }

    /// The guest's own grace period.
    pub(super) fn grace(&self) -> Option<Duration> {
        let seconds = self.value("--grace-period-seconds")?.parse().ok()?;
        Some(Duration::from_secs(seconds).saturating_sub(LAUNCHER_EXTRA))
    }
}

/// It is PID 1 of a PID namespace of its own: `NSpid:` has its number in each, the innermost last.
pub(super) fn is_init(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    numbers.len() > 1 && numbers.last() == Some(&"1")
}

/// When it began, from `/proc/<pid>/stat`: field 22. The name before it, in parentheses, may have anything in it.
pub(super) fn started(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_virt_launcher_tell_the_vm_and_its_grace_period() {
        let line = b"/usr/bin/virt-launcher-monitor\0--qemu-timeout\x00300s\0--name\0db\0--uid=u-1\0--namespace\0vms\0--grace-period-seconds\x0045\0";
        let arguments = Arguments::of(line);
        assert_eq!(arguments.program(), "virt-launcher-monitor");
        assert_eq!(arguments.vm().to_string(), "vms/db");
        assert_eq!(arguments.value("--uid"), Some("u-1"));
        assert_eq!(arguments.grace(), Some(Duration::from_secs(30)));
        let other = Arguments::of(b"");
        assert_eq!((other.program(), other.grace()), ("", None));
        assert_eq!(Arguments::of(b"x\0--name").vm(), VmName::default());
    }

    #[test]
    fn only_the_first_of_a_namespace_is_init() {
        assert!(is_init("Name:\tx\nNSpid:\t4711\t1\n"));
        assert!(!is_init("NSpid:\t4712\t17\n"));
        assert!(!is_init("NSpid:\t1\n"), "of this host");
        assert!(!is_init("Name:\tx\n"));
    }

    #[test]
    fn the_beginning_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=30).map(|n| n.to_string()).collect();
        let stat = format!("7 (a b) c) ) {}", fields.join(" "));
        assert_eq!(started(&stat), Some(22));
        assert_eq!(started("7 (x) R 1"), None);
    }
}
