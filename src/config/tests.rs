//! Every kind of mistake names file and key; layers; environment; reload; the faster copy.

use super::*;
use crate::drain::others::Scope;
use crate::drain::policy::{Consent, Pacing, Policy, Timing};
use crate::drain::ways::Way;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn text(toml: &str) -> Sources {
    Sources {
        texts: vec![("the.toml".into(), toml.into())],
        ..Sources::default()
    }
}

fn complaint(toml: &str) -> String {
    text(toml).load().expect_err(toml).to_string()
}

fn write(root: &Path, at: &str, toml: &str) {
    let path = root.join(at);
    fs::create_dir_all(path.parent().expect("below the root")).expect("directory");
    fs::write(path, toml).expect("file");
}

/// A line of a file, the key in the complaint, words that must be in it.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "drain.deadlin = '5m'",
        "drain.deadlin",
        "did you mean drain.deadline",
    ),
    (
        "budget.request_timeout = '5s'",
        "budget.request_timeout",
        "did you mean cluster.request_timeout",
    ),
    (
        "drian.pacing = 'all'",
        "drian.pacing",
        "did you mean drain.pacing",
    ),
    ("drain.x = 1", "drain.x", "config show"),
    ("xyz.q = 1", "xyz.q", "unknown key"),
    ("[nonsense]", "nonsense", "unknown key"),
    ("drain.pacing = 5", "drain.pacing", "integer `5`"),
    ("drain.pacing = 'fast'", "drain.pacing", "`slots` or `all`"),
    (
        "cluster.node_name = true",
        "cluster.node_name",
        "boolean `true`",
    ),
    (
        "cluster.node_name = ['n1']",
        "cluster.node_name",
        "sequence",
    ),
    (
        "drain.deadline = 'soon'",
        "drain.deadline",
        "'soon' is not a duration",
    ),
    (
        "drain.deadline = false",
        "drain.deadline",
        "a duration such as 30m",
    ),
    ("drain.deadline = -1", "drain.deadline", "negative"),
    ("drain.deadline = 0", "drain.deadline", "zero"),
    (
        "budget.margin = '5 parsecs'",
        "budget.margin",
        "is not a duration",
    ),
    (
        "budget.migration_rate = '1Gi'",
        "budget.migration_rate",
        "1Gi/s",
    ),
    (
        "budget.migration_rate = '0Gi/s'",
        "budget.migration_rate",
        "zero",
    ),
    (
        "budget.migration_rate = 5",
        "budget.migration_rate",
        "integer `5`",
    ),
    (
        "cluster.request_timeout = '0s'",
        "cluster.request_timeout",
        "zero",
    ),
    (
        "cluster.request_timeout = '18446744073709540000s'",
        "cluster.request_timeout",
        "longer than 10 years",
    ),
    (
        "cluster.kubeconfig = 'here'",
        "cluster.kubeconfig",
        "absolute path",
    ),
    (
        "cluster.node_name = 'N_1'",
        "cluster.node_name",
        "not the name of a Node",
    ),
    ("host.state_dir = 'state'", "host.state_dir", "absolute"),
    ("host.logind_dir = 'run'", "host.logind_dir", "absolute"),
    ("log.level = 'loud'", "log.level", "'loud'"),
    (
        "log.level = 'vmdrain_agent[drain]=debug'",
        "log.level",
        "spans",
    ),
    ("timing.linger = 'x'", "timing.linger", "duration"),
    (
        "timing.lingr = '1s'",
        "timing.lingr",
        "did you mean timing.linger",
    ),
    (
        "timing.retry_first = '1m'",
        "timing.retry_first",
        "timing.retry_most",
    ),
    (
        "timing.request = '1s'",
        "timing.request",
        "cluster.request_timeout",
    ),
    ("drain = 5", "drain", "section, not a value"),
    (
        "drain.deadline.most = '1m'",
        "drain.deadline.most",
        "drain.deadline is a value",
    ),
];

#[test]
fn every_mistake_names_the_file_and_the_key() {
    for (toml, key, words) in MISTAKES {
        let said = complaint(toml);
        assert!(
            said.starts_with(&format!("the.toml: {key}: ")),
            "{toml}: {said}"
        );
        assert!(said.contains(words), "{toml}: {said}");
    }
}

