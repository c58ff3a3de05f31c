//! Who sets `InhibitDelayMaxSec`, and to what? The files of logind's configuration in their order.
//!
//! `logind.conf` is lowest: the first one that is found counts. Then come all drop-ins, sorted by file name alone; a
//! name that several folders have is read from the first of them only. The last valid assignment wins, a line that
//! cannot be read is no assignment (measured on systemd 252, 257 and 262).

use super::login1::USEC_INFINITY;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the files are, the strongest first.
const FOLDERS: [&str; 4] = [
    "etc/systemd",
    "run/systemd",
    "usr/local/lib/systemd",
    "usr/lib/systemd",
];
const MAIN: &str = "logind.conf";
const DROP_INS: &str = "logind.conf.d";
const SECTION: &str = "Login";
const KEY: &str = "InhibitDelayMaxSec";
/// What logind takes when nobody says anything.
pub const DEFAULT: Duration = Duration::from_secs(5);

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfFile {
    /// Where.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// What the files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The limit in microseconds, as on logind's wire.
    pub usec: u64,
    /// The file that says so; `None`: none does, logind's own default counts.
    pub by: Option<PathBuf>,
}

/// Of several main files and drop-ins, each kind in the order of the folders, the one assignment that counts.
pub fn effective(mains: &[ConfFile], drop_ins: &[ConfFile]) -> Said {
    let mut by_name: BTreeMap<OsString, &ConfFile> = BTreeMap::new();
    for file in drop_ins {
        let name = file.path.file_name().unwrap_or_default().to_owned();
        by_name.entry(name).or_insert(file);
    }
    let mut said = Said {
        usec: u64::try_from(DEFAULT.as_micros()).unwrap_or(u64::MAX),
        by: None,
    };
    for file in mains.first().into_iter().chain(by_name.into_values()) {
        if let Some(usec) = assigned(&file.text) {
            said = Said {
                usec,
                by: Some(file.path.clone()),
            };
        }
    }
    said
}

/// The same for the files below `root` (`/` on a host). What cannot be read counts as not there.
pub fn read(root: &Path) -> Said {
    let (mut mains, mut drop_ins) = (Vec::new(), Vec::new());
    for folder in FOLDERS {
        let folder = root.join(folder);
        mains.extend(file(folder.join(MAIN)));
        let Ok(entries) = std::fs::read_dir(folder.join(DROP_INS)) else {
            continue;
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let wanted = paths.filter(|path| path.extension().is_some_and(|ext| ext == "conf"));
        drop_ins.extend(wanted.filter_map(file));
    }
    effective(&mains, &drop_ins)
}

fn file(path: PathBuf) -> Option<ConfFile> {
    // A link to /dev/null is an empty file: it takes the place of those with its name.
    let bytes = std::fs::read(&path).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(ConfFile { path, text })
}

/// The last valid assignment in a file.
fn assigned(text: &str) -> Option<u64> {
    let joined = text.replace("\\\n", " ");
    let mut section = "";
    let mut found = None;
    for line in joined.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.split_once('=')
            && section == SECTION
            && key.trim_end() == KEY
        {
            found = span(value).or(found);
        }
    }
    found
}

/// Units of a time span, in microseconds; a bare number counts seconds.
const UNITS: [(&[&str], u64); 9] = [
    (&["usec", "us", "µs", "μs"], 1),
    (&["msec", "ms"], 1_000),
    (&["", "seconds", "second", "sec", "s"], 1_000_000),
    (&["minutes", "minute", "min", "m"], 60_000_000),
    (&["hours", "hour", "hr", "h"], 3_600_000_000),
    (&["days", "day", "d"], 86_400_000_000),
    (&["weeks", "week", "w"], 604_800_000_000),
    (&["months", "month", "M"], 2_629_800_000_000),
    (&["years", "year", "y"], 31_557_600_000_000),
];

/// A time span in systemd's form, in microseconds: `45min`, `1h 30min`, `2700`, `infinity`.
fn span(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if rest == "infinity" {
        return Some(USEC_INFINITY);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let tail = tail.trim_start();
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c.is_whitespace() || c == '-' || c == '.')
            .unwrap_or(tail.len());
        let (word, after) = tail.split_at(end);
        let (_, unit) = UNITS.iter().find(|(words, _)| words.contains(&word))?;
        total = total.checked_add(scaled(number, *unit)?)?;
        rest = after.trim_start();
    }
    Some(total)
}

