//! What is measured in which order? First what needs a quiet machine, then the drains, which last minutes and are run side by side.

use std::time::Duration;

use futures_util::future::{join, try_join_all};
use futures_util::try_join;

use super::drains::{self, Case, Drain};
use super::figures;
use super::growth::{self, Beginning};
use super::ideal::SetUp;
use super::idle::{self, Idle};
use super::latency::{self, Latencies};
use super::release::{self, Releases};
use super::report::Report;
use super::{Options, Part, Programs};

/// How often, how long, how many.
struct Amounts {
    latencies: u64,
    releases: u64,
    peers: u32,
    set_ups: u64,
    sizes: &'static [usize],
    idle: Duration,
    cases: Vec<(&'static str, Case, f64)>,
    mixed: Case,
    long: Case,
}

impl Amounts {
    fn full() -> Self {
        Self {
            latencies: 30,
            releases: 30,
            peers: 10,
            set_ups: 10,
            sizes: &[10, 100, 1000],
            idle: Duration::from_secs(180),
            cases: vec![
                ("10 VMs × 20 s, KubeVirt 1.7", Case::even(7, 10, 20), 8.0),
                ("10 VMs × 20 s, KubeVirt 1.8", Case::even(8, 10, 20), 8.0),
                ("10 VMs × 6 s, KubeVirt 1.7", Case::even(7, 10, 6), 10.0),
            ],
            mixed: Case::mixed(50, &[2, 6, 3, 10, 4], 2),
            long: Case {
                speed: 4.0,
                ..Case::mixed(50, &[6, 20, 12, 32, 10], 5)
            },
        }
    }

    fn quick() -> Self {
        Self {
            latencies: 6,
            releases: 6,
            peers: 4,
            set_ups: 4,
            sizes: &[10, 100],
            idle: Duration::from_secs(40),
            cases: vec![("6 VMs × 6 s, KubeVirt 1.7", Case::even(7, 6, 6), 10.0)],
            mixed: Case::mixed(10, &[2, 6, 3, 8, 4], 2),
            long: Case {
                speed: 10.0,
                ..Case::mixed(50, &[6, 20, 12, 32, 10], 5)
            },
        }
    }
}

/// The three drains of one case.
pub(super) struct Compared {
    /// What it is called.
    pub(super) name: String,
    /// How much shorter than kubectl's it shall be, in percent.
    pub(super) shorter: f64,
    /// The shortest possible one, in seconds.
    pub(super) shortest: f64,
    /// The agent with its defaults.
    pub(super) agent: Drain,
    /// The agent with `drain.pacing = "all"`.
    pub(super) all: Drain,
    /// kubectl.
    pub(super) kubectl: Drain,
}

/// Everything that was measured; a part that was not asked for is empty.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) latencies: Option<Latencies>,
    pub(super) releases: Option<Releases>,
    pub(super) growth: Vec<(usize, Beginning, Beginning)>,
    pub(super) idle: Option<Idle>,
    /// By case; the last one is the mixed one.
    pub(super) drains: Vec<Compared>,
    /// The agent's drain of ten minutes, and the shortest possible one.
    pub(super) long: Option<(Drain, f64)>,
    pub(super) binary: u64,
}

