//! Who may ask the agent for something: other users by polkit, other programs by their signals; and what runs at its gates.

use std::time::Duration;

use anyhow::ensure;

use crate::plan::Plan;
use crate::scene::{SOON, Scene, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "27",
        name: "other_users",
        on: ALL,
        limit: 120,
        run: other_users,
    },
    Case {
        number: "27",
        name: "maintenance_signals",
        on: ALL,
        limit: 120,
        run: maintenance_signals,
    },
];

/// Somebody without any rights.
const NOBODY: [&str; 4] = ["runuser", "-u", "nobody", "--"];

/// Everything but what goes on with a power off or reboot.
const RULE: &str = r#"polkit.addRule(function (action, subject) {
    if (action.id.indexOf("io.vmdrain.") === 0 && subject.user === "nobody" && !action.lookup("then")) {
        return polkit.Result.YES;
    }
    return polkit.Result.NOT_HANDLED;
});
"#;

fn as_nobody(scene: &Scene, words: &[&str]) -> anyhow::Result<(i32, String)> {
    let all: Vec<&str> = NOBODY.iter().chain(words).copied().collect();
    let answer = scene.host.run(&all)?;
    let text = format!("{}{}", answer.out, answer.err);
    Ok((answer.status.code().unwrap_or(-1), text))
}

/// The status is for everybody, everything else for root and whom polkit lets.
fn other_users(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(60.0), |scene| {
        let (code, text) = as_nobody(scene, &["vmdrain-agent", "status"])?;
        ensure!(code == 0, "the status as nobody: {code}: {text}");
        let commands: [(&[&str], &str); 5] = [
            (
                &["vmdrain-agent", "trigger", "--no-wait"],
                "io.vmdrain.trigger",
            ),
            (&["vmdrain-agent", "cancel"], "io.vmdrain.cancel"),
            (&["vmdrain-agent", "extend", "5m"], "io.vmdrain.extend"),
            (&["vmdrain-agent", "release"], "io.vmdrain.release"),
            (&["vmdrain-agent", "restore"], "io.vmdrain.restore"),
        ];
        for (words, action) in commands {
            let (code, text) = as_nobody(scene, words)?;
            ensure!(
                code == 4 && text.contains(action),
                "{words:?} as nobody: {code}: {text}"
            );
        }
        ensure!(
            scene.cluster.evictions().is_empty(),
            "somebody without rights has started a drain"
        );
        scene.types_well(&[
            "sh",
            "-c",
            &format!("cat >/etc/polkit-1/rules.d/40-case.rules <<'END'\n{RULE}END\n"),
        ])?;
        // polkitd reads a new rule by itself, in its own time.
        scene.wait("polkit lets nobody start a drain", SOON * 3, || {
            let (code, _) = as_nobody(scene, &["vmdrain-agent", "trigger", "--no-wait"])?;
            Ok(code == 0)
        })?;
        scene.wait_evicting()?;
        for (words, _) in [commands[2], commands[1]] {
            let (code, text) = as_nobody(scene, words)?;
            ensure!(code == 0, "{words:?} with a rule: {code}: {text}");
        }
        scene.wait_uncordoned(SOON)?;
        let (code, text) = as_nobody(scene, &["vmdrain-agent", "reboot", "--no-wait"])?;
        ensure!(
            code == 4 && text.contains("io.vmdrain.trigger"),
            "a rule that looks at `then` did not see it: {code}: {text}"
        );
        Ok("refused without a rule, let through with one, but not to reboot".into())
    })
}

/// A bridge that owns no name: root's signal counts, anybody else's does not, though both have gone when we hear of it.
fn maintenance_signals(context: &Context) -> anyhow::Result<String> {
    let entry = "[[maintenance]]\nname = \"bridge\"\nsender = \"root\"\npath = \"/io/vmdrain/Bridge\"\n\
         interface = \"io.vmdrain.Maintenance1\"\nmember = \"Announce\"\nargs = { 0 = \"maintenance\" }\naction = \"drain\"\n\
         [[maintenance]]\nname = \"ups\"\nsender = \"org.example.Ups\"\npath = \"/ups\"\n\
         interface = \"org.example.Ups1\"\nmember = \"Low\"\naction = \"drain-then-poweroff\"\n";
    let hook = "#!/bin/sh\necho \"hook for $VMDRAIN_NODE: $VMDRAIN_REASON\"\n";
    let plan = Plan::moving(3.0)
        .config(entry)
        .file("/etc/vmdrain-agent/pre-drain.d/10-say", hook);
    play(context, &plan, |scene| {
        scene.types_well(&["chmod", "755", "/etc/vmdrain-agent/pre-drain.d/10-say"])?;
        let emit = [
            "busctl",
            "emit",
            "/io/vmdrain/Bridge",
            "io.vmdrain.Maintenance1",
            "Announce",
            "s",
            "maintenance",
        ];
        scene.wait("the agent listens", SOON, || {
            let warnings = scene.status()?["warnings"].to_string();
            Ok(warnings.contains("nobody owns org.example.Ups"))
        })?;
        as_nobody(scene, &emit)?;
        as_nobody(
            scene,
            &["busctl", "emit", "/ups", "org.example.Ups1", "Low"],
        )?;
        scene.types_well(&["busctl", "emit", "/ups", "org.example.Ups1", "Low"])?;
        // Whatever these set off would be there before the answer to a question that comes after them.
        let state = scene.status()?["state"].clone();
        ensure!(state == "idle", "a stranger's signal counted: {state}");
        let typed = scene.types_well(&emit)?.typed;
        let cordoned = scene.wait_cordoned()?;
        scene.wait("the drain ends", Duration::from_secs(40), || {
            Ok(scene.status()?["state"] == "drained")
        })?;
        let reason = scene.status()?["drain"]["reason"].clone();
        ensure!(
            reason == "maintenance signal bridge from root",
            "the reason of the drain: {reason}"
        );
        scene.must_have_said("hook for")?;
        Ok(format!(
            "from the signal to the cordon {}",
            super::seconds(super::between(typed, cordoned))
        ))
    })
}
