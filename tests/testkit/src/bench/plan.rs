//! What is measured in which order? First what needs a quiet machine, then the drains, which last minutes and are run side by side.

use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::try_join;

use super::Programs;
use super::drains::{self, Case, Drain};
use super::figures;
use super::growth::{self, Beginning};
use super::ideal::SetUp;
use super::idle::{self, Idle};
use super::latency::{self, Latencies};
use super::release::{self, Releases};
use super::report::Report;

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
                speed: 10.0,
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
                speed: 20.0,
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

/// Everything that was measured.
pub(super) struct Measured {
    pub(super) latencies: Latencies,
    pub(super) releases: Releases,
    pub(super) growth: Vec<(usize, Beginning, Beginning)>,
    pub(super) idle: Idle,
    /// By case; the last one is the mixed one.
    pub(super) drains: Vec<Compared>,
    /// The agent's drain of ten minutes, and the shortest possible one.
    pub(super) long: (Drain, f64),
    pub(super) binary: u64,
}

/// Measures all and judges.
pub(super) async fn carry_out(
    programs: &Programs,
    quick: bool,
    version: &str,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Report> {
    let amounts = if quick {
        Amounts::quick()
    } else {
        Amounts::full()
    };
    let mut about = vec![
        format!(
            "agent {} against kubectl {version} ({}), seed {}{}",
            programs.agent.display(),
            programs.kubectl.display(),
            programs.seed,
            if quick { ", quick" } else { "" }
        ),
        format!("load of the machine at the start: {}", load()),
    ];
    tell("latencies: 100 VMs, signal to cordon and evictions");
    let latencies = latency::measure(programs, amounts.latencies).await?;
    tell("release: last VM gone to lock released");
    let releases = release::measure(programs, amounts.releases, amounts.peers).await?;
    let mut growth = Vec::new();
    for &vms in amounts.sizes {
        tell(&format!("growth: {vms} VMs"));
        let agent = growth::by_agent(programs, vms).await?;
        let kubectl = growth::by_kubectl(programs, vms).await?;
        growth.push((vms, agent, kubectl));
    }
    tell("set-up time of a single migration");
    let set_ups = set_ups(programs, &amounts).await?;
    about.push(told(&set_ups));
    tell("whole drains in real time, side by side; this takes minutes");
    let (idle, drains, long) = try_join!(
        idle::measure(programs, amounts.idle),
        compared(programs, &amounts, &set_ups, tell),
        ended(tell, "ten minutes, agent", drains::by_agent(programs, &amounts.long, &[])),
    )?;
    about.push(format!("load of the machine at the end: {}", load()));
    let long_shortest = drains::shortest(&amounts.long, set_ups.of(&amounts.long));
    let measured = Measured {
        latencies,
        releases,
        growth,
        idle,
        drains,
        long: (long, long_shortest),
        binary: std::fs::metadata(&programs.agent)?.len(),
    };
    Ok(Report {
        about,
        figures: figures::judge(&measured),
    })
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
            ended(tell, &all, drains::by_agent(programs, case, &["drain.pacing=all"])),
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
    let Drain { took, requests, .. } = drain;
    tell(&format!("  {name}: {took:.1} s, {requests} requests"));
    Ok(drain)
}

/// The load of the last minutes, as the kernel tells it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