#[test]
fn what_is_planned_is_refused_with_not_yet() {
    let table = [
        ("host.wall = true", "host.wall"),
        ("coordination.slots = 1", "coordination.slots"),
        ("report.keep = 5", "report.keep"),
        ("metrics.listen = 'unix:/x'", "metrics.listen"),
    ];
    for (toml, key) in table {
        let said = complaint(toml);
        assert!(
            said.starts_with(&format!("the.toml: {key}: not yet: ")),
            "{toml}: {said}"
        );
    }
}

#[test]
fn broken_toml_names_file_and_place() {
    let said = complaint("[drain\npacing = 'all'");
    assert!(said.starts_with("the.toml: is not TOML: "), "{said}");
    assert!(said.contains("line 1"), "{said}");
}

#[test]
fn all_mistakes_of_all_layers_are_told_at_once() {
    let sources = Sources {
        texts: vec![
            ("a.toml".into(), "drain.pacing = 'x'\nlog.lvl = 'y'".into()),
            ("b.toml".into(), "drain.scope = 'z'".into()),
        ],
        options: vec!["drain.deadline=never".into()],
        ..Sources::default()
    };
    let error = sources.load().expect_err("four mistakes");
    let found: Vec<_> = error
        .problems
        .iter()
        .map(|p| (p.origin.as_str(), p.key.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("a.toml", "drain.pacing"),
            ("a.toml", "log.lvl"),
            ("b.toml", "drain.scope"),
            ("--set", "drain.deadline"),
        ]
    );
}

#[test]
fn later_layers_win_and_every_value_keeps_its_origin() {
    let root = tempfile::tempdir().expect("directory");
    let at = |name: &str, n: u32| {
        write(
            root.path(),
            name,
            &format!("drain.deadline = '{n}m'\ntiming.linger = '{n}s'"),
        );
    };
    at("usr/lib/vmdrain-agent/config.d/90-a.toml", 1);
    let mut sources = Sources {
        root: Some(root.path().to_owned()),
        ..Sources::default()
    };
    let deadline = |sources: &Sources| {
        let loaded = sources.load().expect("good");
        (
            loaded
                .settings
                .drain
                .deadline
                .map_or(0, |d| d.as_secs() / 60),
            loaded.origin("drain.deadline").to_owned(),
        )
    };
    let path = |name: &str| root.path().join(name).display().to_string();
    for (n, name) in [
        (1, "usr/lib/vmdrain-agent/config.d/90-a.toml"),
        (2, "etc/vmdrain-agent/config.toml"),
        (3, "etc/vmdrain-agent/config.d/10-a.toml"),
        (4, "etc/vmdrain-agent/config.d/20-a.toml"),
        (5, "run/vmdrain-agent/config.d/00-a.toml"),
    ] {
        at(name, n);
        assert_eq!(deadline(&sources), (u64::from(n), path(name)));
    }
    sources.environment = vec![("VMDRAIN_DRAIN__DEADLINE".into(), "6m".into())];
    assert_eq!(
        deadline(&sources),
        (6, "environment variable VMDRAIN_DRAIN__DEADLINE".to_owned())
    );
    sources.options = vec!["drain.deadline=7m".into()];
    assert_eq!(deadline(&sources), (7, "--set".to_owned()));
    let loaded = sources.load().expect("good");
    assert_eq!(loaded.settings.timing.core.linger, Duration::from_secs(5));
    assert_eq!(loaded.origin("drain.pacing"), "default");
    assert_eq!(loaded.files.len(), 5);
}

#[test]
fn other_files_and_other_variables_are_left_alone() {
    let root = tempfile::tempdir().expect("directory");
    write(
        root.path(),
        "etc/vmdrain-agent/config.d/.hidden.toml",
        "x = 1",
    );
    write(
        root.path(),
        "etc/vmdrain-agent/config.d/10.toml.bak",
        "x = 1",
    );
    let sources = Sources {
        root: Some(root.path().to_owned()),
        environment: vec![
            ("VMDRAIN_DRAIN_ID".into(), "given to hooks".into()),
            ("PATH".into(), "/bin".into()),
        ],
        ..Sources::default()
    };
    let loaded = sources.load().expect("nothing of ours");
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.files.is_empty());
}

