//! What do the packages need that only the command line knows? Man pages and shell completions, below the directory
//! given as the only argument, by install path.
//!
//! `cargo run --example pages -- packaging/generated`; `packaging/build` does it.

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use vmdrain_agent::cli::args::Args;

const NAME: &str = "vmdrain-agent";

fn main() -> Result<()> {
    let below = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| Error::other("say where to: a directory that stands for /"))?;
    let mut command = Args::command();
    let pages = folder(&below, "usr/share/man/man8")?;
    command.build();
    manual(&command, &pages)?;
    // Where zsh looks is for each distribution to say.
    for (shell, at) in [
        (
            Shell::Bash,
            "usr/share/bash-completion/completions/vmdrain-agent",
        ),
        (Shell::Zsh, "zsh/_vmdrain-agent"),
        (
            Shell::Fish,
            "usr/share/fish/vendor_completions.d/vmdrain-agent.fish",
        ),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), NAME, &mut text);
        let (into, file) = at.rsplit_once('/').unwrap_or(("", at));
        fs::write(folder(&below, into)?.join(file), text)?;
    }
    Ok(())
}

/// One page for the command and one for each that is below it and shown in the help.
fn manual(command: &Command, into: &Path) -> Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let mut page = Vec::new();
    Man::new(command.clone())
        .title(name)
        .section("8")
        .source(format!("{NAME} {}", env!("CARGO_PKG_VERSION")))
        .manual("System Administration")
        .render(&mut page)?;
    fs::write(into.join(format!("{name}.8")), page)?;
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| manual(below, into))
}

fn folder(below: &Path, path: &str) -> Result<PathBuf> {
    let folder = below.join(path);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
