//! Every promise has a story, and every story that the documents name is there.
//!
//! `docs/testing.md` has a table for each table of the design (what becomes of a VM, policies, deadlines, budgets, answers, cancels),
//! `tests/scenarios/README.md` the list of faults of the field. Both are checked against the folder and against the words of the code.

use std::collections::BTreeSet;
use std::path::Path;
use vmdrain_agent::drain::policy::OnDeadline;
use vmdrain_agent::drain::ways::Way;

/// Faults of the field that are not about several hosts in turns. Numbers that are missing are used elsewhere.
const FAULTS: [u32; 49] = [
    1, 2, 4, 7, 8, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33,
    35, 36, 40, 42, 44, 48, 49, 51, 52, 53, 56, 57, 58, 59, 61, 62, 64, 66, 70, 72, 73, 76, 77, 78,
];

fn read(file: &str) -> String {
    match std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)) {
        Ok(text) => text,
        Err(why) => panic!("{file}: {why}"),
    }
}

/// The rows of the tables in a section, each as its cells.
fn rows(page: &str, section: &str) -> Vec<Vec<String>> {
    let Some((_, rest)) = page.split_once(&format!("\n## {section}\n")) else {
        panic!("the section `{section}` is not there any more");
    };
    let section = rest.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| {
        let inner = line.trim_matches('|').split(" | ");
        inner.map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows: Vec<Vec<String>> = lines.map(cells).collect();
    // The head of a table is the line before its rule.
    while let Some(at) = rows
        .iter()
        .position(|row| row.iter().any(|cell| cell == "---"))
    {
        rows.drain(at.saturating_sub(1)..=at);
    }
    rows
}

/// The words between backticks.
fn named(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Which of the named stories are no files. A folder of tests may be named as well.
fn missing<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let there = |name: &str| {
        let story = root.join(format!("tests/scenarios/{name}.toml"));
        story.is_file() || (name.starts_with("tests/") && root.join(name).exists())
    };
    names.iter().filter(|name| !there(name)).copied().collect()
}

#[test]
fn every_promise_has_a_story() {
    let page = read("docs/testing.md");
    let rows = rows(&page, "Which story shows what");
    assert!(rows.len() > 50, "only {} rows were found", rows.len());
    for row in &rows {
        for cell in row.iter().skip(1) {
            let names = named(cell);
            assert!(!names.is_empty(), "no story shows: {}", row[0]);
            assert_eq!(missing(&names), Vec::<&str>::new(), "{}", row[0]);
        }
    }
    let first: BTreeSet<&str> = rows.iter().flat_map(|row| named(&row[0])).collect();
    let words = OnDeadline::ALL.map(OnDeadline::word).into_iter();
    let ways = [Way::Migrate, Way::Shutdown, Way::Restart, Way::Leave].map(Way::word);
    for word in words.chain(ways) {
        assert!(first.contains(word), "no row is about `{word}`");
    }
}

#[test]
fn every_fault_of_the_field_has_a_story() {
    let page = read("tests/scenarios/README.md");
    let rows = rows(&page, "Faults of the field");
    let mut found = Vec::new();
    for row in &rows {
        let number = row[0].split(' ').next().and_then(|t| t.strip_prefix('T'));
        let Some(number) = number.and_then(|digits| digits.parse::<u32>().ok()) else {
            panic!("a fault without a number: {}", row[0]);
        };
        found.push(number);
        let names: Vec<&str> = named(&row[1]);
        let names: Vec<&str> = names
            .into_iter()
            .filter(|n| *n != "own_node_only")
            .collect();
        assert!(!names.is_empty(), "no story shows: {}", row[0]);
        assert_eq!(missing(&names), Vec::<&str>::new(), "{}", row[0]);
    }
    assert_eq!(found, FAULTS);

    // A story that carries a number is in the list.
    let listed: BTreeSet<&str> = rows.iter().flat_map(|row| named(&row[1])).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix('t').and_then(|rest| rest.get(..2));
        let is_fault = number.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let Some(stem) = name.strip_suffix(".toml").filter(|_| is_fault) else {
            continue;
        };
        let family = |listed: &&&str| stem.starts_with(&listed[..3]);
        assert!(
            listed.iter().any(|l| *l == stem) || listed.iter().any(|l| family(&l)),
            "{stem} is in no row"
        );
    }
}

#[test]
fn a_row_without_a_story_is_seen() {
    let page = "x\n## A\n\n| a | b |\n| --- | --- |\n| one | `no_vm` `gone` |\n| two |  |\n\n## B\n| c | `d` |\n";
    let rows = rows(page, "A");
    assert_eq!(rows.len(), 2);
    assert_eq!(missing(&named(&rows[0][1])), ["gone"]);
    assert!(named(&rows[1].get(1).cloned().unwrap_or_default()).is_empty());
}