/// Measures all and judges.
pub(super) async fn carry_out(
    programs: &Programs,
    options: &Options,
    version: &str,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Report> {
    let amounts = if options.quick {
        Amounts::quick()
    } else {
        Amounts::full()
    };
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let mut about = vec![
        format!(
            "agent {} against kubectl {version} ({}), seed {}{}",
            programs.agent.display(),
            programs.kubectl.display(),
            programs.seed,
            if options.quick { ", quick" } else { "" }
        ),
        format!("load of the machine at the start: {}", load()),
    ];
    let mut measured = Measured {
        binary: std::fs::metadata(&programs.agent)?.len(),
        ..Measured::default()
    };
    let mut failed = Vec::new();
    if wanted(Part::Signal) {
        tell("latencies: 100 VMs, signal to cordon and evictions");
        let latencies = latency::measure(programs, amounts.latencies).await;
        measured.latencies = kept(latencies, &mut failed);
    }
    if wanted(Part::Release) {
        tell("release: last VM gone to lock released");
        let releases = release::measure(programs, amounts.releases, amounts.peers).await;
        measured.releases = kept(releases, &mut failed);
    }
    if wanted(Part::Growth) {
        for &vms in amounts.sizes {
            tell(&format!("growth: {vms} VMs"));
            let both = growth::by_both(programs, vms).await;
            measured.growth.extend(kept(both, &mut failed));
        }
    }
    let idle = async {
        if wanted(Part::Idle) {
            Some(idle::measure(programs, amounts.idle).await)
        } else {
            None
        }
    };
    let whole = async {
        if wanted(Part::Drains) {
            Some(drains_of(programs, &amounts, &mut about, tell).await)
        } else {
            None
        }
    };
    let (idle, whole) = join(idle, whole).await;
    measured.idle = idle.and_then(|idle| kept(idle, &mut failed));
    if let Some((drains, long)) = whole.and_then(|whole| kept(whole, &mut failed)) {
        measured.drains = drains;
        measured.long = Some(long);
    }
    about.push(format!("load of the machine at the end: {}", load()));
    Ok(Report {
        about,
        figures: figures::judge(&measured),
        failed,
    })
}

/// What was measured; what could not be is noted, and the other parts go on.
fn kept<T>(measured: anyhow::Result<T>, failed: &mut Vec<String>) -> Option<T> {
    measured.map_err(|why| failed.push(format!("{why:#}"))).ok()
}

/// All whole drains side by side, and the long one with the shortest that is possible.
async fn drains_of(
    programs: &Programs,
    amounts: &Amounts,
    about: &mut Vec<String>,
    tell: &dyn Fn(&str),
) -> anyhow::Result<(Vec<Compared>, (Drain, f64))> {
    tell("set-up time of a single migration");
    let set_ups = set_ups(programs, amounts).await?;
    about.push(told(&set_ups));
    tell("whole drains in real time, side by side; this takes minutes");
    let long = &amounts.long;
    let (drains, drain) = try_join!(
        compared(programs, amounts, &set_ups, tell),
        ended(
            tell,
            "ten minutes, agent",
            drains::by_agent(programs, long, &[])
        ),
    )?;
    let shortest = drains::shortest(long, set_ups.of(long));
    Ok((drains, (drain, shortest)))
}

/// Set-up times by version and start-up time of the guest.
struct SetUps(Vec<(Case, SetUp)>);

impl SetUps {
    fn of(&self, case: &Case) -> SetUp {
        let same = |known: &Case| known.minor == case.minor && known.start_up == case.start_up;
        let found = self.0.iter().find(|(known, _)| same(known));
        found.map(|(_, set_up)| *set_up).unwrap_or_default()
    }
}

async fn set_ups(programs: &Programs, amounts: &Amounts) -> anyhow::Result<SetUps> {
    let mut kinds: Vec<&Case> = Vec::new();
    let cases = amounts.cases.iter().map(|(_, case, _)| case);
    for case in cases.chain([&amounts.mixed, &amounts.long]) {
        let same = |known: &&Case| known.minor == case.minor && known.start_up == case.start_up;
        if !kinds.iter().any(same) {
            kinds.push(case);
        }
    }
    let measured = kinds.into_iter().map(|case| async move {
        let set_up = drains::set_up(case, programs.seed, amounts.set_ups).await?;
        anyhow::Ok((case.clone(), set_up))
    });
    Ok(SetUps(try_join_all(measured).await?))
}

fn told(set_ups: &SetUps) -> String {
    let all: Vec<String> = set_ups
        .0
        .iter()
        .map(|(case, set_up)| {
            format!(
                "1.{} with guests that start in {} s: {:.2} s, then {:.2} s until the source pod has ended",
                case.minor,
                case.start_up.as_secs(),
                set_up.slot.as_secs_f64(),
                set_up.tail.as_secs_f64()
            )
        })
        .collect();
    format!(
        "KubeVirt's set-up time, measured with single VMs: {}",
        all.join("; ")
    )
}

async fn compared(
    programs: &Programs,
    amounts: &Amounts,
    set_ups: &SetUps,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Vec<Compared>> {
    let count = amounts.mixed.copies.len();
    let mixed = (format!("{count} VMs of mixed sizes"), &amounts.mixed, 0.0);
    let cases = amounts
        .cases
        .iter()
        .map(|(name, case, shorter)| ((*name).to_owned(), case, *shorter))
        .chain([mixed]);
    try_join_all(cases.map(|(name, case, shorter)| async move {
        let told = |who: &str| format!("{name}, {who}");
        let (own, all, kubectl) = (told("agent"), told("agent, all at once"), told("kubectl"));
        let (agent, all, kubectl) = try_join!(
            ended(tell, &own, drains::by_agent(programs, case, &[])),
            ended(
                tell,
                &all,
                drains::by_agent(programs, case, &["drain.pacing=all"])
            ),
            ended(tell, &kubectl, drains::by_kubectl(programs, case)),
        )?;
        anyhow::Ok(Compared {
            shorter,
            shortest: drains::shortest(case, set_ups.of(case)),
            name,
            agent,
            all,
            kubectl,
        })
    }))
    .await
}

/// Tells when a drain has ended.
async fn ended(
    tell: &dyn Fn(&str),
    name: &str,
    drain: impl Future<Output = anyhow::Result<Drain>>,
) -> anyhow::Result<Drain> {
    let drain = drain.await?;
    let Drain {
        took,
        requests,
        kinds,
        ..
    } = &drain;
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let kinds = kinds.join(", ");
    tell(&format!(
        "  {name}: {took:.1} s, {requests} requests: {kinds}"
    ));
    Ok(drain)
}

/// The load of the last minutes, as the kernel tells it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
