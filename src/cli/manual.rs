//! What do the man pages say? The same as `--help`, one page for each command; the packages contain them.

use super::args::Args;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::path::Path;

/// Writes the pages into `folder`, which exists.
pub(super) fn write(folder: &Path) -> std::io::Result<()> {
    let mut command = Args::command();
    // Gives the commands below their full names.
    command.build();
    page(&command, folder)
}

/// The page of `command`, and of each below it that the help shows.
fn page(command: &Command, folder: &Path) -> std::io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let mut text = Vec::new();
    Man::new(command.clone())
        .title(name)
        .section("8")
        .source(concat!("vmdrain-agent ", env!("CARGO_PKG_VERSION")))
        .manual("System Administration")
        .render(&mut text)?;
    std::fs::write(folder.join(format!("{name}.8")), text)?;
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| page(below, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_of_the_help_has_a_page_under_its_full_name() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        for name in [
            "vmdrain-agent.8",
            "vmdrain-agent-trigger.8",
            "vmdrain-agent-config-show.8",
        ] {
            let page = read(name).unwrap();
            let title = name.strip_suffix(".8").unwrap();
            assert!(page.contains(&format!(".TH {title} 8")), "{page}");
        }
        assert!(read("vmdrain-agent.8").unwrap().contains("Exit codes"));
        assert!(read("vmdrain-agent-man.8").is_err(), "hidden from people");
    }
}
