//! `doctor`: collects the facts of this host and its cluster, and shows the findings.

use super::args::{Format, Global};
use super::commands::{connect, sources};
use super::exit::Exit;
use super::failure::Failure;
use super::look::{Look, Tone};
use super::screen::Screen;
use crate::agent::{checkup, service};
use crate::bus::Client;
use crate::cluster;
use crate::config::Settings;
use crate::doctor::{ClusterFacts, Facts, Finding, Grade, Report, judge};
use crate::drain::action::HoldView;
use crate::drain::plan::Scene;
use crate::drain::policy::Consent;
use crate::host::{self, BootClock, Identity};
use std::path::Path;

/// Where the pages are.
const PAGES: &str = "/usr/share/doc/vmdrain-agent/";

/// Carries out the command.
///
/// # Errors
/// When the output cannot be written.
pub(super) async fn show(
    global: &Global,
    output: Format,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let report = judge(&Box::pin(collect(global)).await);
    let text = match output {
        Format::Table => table(&report, screen.look()),
        Format::Json => serde_json::to_string_pretty(&report).map_err(|why| {
            Failure::new(Exit::Failed, format!("cannot write JSON: {why}"), "", "")
        })?,
    };
    screen.line(text.trim_end())?;
    Ok(exit(&report))
}

/// How the command ends.
pub fn exit(report: &Report) -> Exit {
    match report.exit() {
        0 => Exit::Done,
        11 => Exit::Warnings,
        _ => Exit::Failures,
    }
}

/// Everything that can be seen from here; what cannot says why.
async fn collect(global: &Global) -> Facts {
    // A configuration that is not valid is a finding; the rest is looked at with the defaults.
    let (settings, config) = match sources(global).load() {
        Ok(loaded) => (loaded.settings, Ok(())),
        Err(why) => (
            Settings::default(),
            Err(why.to_string().replace('\n', "; ")),
        ),
    };
    let bus = global.bus.as_deref();
    let timing = settings.timing.host;
    // A stand-in on a private bus does not go by this host's files.
    let root = bus.is_none().then(|| Path::new("/"));
    let (daemon, logind, units, identity) = tokio::join!(
        daemon(global),
        host::checkup::look(bus, root, &timing),
        host::units::look(bus, &timing),
        Identity::ask(bus, &timing),
    );
    let hold = logind.as_ref().map_or_else(
        |_| HoldView::default(),
        |logind| HoldView {
            held: logind.held,
            limit: Some(logind.limit),
            limit_by: logind.limit_by.clone(),
            ..HoldView::default()
        },
    );
    Facts {
        root: nix::unistd::geteuid().is_root(),
        daemon,
        config,
        guests_never_stopped: settings.drain.allow_guest_shutdown == Consent::Never,
        logind,
        units,
        cluster: Box::pin(the_cluster(&settings, &identity, hold)).await,
        machine_id: identity.machine_id,
        system_uuid: identity.system_uuid,
    }
}

async fn daemon(global: &Global) -> Result<(String, String), String> {
    let client: Client = connect(global).await.map_err(|failure| failure.what)?;
    let status = client.status().await.map_err(|error| error.to_string())?;
    Ok((status.version, status.state))
}

async fn the_cluster(settings: &Settings, identity: &Identity, hold: HoldView) -> ClusterFacts {
    let options = service::cluster_options(settings);
    match cluster::connect(options, BootClock).await {
        Ok(connected) => {
            let policy = service::policy(settings, &connected.node_name, identity);
            let request = policy.timing.request;
            Box::pin(checkup::cluster(
                &connected,
                &Scene::at_rest(policy, hold),
                request,
            ))
            .await
        }
        Err(why) => ClusterFacts {
            unconnected: why.to_string(),
            ..ClusterFacts::default()
        },
    }
}

fn face(grade: Grade) -> (&'static str, Tone) {
    match grade {
        Grade::Ok => ("✓", Tone::Good),
        Grade::Note => ("·", Tone::Faint),
        Grade::Unknown => ("?", Tone::Busy),
        Grade::Warning => ("!", Tone::Busy),
        Grade::Failure => ("✗", Tone::Bad),
    }
}

/// For people: the findings, worst first, each with its cure.
pub fn table(report: &Report, look: Look) -> String {
    let mut text = String::new();
    let mut line = |what: &str| {
        text.push_str(what.trim_end());
        text.push('\n');
    };
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    for finding in findings {
        let (mark, tone) = face(finding.grade);
        let mark = look.paint(tone.style(), mark);
        line(&format!("{mark} {:<22} {}", finding.check, finding.says));
        if !finding.cure.is_empty() {
            line(&format!("    cure: {}", finding.cure));
        }
        if !finding.page.is_empty() && finding.grade >= Grade::Unknown {
            line(&format!("    see {PAGES}{}", finding.page));
        }
    }
    line("");
    line(&format!(
        "{} failure(s), {} warning(s), {} not known",
        report.failures, report.warnings, report.unknown
    ));
    text
}