#[test]
fn a_wrong_variable_or_option_is_named() {
    let sources = |environment: &[(&str, &str)], options: &[&str]| Sources {
        environment: environment
            .iter()
            .map(|(n, v)| ((*n).into(), (*v).into()))
            .collect(),
        options: options.iter().map(|o| (*o).into()).collect(),
        ..Sources::default()
    };
    let said = |s: Sources| s.load().expect_err("wrong").to_string();
    let unknown = said(sources(&[("VMDRAIN_DRAIN__SPEED", "1")], &[]));
    assert!(
        unknown.starts_with("environment variable VMDRAIN_DRAIN__SPEED: drain.speed: unknown key"),
        "{unknown}"
    );
    assert!(said(sources(&[], &["deadline=5m"])).contains("section.key=value"));
    assert!(said(sources(&[], &["drain.deadline"])).contains("section.key=value"));
    let number_like = sources(&[("VMDRAIN_CLUSTER__NODE_NAME", "0123")], &[]);
    let loaded = number_like.load().expect("a name of digits");
    assert_eq!(loaded.settings.cluster.node_name, "0123");
}

#[test]
fn a_file_that_was_asked_for_must_exist() {
    let root = tempfile::tempdir().expect("directory");
    let missing = root.path().join("missing.toml");
    let said = Sources::host(Some(&missing), vec![])
        .load()
        .expect_err("missing")
        .to_string();
    assert!(said.starts_with(&missing.display().to_string()), "{said}");
    assert!(said.contains("cannot be read"), "{said}");
}

#[test]
fn a_bad_reload_keeps_the_old_settings() {
    let root = tempfile::tempdir().expect("directory");
    let file = "etc/vmdrain-agent/config.toml";
    write(root.path(), file, "drain.pacing = 'all'");
    let mut live = Live::open(Sources {
        root: Some(root.path().to_owned()),
        ..Sources::default()
    })
    .expect("good");
    write(root.path(), file, "drain.pacing = 'nonsense'");
    let before = live.current();
    assert!(live.reload().is_err());
    assert_eq!(live.current(), before);
    assert_eq!(live.current().settings.drain.pacing, Pacing::All);

    write(root.path(), file, "log.level = 'debug'");
    let changed = live.reload().expect("good again");
    assert_eq!(changed, ["drain.pacing", "log.level"]);
    assert_eq!(live.current().settings.drain.pacing, Pacing::Slots);
    assert!(live.reload().expect("good").is_empty());
}

#[test]
fn the_defaults_are_the_policy_that_the_core_assumes() {
    assert_eq!(Settings::default().policy("n1"), Policy::for_node("n1"));
}

#[test]
fn every_setting_of_a_drain_reaches_the_policy() {
    let loaded = text(
        "drain = { pacing = 'all', deadline = '10m', allow_guest_shutdown = 'never', on_foreign_uncordon = 'abort', skip = ['app=db'], scope = 'all-pods', allow_empty_dir = true, allow_unmanaged_pods = true, order = [{ name = 'db-*', priority = 10 }] }
         gates.volume_attachments = '20s'
         policy = { default = 'shutdown', rule = [{ name = 'db-*', policy = 'leave', deadline = '5m' }] }
         budget = { migration_rate = '500Mi/s', margin = '5s' }
         cluster.request_timeout = '3s'
         timing.linger = '7s'",
    )
    .load()
    .expect("good");
    let policy = loaded.settings.policy("n1");
    assert_eq!(policy.pacing, Pacing::All);
    assert_eq!(policy.deadline, Some(Duration::from_secs(600)));
    assert_eq!(policy.consent, Consent::Never);
    assert_eq!(policy.migration_rate, 500 << 20);
    assert_eq!(policy.margin, Duration::from_secs(5));
    assert_eq!(policy.timing.request, Duration::from_secs(3));
    assert_eq!(policy.timing.linger, Duration::from_secs(7));
    assert_eq!(policy.timing.ask_again, Timing::default().ask_again);
    assert_eq!(policy.ways.default, Way::Shutdown);
    assert_eq!(policy.ways.rules[0].policy, Some(Way::Leave));
    assert_eq!(
        policy.ways.rules[0].deadline,
        Some(Duration::from_secs(300))
    );
    assert_eq!(policy.ways.skip[0].to_string(), "app=db");
    let others = &policy.others;
    assert_eq!(others.scope, Scope::AllPods);
    assert!(others.empty_dir && others.unmanaged);
    assert_eq!((others.order[0].priority, others.skip.len()), (10, 1));
    assert_eq!(policy.volume_wait, Duration::from_secs(20));
}

