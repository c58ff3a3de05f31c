//! `docs/configuration.md` says what the types of the configuration say: keys, defaults, types, meaning.
//!
//! One source: the comments and defaults in `src/config` (and the types that it takes from `src/drain`, `src/cluster`
//! and `src/host`); the text around the sections is `src/config/reference.md`. Nothing of it is in the binary.

mod page;
mod source;

use source::Types;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmdrain_agent::config::{Settings, Sources};

/// Rewrites the page.
const COMMAND: &str = "UPDATE_DOCS=1 cargo test --workspace --test it configuration";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    match std::fs::read_to_string(root().join(file)) {
        Ok(text) => text,
        Err(why) => panic!("{file}: {why}"),
    }
}

/// Every key with its default, as `config show` prints them.
fn defaults() -> BTreeMap<String, serde_json::Value> {
    let loaded = match Sources::default().load() {
        Ok(loaded) => loaded,
        Err(why) => panic!("{why}"),
    };
    let shown = loaded.shown().into_iter();
    shown.map(|one| (one.key, one.value)).collect()
}

/// The first line in which two texts differ, with its number.
fn difference(old: &str, new: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let at = (0..old.len().max(new.len())).find(|at| old.get(*at) != new.get(*at))?;
    let line = |lines: &[&str]| {
        lines
            .get(at)
            .map_or("(nothing)".to_owned(), |l| (*l).to_owned())
    };
    Some(format!(
        "line {}:\n  is        {}\n  should be {}",
        at + 1,
        line(&old),
        line(&new)
    ))
}

#[test]
fn the_page_says_what_the_types_say() {
    let types = Types::read(root());
    let made = match page::make(&types, &defaults(), &read("src/config/reference.md")) {
        Ok(made) => made,
        Err(why) => panic!("{why}"),
    };
    let file = "docs/configuration.md";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(file), made).expect("writable");
        return;
    }
    if let Some(difference) = difference(&read(file), &made) {
        panic!(
            "{file} is older than the configuration's types; rewrite it with\n  {COMMAND}\n{difference}"
        );
    }
}

#[test]
fn the_page_follows_comments_and_defaults() {
    let mut types = Types::default();
    let text = |word: &str| {
        format!(
            "pub struct Settings {{ /// How.\n pub a: A }}
             /// Head.\n///\n/// Intro.\n pub struct A {{ /// Which {word}.\n pub way: Way, /// Long.\n pub most: Duration }}
             #[serde(rename_all = \"kebab-case\")] pub enum Way {{ /// Far off.\n #[default] FarOff, /// KubeVirt's.\n Near }}"
        )
    };
    let defaults = |most: &str| {
        BTreeMap::from([
            ("a.way".to_owned(), "far-off".into()),
            ("a.most".to_owned(), most.into()),
        ])
    };
    types.add("", &text("way"));
    let made = page::make(&types, &defaults("1m"), "X\n\n{{sections}}\n\nY\n").expect("complete");
    let wanted = "X\n\n## `[a]`: how\n\nIntro.\n\n| key | default | type | meaning |\n| --- | --- | --- | --- |\n\
        | `a.way` | `\"far-off\"` | word | Which way. `\"far-off\"`: far off. `\"near\"`: KubeVirt's. |\n\
        | `a.most` | `\"1m\"` | duration | Long. |\n\nY\n";
    assert_eq!(difference(&made, wanted), None);

    let other = page::make(&types, &defaults("2m"), "X\n\n{{sections}}\n\nY\n").expect("complete");
    assert!(difference(&made, &other).is_some_and(|d| d.contains("`\"2m\"`")));
    let unknown = BTreeMap::from([("a.way".to_owned(), "far-off".into())]);
    assert!(page::make(&types, &unknown, "{{sections}}\n").is_err());
    let mut more = defaults("1m");
    more.insert("a.new".to_owned(), "x".into());
    let why = page::make(&types, &more, "{{sections}}\n").expect_err("a key without a comment");
    assert!(why.contains("a.new"), "{why}");
}

/// What a file of configuration comes to.
fn load(file: PathBuf) -> Settings {
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    match sources.load() {
        Ok(loaded) => loaded.settings,
        Err(why) => panic!("{why}"),
    }
}

fn load_text(text: &str) -> Settings {
    let sources = Sources {
        texts: vec![("the example".to_owned(), text.to_owned())],
        ..Sources::default()
    };
    match sources.load() {
        Ok(loaded) => loaded.settings,
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn every_example_of_the_page_is_valid() {
    let page = read("docs/configuration.md");
    let mut examples = 0;
    for example in page.split("```toml\n").skip(1) {
        let (example, _) = example.split_once("```").expect("its end");
        assert_ne!(load_text(example), Settings::default());
        examples += 1;
    }
    assert!(examples > 0, "the page has no example any more");
}

/// The packaged file changes nothing, and its commented keys show the defaults.
#[test]
fn the_packaged_file_is_valid_and_shows_the_defaults() {
    let file = "packaging/etc/config.toml";
    assert_eq!(load(root().join(file)), Settings::default());

    let commented = |line: &str| {
        let bare = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
        bare.unwrap_or(line).to_owned()
    };
    let uncommented: Vec<String> = read(file).lines().map(commented).collect();
    let keys = uncommented
        .iter()
        .filter(|line| line.contains(" = "))
        .count();
    assert!(keys >= 3, "{file} shows no keys any more");
    assert_eq!(load_text(&uncommented.join("\n")), Settings::default());
}

/// The examples beside it: each can be dropped into `config.d` as it is.
#[test]
fn the_packaged_examples_are_valid() {
    let mut found = 0;
    let mut folders = vec![root().join("packaging/examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("examples").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "toml") {
                assert_ne!(
                    load(path.clone()),
                    Settings::default(),
                    "{}",
                    path.display()
                );
                found += 1;
            }
        }
    }
    assert!(
        found > 0,
        "packaging/examples has no configuration any more"
    );
}
