//! What the reader accepts and how it refuses the rest.

use std::path::Path;
use std::time::Duration;

use super::event::Do;
use super::event::host::HostDo;
use super::expect::{Bounds, What, When};
use super::words::Outcome;
use super::{Rule, Scenario};

fn read(text: &str) -> Result<Scenario, String> {
    Scenario::parse(Path::new("story.toml"), text).map_err(|problem| problem.to_string())
}

fn refusal(text: &str) -> String {
    match read(text) {
        Ok(_) => "accepted".into(),
        Err(problem) => problem,
    }
}

const SMALLEST: &str = "name = \"x\"\n[[node]]\nname = \"n2\"\n[[vm]]\nname = \"db\"\n";

#[test]
fn five_lines_are_a_story() {
    let story = read(SMALLEST).unwrap();
    assert_eq!(story.nodes[0].name, "n1");
    assert_eq!(story.vms[0].node.as_deref(), Some("n1"));
    assert!(matches!(story.timeline[0].what, Do::Host(HostDo::Down(..))));
}

#[test]
fn everything_of_the_example() {
    let story = read(
        r#"
name  = "poweroff moves two VMs"
about = "The plain case."
issue = "kubevirt/kubevirt#0000"
allow = ["dirty_kill"]
[kubevirt]
version = "1.6"
priority_queue = false
[host]
node = "n1"
systemd = 252
inhibit_delay_max = "45m"
rights = ["list virtualmachineinstances"]
[agent]
drain.deadline = "30m"
[[node]]
name = "n2"
[[vm]]
name = "db"
count = 3
migration = ["fail:source node reported migration failed", "ok"]
migratable = "DisksNotLiveMigratable"
source_pod_lingers = "never"
[[pod]]
name = "web-0"
owner = "StatefulSet/web"
recreated = "same_name:n2"
[[pdb]]
name = "pool-pdb"
min_available = "75%"
selector = { "kubevirt.io/vmpool" = "my-pool" }
[[at]]
time = "10s"
do = "agent.trigger"
then = "reboot"
save = "x"
[[at]]
time = "0s"
do = "api.answer"
verb = "create"
status = 429
times = 2
until = "30s"
[[expect]]
by = "1m30s"
vm = "db-1"
running_on = "n2"
outcome = "migrated"
[[expect]]
requests = { verb = "create", subresource = "eviction" }
max = 3
[[expect]]
saved = "x"
json = { "drain.exit" = 0 }
"#,
    )
    .unwrap();
    assert_eq!(story.allow, [Rule::DirtyKill]);
    assert_eq!(story.vms[0].names(), ["db-0", "db-1", "db-2"]);
    assert_eq!(story.vms[0].migration[1], Outcome::Ok);
    assert_eq!(story.timeline[0].name, "api.answer");
    assert_eq!(
        story.expectations[0].when,
        When::By(Duration::from_secs(90))
    );
    assert!(story.expectations[0].text.contains("vm = \"db-1\""));
    assert!(matches!(
        story.expectations[1].what,
        What::Requests(
            _,
            Bounds {
                min: 0,
                max: Some(3)
            }
        )
    ));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn refusals_name_the_line() {
    let after = |lines: &str| refusal(&format!("{SMALLEST}{lines}"));
    let cases = [
        (
            after("colour = 1\n"),
            "story.toml:6: unknown field `colour`",
        ),
        (
            after("[cluster]\nx = 1\n"),
            "story.toml:6: unknown key `cluster`",
        ),
        (
            after("memory = \"8gb\"\n"),
            "story.toml:6: '8gb' is not a size",
        ),
        (
            after("rate = \"1Gi\"\n"),
            "story.toml:6: '1Gi' is not a rate",
        ),
        (
            after("start_up = 5\n"),
            "story.toml:6: invalid type: integer",
        ),
        (
            after("migration = [\"works\"]\n"),
            "story.toml:6: 'works' is not an outcome",
        ),
        (
            after("owner = \"vm/Sometimes\"\n"),
            "story.toml:6: 'vm/Sometimes' is not an owner",
        ),
        (
            after("node = \"n7\"\n"),
            "story.toml:4: there is no node `n7`",
        ),
        (
            after("[[vm]]\nname = \"db\"\n"),
            "story.toml:6: there are two of vm `db`",
        ),
        (
            after("[[at]]\ntime = \"1s\"\n"),
            "story.toml:6: the event has no `do`",
        ),
        (
            after("[[at]]\ntime = \"1s\"\ndo = \"host.explode\"\n"),
            "story.toml:8: there is no event `host.explode`, only host.poweroff",
        ),
        (
            after("[[at]]\ntime = \"1 s\"\ndo = \"host.halt\"\n"),
            "story.toml:7: '1 s' is not a duration",
        ),
        (
            after("[[at]]\ndo = \"host.halt\"\nforce = true\n"),
            "story.toml:8: host.halt: unknown field `force`",
        ),
        (
            after("[[at]]\ntime = \"9s\"\ndo = \"api.down\"\nuntil = \"5s\"\n"),
            "story.toml:8: api.down: `until` is a moment",
        ),
        (
            after("[[at]]\ndo = \"host.cancel_schedule\"\n"),
            "story.toml:7: host.cancel_schedule: nothing was scheduled",
        ),
        (
            after("[[at]]\ndo = \"vm.stop\"\nvm = \"web\"\n"),
            "story.toml:7: there is no vm `web` at that time",
        ),
        (
            after("[agent]\ndrain.speed = 3\n"),
            "story.toml:6: [agent]: unknown field `speed`",
        ),
        (
            after("[[at]]\ndo = \"api.hang\"\nresource = \"cats\"\n"),
            "story.toml:7: api.hang: the API server has no `cats`",
        ),
        (
            after("[[expect]]\nweather = \"fine\"\n"),
            "story.toml:7: unknown field `weather`",
        ),
        (
            after("[[expect]]\nat = \"1s\"\n"),
            "story.toml:6: nothing is expected",
        ),
        (
            after("[[expect]]\nhold = true\nstate = \"idle\"\n"),
            "story.toml:6: compare one thing",
        ),
        (
            after("[[expect]]\nat = \"1s\"\nby = \"2s\"\nhold = true\n"),
            "story.toml:6: give one of `at`",
        ),
        (
            after("[[expect]]\nstate = \"busy\"\n"),
            "story.toml:6: there is no state `busy`",
        ),
        (
            after("[[expect]]\nhold = true\nmin = 1\n"),
            "story.toml:6: `min` does not go with `hold`",
        ),
        (
            after("[[expect]]\nsaved = \"y\"\nexit = 0\n"),
            "story.toml:6: no event saves",
        ),
        (
            refusal("[[vm]]\nname = \"a\"\n"),
            "story.toml:1: the key `name` is missing",
        ),
        (
            refusal("name = \"x\"\nallow = [\"all\"]\n"),
            "story.toml:2: there is no rule `all`",
        ),
        (
            refusal("name = \"x\"\n[kubevirt]\nversion = \"2.0\"\n"),
            "story.toml:3: '2.0' is not a version",
        ),
        (refusal("name = \"x\n"), "story.toml:1:"),
    ];
    for (got, wanted) in cases {
        assert!(got.starts_with(wanted), "\n  {got}\nis not\n  {wanted}…");
    }
}

#[test]
fn a_vm_that_comes_later_is_known_from_then_on() {
    let story = format!(
        "{SMALLEST}[[at]]\ntime = \"5s\"\ndo = \"vm.create\"\nname = \"late\"\n[[expect]]\nvm = \"late\"\nrunning_on = \"n2\"\n"
    );
    assert!(read(&story).is_ok());
}