#[test]
fn rules_for_vms_that_make_no_sense_are_told() {
    for (toml, words) in [
        (
            "[[policy.rule]]\npolicy = 'leave'",
            "policy.rule: number 1 selects every VM",
        ),
        (
            "[[policy.rule]]\nname = 'db'",
            "policy.rule: number 1 says nothing",
        ),
        (
            "[[policy.rule]]\nname = 'db'\npolicy = 'stop'",
            "policy.rule: unknown variant `stop`",
        ),
        (
            "[[policy.rule]]\nnames = 'db'",
            "policy.rule: unknown field `names`",
        ),
        (
            "[[drain.order]]\npriority = 1",
            "drain.order: number 1 selects every pod",
        ),
        (
            "drain.skip = ['a b']",
            "drain.skip: 'a b' is not a label selector",
        ),
    ] {
        let said = complaint(toml);
        assert!(said.contains(words), "{toml}: {said}");
    }
}

#[test]
fn a_written_file_reads_back_as_the_same_settings() {
    let loaded = text(
        "drain.deadline = '1h30m'\nbudget.migration_rate = '1.5Gi/s'\ntiming.linger = 0.25\ntiming.cluster.watch = '5s'
drain.skip = ['app=db,!x']\n[[policy.rule]]\nnamespace = 'shop'\nlabels = { tier = 'db' }\npolicy = 'restart'\ndeadline = '90s'",

    )
    .load()
    .expect("good");
    let written = loaded.settings.to_toml().expect("TOML");
    assert!(written.contains("deadline = \"1h30m\""), "{written}");
    assert!(written.contains("linger = \"250ms\""), "{written}");
    assert_eq!(
        text(&written).load().expect("good").settings,
        loaded.settings
    );
    let third = Settings::default().scaled(3.0).expect("scaled");
    let written = third.to_toml().expect("TOML");
    assert_eq!(text(&written).load().expect("good").settings, third);
}

#[test]
fn a_faster_world_divides_every_duration() {
    let slow = text("drain.deadline = '1h'\ntiming.host.limit_poll = '60s'")
        .load()
        .expect("good")
        .settings;
    let fast = slow.scaled(10.0).expect("scaled");
    let (before, after) = (keys::leaves(&slow.tree()), keys::leaves(&fast.tree()));
    let mut durations = 0;
    for (key, value) in before {
        let span = |value: &serde_json::Value| {
            crate::drain::policy::seconds::parse(value.as_str().unwrap_or_default()).ok()
        };
        let Some(span_before) = span(&value) else {
            continue;
        };
        let span_after = span(&after[&key]).expect("still a duration");
        assert_eq!(span_after, span_before / 10, "{key}");
        durations += 1;
    }
    assert!(durations > 10, "{durations}");
    assert_eq!(fast.budget.rate(), 10 << 30);
    assert!(slow.scaled(0.0).is_err() && slow.scaled(f64::NAN).is_err());
}

#[test]
fn durations_and_rates_are_written_as_they_are_read() {
    use crate::drain::policy::seconds;
    for written in [
        "0s",
        "1s",
        "250ms",
        "1m30s",
        "1h",
        "26h1s",
        "4.285714286s",
        "0.0001s",
    ] {
        let span = seconds::parse(written).expect(written);
        assert_eq!(values::span_text(span), written);
    }
    for written in ["1Gi/s", "1536Mi/s", "1G/s", "7/s", "1025/s"] {
        assert_eq!(
            values::rate_text(values::parse_rate(written).expect(written)),
            written
        );
    }
    assert_eq!(values::parse_rate("1.5Ki/s"), Ok(1536));
    for bad in [
        "",
        "/s",
        "Gi/s",
        "-1Gi/s",
        "1Gi",
        "1.2.3/s",
        "99999999Ti/s",
        "1 Gi/s",
    ] {
        assert!(values::parse_rate(bad).is_err(), "{bad}");
    }
}

