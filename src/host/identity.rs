//! Which machine is this, and which boot of it?

use super::clock;
use super::system1;
use super::timing::Timing;
use crate::drain::boot::Userspace;
use crate::drain::time::Mono;
use std::fs;
use std::path::Path;

/// What this host can say about itself. A field that cannot be read is empty, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// DMI product UUID in lower case; readable for root alone.
    pub system_uuid: String,
    /// Boot id with dashes, as the Node object shows it.
    pub boot_id: String,
    /// The host's name.
    pub hostname: String,
    /// Which user space of this boot runs; unknown unless systemd was asked ([`Identity::ask`]).
    pub userspace: Userspace,
}

impl Identity {
    /// Reads all of it. `VMDRAIN_BOOT_ID` (the unit passes `%b`) wins over `/proc`, which the
    /// unit's sandbox hides (`ProcSubset=pid`).
    pub fn read() -> Self {
        let hostname = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Self {
            hostname,
            ..Self::below(Path::new("/"), std::env::var("VMDRAIN_BOOT_ID").ok())
        }
    }

    /// The same, and what systemd says about this boot's user space on the bus at `bus` (`None`: the system bus).
    pub async fn ask(bus: Option<&str>, timing: &Timing) -> Self {
        Self {
            userspace: system1::userspace(bus, timing).await,
            ..Self::read()
        }
    }

    /// When this start of the host began, on `CLOCK_BOOTTIME`; its beginning when systemd does not say.
    pub fn up_since(&self) -> Mono {
        let started = self.userspace.started.map(|micros| Mono(micros / 1000));
        started.map(clock::from_monotonic).unwrap_or_default()
    }

    /// All but the host's name, from files below `root`.
    pub fn below(root: &Path, boot_id: Option<String>) -> Self {
        let first_line = |path: &str| {
            fs::read_to_string(root.join(path))
                .map(|text| text.lines().next().unwrap_or_default().trim().to_owned())
                .unwrap_or_default()
        };
        let boot_id = boot_id
            .filter(|id| !id.trim().is_empty())
            .unwrap_or_else(|| first_line("proc/sys/kernel/random/boot_id"));
        Self {
            machine_id: first_line("etc/machine-id"),
            system_uuid: first_line("sys/class/dmi/id/product_uuid").to_lowercase(),
            boot_id: dashed(boot_id.trim()),
            hostname: String::new(),
            userspace: Userspace::default(),
        }
    }
}

/// `%b` has no dashes, `/proc` and the Node object have: one form for all, so that they compare.
pub fn dashed(id: &str) -> String {
    let id = id.to_lowercase();
    if id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return format!(
            "{}-{}-{}-{}-{}",
            &id[..8],
            &id[8..12],
            &id[12..16],
            &id[16..20],
            &id[20..]
        );
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_boot_id_compare() {
        let with = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        assert_eq!(dashed(&with.replace('-', "").to_uppercase()), with);
        assert_eq!(dashed(with), with);
        assert_eq!(dashed("odd"), "odd");
    }

    #[test]
    fn reads_files_and_leaves_out_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::create_dir_all(root.path().join("sys/class/dmi/id")).unwrap();
        fs::write(root.path().join("etc/machine-id"), "abc\n").unwrap();
        fs::write(
            root.path().join("sys/class/dmi/id/product_uuid"),
            "4C4C4544-0001\n",
        )
        .unwrap();
        let seen = Identity::below(root.path(), Some(" ".into()));
        assert_eq!(seen.machine_id, "abc");
        assert_eq!(seen.system_uuid, "4c4c4544-0001");
        assert_eq!(seen.boot_id, "", "nothing below this root");
        let told = Identity::below(root.path(), Some("0".repeat(32)));
        assert_eq!(told.boot_id, "00000000-0000-0000-0000-000000000000");
    }
}
