//! Which message has an explanation in the journal's catalog (`journalctl -x`)?
//!
//! The texts are in `systemd/usr/lib/systemd/catalog/vmdrain-agent.catalog`, under the ids that stand here.

/// Reasons and their message ids. An id is for ever; it never gets another meaning.
const IDS: [(&str, &str); 35] = [
    ("NoCredentials", "861f3122bc444ea88b9db9773822fc76"),
    ("HoldMissing", "bf212f415de84722880618ccd8830520"),
    ("ShutdownAnnounced", "0365e3a10f944844a591db2b839ae7b9"),
    ("ShutdownVanished", "db35a41f704d4584a67e9f8b418f6fdb"),
    ("DrainRefused", "cb3bf23d50da4784a1dd1d2559558861"),
    ("DrainStarted", "e3c97b227dbd4f019f6dd98f71272d3d"),
    ("DrainResumed", "f662f7ed0bde476b9b1ccd66bc389079"),
    ("Drained", "5754f588266745399f7a34bc5d90df7c"),
    ("DrainCancelled", "dd0cbcab62f349efb1b5b25608e8249b"),
    ("DeadlinePassed", "d4369c70ecfb45999eae54aec8b721d5"),
    ("VmLeft", "de94d64c342f41c889852e1170939d3d"),
    ("VmBlocked", "c4c25fb49ebf47c482d53b57fbf15ecd"),
    ("CordonForeign", "24c330dcaf8a4981a410f49f13ef2a47"),
    ("NodeTrouble", "4054c7494fc84f828b1b74996305364b"),
    ("Blind", "339117b903d741329a22108ef584e8f2"),
    ("HoldReleased", "e3b14a69377041ac9892cb605c86337d"),
    ("ReleaseFailed", "0cf9acd32c624fe9ab157ada415f99b5"),
    ("LogindRefused", "6d19b05789594e949821bc1d7ead82e0"),
    ("StateFileSetAside", "a559506b0e1a4d7997cfd54aaaf3fb60"),
    ("StateFileNotWritten", "87bd4d113c284e679c778bdc469564ce"),
    ("StateDirUnusable", "42f15453bc12408d87ccb481928f9181"),
    ("StopJob", "cbb61d9735be473d90c1ee9cd4a5e677"),
    ("ShutdownScheduled", "a28a18c4656b4f41a136febb4c77849b"),
    ("HoldTrouble", "f5345824d99441f694036879be06c7af"),
    ("ProtectionLost", "272774ca397946d7a3087438bd5efe05"),
    ("OtherHolder", "357528f71e184862af30d583e833ef05"),
    ("VmStoppedByOthers", "859611c1b39b42e4951b16e6f2c617da"),
    ("FallingBack", "0968c9d1cb174cec99b73e1d17136abc"),
    ("VmStopping", "30da50687d98421aab7623122fb67a2e"),
    ("Holding", "356a48f18b6640878ac0856b018c58e3"),
    ("MigrationNotAborted", "9693283525444719bb8a0ea4cb0d0448"),
    ("VmFate", "e3d71309fbe74e389a0004713c6c8a0f"),
    ("VmPolicyBad", "4e54ebfb35704511b948e96674ea47b6"),
    ("VmNotStarted", "af086ce09a794473855948fdf3d1ce0f"),
    ("ApiUnreachable", "4caddde1632c41139c211e4b0f7f98bc"),
];

/// The `MESSAGE_ID` of a reason that the catalog explains.
pub fn message_id(reason: &str) -> Option<&'static str> {
    let (_, id) = IDS.iter().find(|(known, _)| *known == reason)?;
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.file_name().is_some_and(|name| name != "catalog.rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_id_has_its_text_and_every_text_its_id() {
        let catalog = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/systemd/usr/lib/systemd/catalog/vmdrain-agent.catalog"
        );
        let text = std::fs::read_to_string(catalog).expect("the catalog");
        let listed: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("-- "))
            .collect();
        let ours: Vec<_> = IDS.iter().map(|(_, id)| *id).collect();
        assert_eq!(listed, ours);
        assert_eq!(
            ours.iter().collect::<BTreeSet<_>>().len(),
            ours.len(),
            "an id twice"
        );
    }

    #[test]
    fn every_explained_reason_is_given_somewhere() {
        let mut files = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut files,
        );
        let texts: Vec<_> = files
            .iter()
            .map(|file| std::fs::read_to_string(file).expect("readable"))
            .collect();
        for (reason, _) in IDS {
            let literal = format!("\"{reason}\"");
            assert!(
                texts.iter().any(|text| text.contains(&literal)),
                "nobody says {reason}"
            );
        }
    }
}