/// `1.5` of a unit.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() {
        return None;
    }
    let mut usec = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in part.chars() {
        place /= 10;
        usec = usec.checked_add(u64::from(digit.to_digit(10)?) * place)?;
    }
    Some(usec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(path: &str, value: &str) -> ConfFile {
        ConfFile {
            path: path.into(),
            text: format!("[Login]\n{KEY}={value}\n"),
        }
    }

    fn says(mains: &[ConfFile], drop_ins: &[ConfFile]) -> (u64, String) {
        let said = effective(mains, drop_ins);
        let by = said.by.unwrap_or_default();
        (said.usec / 1_000_000, by.display().to_string())
    }

    #[test]
    fn the_last_name_wins_whatever_its_folder() {
        let unattended = conf("/usr/lib/x/unattended-upgrades-logind-maxdelay.conf", "30");
        let kubelet = conf("/etc/x/99-kubelet.conf", "60");
        let ours = conf("/usr/lib/x/zz-vmdrain-agent.conf", "45min");
        let bad_name = conf("/etc/x/99-vmdrain-agent.conf", "45min");
        let main = [conf("/etc/systemd/logind.conf", "10h")];
        let all = [kubelet.clone(), unattended.clone(), ours.clone()];
        assert_eq!(says(&main, &all), (2700, ours.path.display().to_string()));
        assert_eq!(
            says(&main, &[bad_name, kubelet.clone(), unattended.clone()]),
            (30, unattended.path.display().to_string()),
            "u is greater than 9"
        );
        assert_eq!(
            says(&main, &[]),
            (36_000, "/etc/systemd/logind.conf".into())
        );
        assert_eq!(says(&[], &[]), (5, String::new()));
    }

    #[test]
    fn the_first_folder_has_a_name_alone() {
        let etc = conf("/etc/x/zz.conf", "1min");
        let usr = conf("/usr/lib/x/zz.conf", "45min");
        assert_eq!(says(&[], &[etc.clone(), usr.clone()]).0, 60);
        let masked = ConfFile {
            text: String::new(),
            ..etc
        };
        assert_eq!(says(&[], &[masked, usr]), (5, String::new()));
        let mains = [
            conf("/etc/logind.conf", "abc"),
            conf("/usr/lib/logind.conf", "45min"),
        ];
        assert_eq!(
            says(&mains, &[]),
            (5, String::new()),
            "only the first one is read"
        );
    }

    #[test]
    fn what_cannot_be_read_is_no_assignment() {
        let lower = conf("/etc/x/a.conf", "7min");
        for bad in [
            "-5",
            "abc",
            "",
            "5 parsecs",
            "1..5",
            ".5",
            "5s-",
            "99999999999999999999",
        ] {
            let drop_ins = [lower.clone(), conf("/etc/x/b.conf", bad)];
            assert_eq!(says(&[], &drop_ins).0, 420, "{bad}");
        }
        let text = |text: &str| assigned(text);
        assert_eq!(text("[Manager]\nInhibitDelayMaxSec=5\n"), None);
        assert_eq!(text("InhibitDelayMaxSec=5\n"), None);
        assert_eq!(
            text("[Login]\n#InhibitDelayMaxSec=5\n; InhibitDelayMaxSec=6\n"),
            None
        );
        assert_eq!(
            text("[Login]\n InhibitDelayMaxSec = 2 \nInhibitDelayMaxSec=x\n"),
            Some(2_000_000)
        );
        assert_eq!(
            text("[Login]\nInhibitDelayMaxSec=\\\n 3\n"),
            Some(3_000_000)
        );
    }

    #[test]
    fn spans_are_read_as_systemd_reads_them() {
        for (text, seconds) in [
            ("2700", 2700.0),
            ("45min", 2700.0),
            ("45 min", 2700.0),
            ("1h 30min", 5400.0),
            ("1h30m", 5400.0),
            ("1.5h", 5400.0),
            ("500ms", 0.5),
            ("100days", 8_640_000.0),
            ("0", 0.0),
            ("2w", 1_209_600.0),
        ] {
            let usec = span(text).unwrap();
            #[allow(clippy::cast_precision_loss, reason = "small numbers of a table")]
            let read = usec as f64 / 1e6;
            assert!((read - seconds).abs() < 1e-6, "{text}: {read}");
        }
        assert_eq!(span("infinity"), Some(USEC_INFINITY));
    }

    #[test]
    fn a_host_s_files_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, value: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("[Login]\n{KEY}={value}\n")).unwrap();
        };
        assert_eq!(read(root.path()).by, None);
        write("usr/lib/systemd/logind.conf", "1min");
        assert_eq!(read(root.path()).usec, 60_000_000);
        write("etc/systemd/logind.conf.d/99-kubelet.conf", "2min");
        write(
            "usr/lib/systemd/logind.conf.d/zz-vmdrain-agent.conf",
            "45min",
        );
        write("usr/lib/systemd/logind.conf.d/zzz.conf.bak", "1s");
        let said = read(root.path());
        assert_eq!(said.usec, 2_700_000_000);
        assert!(said.by.unwrap().ends_with("zz-vmdrain-agent.conf"));
        std::os::unix::fs::symlink(
            "/dev/null",
            root.path()
                .join("etc/systemd/logind.conf.d/zz-vmdrain-agent.conf"),
        )
        .unwrap();
        assert_eq!(read(root.path()).usec, 120_000_000);
    }
}