/// An entry, with one line replaced or added.
fn entry(change: &str) -> String {
    let mut lines = vec![
        "name = 'ups'",
        "sender = 'org.freedesktop.UPower'",
        "path = '/org/freedesktop/UPower'",
        "interface = 'org.freedesktop.DBus.Properties'",
        "member = 'PropertiesChanged'",
        "action = 'drain'",
    ];
    let key = change.split(' ').next().unwrap_or_default();
    lines.retain(|line| line.split(' ').next() != Some(key));
    lines.push(change);
    format!("[[maintenance]]\n{}\n", lines.join("\n"))
}

#[test]
fn a_wrong_maintenance_entry_is_named_with_its_key() {
    let table = [
        ("name = ''", "name: has to be 1 to 64"),
        (
            "bus = 'session'",
            "unknown variant `session`, expected `system`",
        ),
        (
            "sender = 'UPower'",
            "sender: 'UPower' is neither \"root\" nor a name on the bus",
        ),
        ("sender = ':1.5'", "sender: ':1.5' is neither"),
        ("sender = 'root'", "io.vmdrain.Maintenance1 alone"),
        ("path = 'org/x'", "path: 'org/x' is no object path"),
        ("interface = 'x'", "interface: 'x' is no interface"),
        ("member = 'a.b'", "member: 'a.b' is no name of a signal"),
        (
            "args = { x = true }",
            "args: 'x' is no number of an argument",
        ),
        ("args = { '1.' = true }", "args: '1.' is no number"),
        (
            "args = { 0 = { a = 1 } }",
            "args: '0' has to be a text, a number",
        ),
        ("args = { 0 = [] }", "args: '0' has to be a text, a number"),
        ("action = 'halt'", "unknown variant `halt`"),
        ("deadline = 'soon'", "'soon' is not a duration"),
        ("deadline = '0s'", "deadline: is zero"),
        ("on_deadline = 'pray'", "unknown variant `pray`"),
        ("colour = 'red'", "unknown field `colour`"),
    ];
    for (change, words) in table {
        let said = complaint(&entry(change));
        assert!(
            said.starts_with("the.toml: maintenance: entry 1 (\""),
            "{change}: {said}"
        );
        assert!(said.contains(words), "{change}: {said}");
    }
    let said = complaint("[[maintenance]]\nname = 'ups'");
    assert!(said.contains("entry 1 (\"ups\"): missing field"), "{said}");
    assert!(complaint("maintenance = 5").contains("list of tables"));
    let twice = entry("name = 'ups'").repeat(2);
    assert!(complaint(&twice).contains("entry 2 (\"ups\"): name: there are two"));
    let timed = entry("action = 'cancel'") + "deadline = '5m'";
    assert!(complaint(&timed).contains("are for a drain"));
}

#[test]
fn entries_of_all_files_count_and_one_of_the_same_name_replaces() {
    let sources = Sources {
        texts: vec![
            ("a.toml".into(), entry("deadline = '1m'")),
            ("b.toml".into(), entry("name = 'updates'")),
            ("c.toml".into(), entry("deadline = '2m'")),
        ],
        ..Sources::default()
    };
    let loaded = sources.load().expect("good");
    let all: Vec<_> = loaded
        .settings
        .maintenance
        .iter()
        .map(|e| (e.name.as_str(), e.deadline.map(|d| d.as_secs())))
        .collect();
    assert_eq!(all, [("ups", Some(120)), ("updates", None)]);
    assert_eq!(loaded.origin("maintenance"), "a.toml, b.toml, c.toml");
    let written = loaded.settings.to_toml().expect("TOML");
    assert_eq!(
        text(&written).load().expect("good").settings,
        loaded.settings
    );
    let fast = loaded.settings.scaled(60.0).expect("scaled");
    assert_eq!(fast.maintenance[0].deadline, Some(Duration::from_secs(2)));
}

#[test]
fn every_key_is_shown_with_its_origin() {
    let loaded = text("drain.pacing = 'all'").load().expect("good");
    let shown = loaded.shown();
    assert_eq!(
        shown.iter().map(|s| &s.key).collect::<Vec<_>>(),
        keys::defaults().keys().collect::<Vec<_>>()
    );
    for one in shown {
        let expected = if one.key == "drain.pacing" {
            "the.toml"
        } else {
            "default"
        };
        assert_eq!(one.origin, expected, "{}", one.key);
    }
}
