//! Stories of drains, told input by input. The teller plays the node, the fresh lists and the host by the
//! book; what an eviction answers and what the watches show is up to each story.

mod ending;
mod falling;
mod gates;
mod holding;
mod lots;
mod others;
mod owning;
mod pace;
mod requesting;
mod restoring;
mod resuming;
mod scheduled;
mod signalled;
mod stopping;
mod targets;
mod undoing;
mod unreachable;
mod waiting_again;
mod watching;

use super::Machine;
use crate::drain::action::{
    Action, EffectId, Fault, FaultClass, HoldView, Input, LogindAnswer, Notice, Outcome, Token,
};
use crate::drain::answer::Reply;
use crate::drain::hooks::{Report, Run};
use crate::drain::local::LocalView;
use crate::drain::phase::Phase;
use crate::drain::policy::{OnDeadline, Policy};
use crate::drain::record::Record;
use crate::drain::status::{Status, VmStatus};
use crate::drain::time::Mono;
use crate::drain::trigger::{Ending, Refusal, Shutdown, Trigger};
use crate::drain::world::{
    AttachedVolume, Compute, CordonMark, Fresh, KubeVirtView, MigrationPhase, MigrationView,
    NodeView, ObjectRef, OtherPod, Picture, PodPhase, PodView, Sight, Strategy, VmName, VmView,
    VmiPhase, VmiView,
};
use std::time::Duration;

const TRIGGERED: &str = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: Eviction triggered evacuation of VMI \"vms/x\"";
const IN_PROGRESS: &str = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: Evacuation in progress: Eviction triggered evacuation of VMI \"vms/x\"";
const TARGET_POD: &str = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: Eviction request for target Pod";
const WEBHOOK_DOWN: &str = "Internal error occurred: failed calling webhook \"virt-launcher-eviction-interceptor.kubevirt.io\": failed to call webhook: connection refused";

/// An eviction that waits for its answer.
#[derive(Clone, Debug)]
struct Sent {
    id: EffectId,
    pod: ObjectRef,
    dry: bool,
}

/// The teller.
struct Story {
    machine: Machine,
    /// Of this process and those that follow.
    policy: Policy,
    now: u64,
    full: bool,
    version: (u32, u32),
    node: NodeView,
    pods: Vec<PodView>,
    vmis: Vec<VmiView>,
    migrations: Vec<MigrationView>,
    /// Evictions without an answer yet.
    waiting: Vec<Sent>,
    /// Every eviction that was sent, dry or not.
    posts: Vec<(u64, String, bool)>,
    cancels: Vec<String>,
    deletions: Vec<String>,
    starts: Vec<String>,
    start_answer: Reply,
    machines: Vec<VmView>,
    /// Guests that were stopped: when, and the name of the pod.
    stops: Vec<(u64, String)>,
    stop_answer: Reply,
    told: Vec<Notice>,
    answers: Vec<(Token, Result<String, Refusal>)>,
    record: Option<Record>,
    held: bool,
    releases: u32,
    asked_logind: u32,
    /// logind takes its time; who waits for its answer.
    logind_is_slow: bool,
    logind_owes: Option<EffectId>,
    uncordons: u32,
    unmarks: u32,
    watching: bool,
    cancel_answer: Reply,
    confirm_malformed: Vec<crate::drain::world::Malformed>,
    confirm_unread: Vec<String>,
    /// Confirms are kept back until the story lets them go.
    hold_confirms: bool,
    confirms: Vec<EffectId>,
    node_fault: Option<FaultClass>,
    /// Runs of hooks, how they end, and the one that has not ended yet.
    hook_runs: Vec<Run>,
    hook_report: Option<Report>,
    hooks_owe: Option<EffectId>,
    others: Vec<OtherPod>,
    volumes: Result<Vec<AttachedVolume>, Fault>,
    volume_looks: usize,
    /// What the scheduler says of every target pod, and who asked for it: when, and the UID of the VMIM.
    target: Result<Option<String>, Fault>,
    target_looks: Vec<(u64, String)>,
    /// What runs on the host; `None`: it cannot be looked at.
    local: Option<LocalView>,
    /// Guests that were told on the host itself: when, and the name of the VM.
    told_here: Vec<(u64, String)>,
    tell_answer: Result<(), String>,
}

fn policy() -> Policy {
    let mut policy = Policy::for_node("n1");
    policy.machine_id = "aaaa".into();
    policy.boot_id = "boot".into();
    // Most stories are about moving; those about guests that are shut down say so.
    policy.on_deadline = OnDeadline::Proceed;
    policy
}

fn reply(code: u16, message: &str) -> Reply {
    Reply {
        code,
        message: message.into(),
        ..Reply::default()
    }
}

fn object(name: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        namespace: "vms".into(),
        name: name.into(),
        uid: uid.into(),
    }
}

impl Story {
    fn with(policy: Policy, full: bool) -> Self {
        Self {
            machine: Machine::new(policy.clone(), 7),
            policy,
            now: 1000,
            full,
            version: (1, 7),
            node: NodeView {
                name: "n1".into(),
                resource_version: "10".into(),
                machine_id: "AAAA".into(),
                // virt-handler is well.
                schedulable: true,
                heartbeat: Some(i64::MAX),
                ..NodeView::default()
            },
            pods: Vec::new(),
            vmis: Vec::new(),
            migrations: Vec::new(),
            waiting: Vec::new(),
            posts: Vec::new(),
            cancels: Vec::new(),
            deletions: Vec::new(),
            starts: Vec::new(),
            start_answer: reply(202, ""),
            machines: Vec::new(),
            stops: Vec::new(),
            stop_answer: reply(200, ""),
            told: Vec::new(),
            answers: Vec::new(),
            record: None,
            held: true,
            releases: 0,
            asked_logind: 0,
            logind_is_slow: false,
            logind_owes: None,
            uncordons: 0,
            unmarks: 0,
            watching: false,
            cancel_answer: reply(200, ""),
            confirm_malformed: Vec::new(),
            confirm_unread: Vec::new(),
            hold_confirms: false,
            confirms: Vec::new(),
            node_fault: None,
            hook_runs: Vec::new(),
            hook_report: Some(Report::default()),
            hooks_owe: None,
            others: Vec::new(),
            volumes: Ok(Vec::new()),
            volume_looks: 0,
            target: Ok(None),
            target_looks: Vec::new(),
            local: None,
            told_here: Vec::new(),
            tell_answer: Ok(()),
        }
    }

    fn full() -> Self {
        Self::with(policy(), true)
    }

    fn base() -> Self {
        Self::with(policy(), false)
    }

    /// A migratable VM with a running pod, uid `<name>-pod`, VMI uid `<name>-vmi`.
    fn vm(&mut self, name: &str) -> &mut Self {
        self.vm_of(name, Strategy::LiveMigrate, true)
    }

    fn vm_of(&mut self, name: &str, strategy: Strategy, migratable: bool) -> &mut Self {
        self.pods.push(PodView {
            pod: object(&format!("virt-launcher-{name}"), &format!("{name}-pod")),
            vm: VmName {
                namespace: "vms".into(),
                name: name.into(),
            },
            vmi_uid: format!("{name}-vmi"),
            phase: PodPhase::Running,
            compute: Compute::Running,
            vmi_node_label: Some("n1".into()),
            memory: Some(1 << 30),
            ..PodView::default()
        });
        self.vmis.push(VmiView {
            vmi: object(name, &format!("{name}-vmi")),
            phase: VmiPhase::Running,
            node: "n1".into(),
            live_migratable: Some(migratable),
            not_migratable: if migratable {
                String::new()
            } else {
                "DisksNotLiveMigratable".into()
            },
            strategy: Some(strategy),
            ..VmiView::default()
        });
        self
    }

    fn pod(&mut self, name: &str) -> &mut PodView {
        let uid = format!("{name}-pod");
        self.pods.iter_mut().find(|p| p.pod.uid == uid).unwrap()
    }

    fn vmi(&mut self, name: &str) -> &mut VmiView {
        self.vmis.iter_mut().find(|v| v.vmi.name == name).unwrap()
    }

    fn mark(&mut self, name: &str) {
        self.vmi(name).mark = Some("n1".into());
        self.pod(name).eviction_in_progress = true;
    }

    fn migration(&mut self, name: &str, uid: &str, phase: MigrationPhase) {
        self.migrations.retain(|m| m.migration.uid != uid);
        let over = matches!(phase, MigrationPhase::Succeeded | MigrationPhase::Failed);
        self.migrations.push(MigrationView {
            migration: object(uid, uid),
            vm: VmName {
                namespace: "vms".into(),
                name: name.into(),
            },
            phase,
            evacuates: Some("n1".into()),
            source_node: if over { "n1".into() } else { String::new() },
            target_node: if over { "n2".into() } else { String::new() },
            ..MigrationView::default()
        });
    }

    /// The VM flips to n2: its VMI leaves the watch, its pod here still runs.
    fn flips(&mut self, name: &str) {
        self.vmis.retain(|v| v.vmi.name != name);
        self.pod(name).eviction_in_progress = false;
    }

    fn pod_ends(&mut self, name: &str) {
        let pod = self.pod(name);
        pod.phase = PodPhase::Succeeded;
        pod.compute = Compute::Terminated;
    }

    /// Marked, moved and gone, in one step.
    fn moves(&mut self, name: &str) {
        self.flips(name);
        self.migration(name, &format!("{name}-vmim"), MigrationPhase::Succeeded);
        self.pod_ends(name);
        self.show();
    }

    fn picture(&self) -> Picture {
        let fresh = Mono(self.now);
        let forbidden = || "not allowed".to_owned();
        Picture {
            node: Sight::Seen {
                value: self.node.clone(),
                fresh,
            },
            pods: Sight::Seen {
                value: self.pods.clone(),
                fresh,
            },
            vmis: if self.full {
                Sight::Seen {
                    value: self.vmis.clone(),
                    fresh,
                }
            } else {
                Sight::Forbidden { why: forbidden() }
            },
            vms: if self.full {
                Sight::Seen {
                    value: self.machines.clone(),
                    fresh,
                }
            } else {
                Sight::Forbidden { why: forbidden() }
            },
            migrations: if self.full {
                Sight::Seen {
                    value: self.migrations.clone(),
                    fresh,
                }
            } else {
                Sight::Forbidden { why: forbidden() }
            },
            pdbs: if self.full {
                Sight::Seen {
                    value: Vec::new(),
                    fresh,
                }
            } else {
                Sight::Forbidden { why: forbidden() }
            },
            others: Sight::Seen {
                value: self.others.clone(),
                fresh,
            },
            kubevirt: Sight::Seen {
                value: KubeVirtView {
                    version: Some(self.version),
                    strategy: Strategy::LiveMigrate,
                    ..KubeVirtView::default()
                },
                fresh,
            },
            malformed: Vec::new(),
        }
    }

    fn show(&mut self) -> &mut Self {
        let picture = self.picture();
        self.input(Input::Picture(Box::new(picture)))
    }

    fn input(&mut self, input: Input) -> &mut Self {
        self.machine.handle(input, Mono(self.now));
        self.settle()
    }

    /// Carries out what the machine wants, by the book.
    fn settle(&mut self) -> &mut Self {
        while let Some(action) = self.machine.poll_action() {
            let Some((id, outcome)) = self.act(action) else {
                continue;
            };
            self.machine
                .handle(Input::Done(id, outcome), Mono(self.now));
        }
        self
    }

    #[allow(
        clippy::too_many_lines,
        reason = "one arm for each action, and every arm is short"
    )]
    fn act(&mut self, action: Action) -> Option<(EffectId, Outcome)> {
        match action {
            Action::Watch | Action::WatchAll | Action::WatchNode => self.watching = true,
            Action::Unwatch => self.watching = false,
            Action::Persist(record) => self.record = Some(*record),
            Action::ForgetRecord => self.record = None,
            Action::Answer(token, answer) => self.answers.push((token, answer)),
            Action::Tell(notice) => self.told.push(notice),
            Action::ReadNode(id) => return Some((id, self.node_answer(|_| {}))),
            Action::Cordon { id, note, .. } => {
                let outcome = self.node_answer(|node| {
                    node.unschedulable = true;
                    node.cordon = note.map_or(CordonMark::Absent, CordonMark::Note);
                });
                return Some((id, outcome));
            }
            Action::Uncordon { id, .. } => {
                self.uncordons += 1;
                let outcome = self.node_answer(|node| {
                    node.unschedulable = false;
                    node.cordon = CordonMark::Absent;
                });
                return Some((id, outcome));
            }
            Action::Unmark { id, .. } => {
                self.unmarks += 1;
                let outcome = self.node_answer(|node| node.cordon = CordonMark::Absent);
                return Some((id, outcome));
            }
            Action::Evict { id, pod, dry_run } => {
                self.posts.push((self.now, pod.uid.clone(), dry_run));
                self.waiting.push(Sent {
                    id,
                    pod,
                    dry: dry_run,
                });
            }
            Action::Confirm { id, .. } if self.hold_confirms => self.confirms.push(id),
            Action::Confirm { id, others } => {
                let mut fresh = self.fresh();
                fresh.others = others.then(|| self.others.clone());
                return Some((id, Outcome::Fresh(Ok(fresh))));
            }
            Action::ReadVolumes(id) => {
                self.volume_looks += 1;
                return Some((id, Outcome::Volumes(self.volumes.clone())));
            }
            Action::ReadTarget { id, migration } => {
                self.target_looks.push((self.now, migration.uid));
                return Some((id, Outcome::Target(self.target.clone())));
            }
            Action::CancelEvacuation { id, vmi } => {
                self.cancels.push(vmi.name);
                let answer = self.cancel_answer.clone();
                return Some((id, Outcome::Reply(Ok(answer))));
            }
            Action::DeleteMigration { id, migration } => {
                self.deletions.push(migration.name);
                return Some((id, Outcome::Reply(Ok(reply(200, "")))));
            }
            Action::StartVm { id, vm } => {
                self.starts.push(vm.name);
                let answer = self.start_answer.clone();
                return Some((id, Outcome::Reply(Ok(answer))));
            }
            Action::StopGuest { id, pod } => {
                self.stops.push((self.now, pod.name.clone()));
                let answer = self.stop_answer.clone();
                return Some((id, Outcome::Reply(Ok(answer))));
            }
            Action::Release(id) => {
                self.releases += 1;
                self.held = false;
                return Some((id, Outcome::Hold(Ok(self.hold()))));
            }
            Action::TakeHold(id) => {
                self.held = true;
                return Some((id, Outcome::Hold(Ok(self.hold()))));
            }
            Action::Acknowledge { id, value, .. } => {
                let outcome = self.node_answer(|node| node.handled = value);
                return Some((id, outcome));
            }
            Action::LookHere(id) => {
                let view = self.local.clone().ok_or_else(|| "it hides them".into());
                return Some((id, Outcome::Local(view)));
            }
            Action::TellGuest { id, guest } => {
                self.told_here.push((self.now, guest.vm.name));
                return Some((id, Outcome::Told(self.tell_answer.clone())));
            }
            Action::RunHooks { id, run } => return self.hooks_begin(id, run),
            Action::AskLogind { id, .. } => {
                self.asked_logind += 1;
                if self.logind_is_slow {
                    self.logind_owes = Some(id);
                    return None;
                }
                return Some((id, Outcome::Logind(LogindAnswer::Accepted)));
            }
        }
        None
    }

    fn hooks_begin(&mut self, id: EffectId, run: Run) -> Option<(EffectId, Outcome)> {
        self.hook_runs.push(run);
        let report = self.hook_report.clone();
        self.hooks_owe = report.is_none().then_some(id);
        report.map(|report| (id, Outcome::Hooks(Ok(report))))
    }

    fn node_answer(&mut self, change: impl FnOnce(&mut NodeView)) -> Outcome {
        if let Some(class) = self.node_fault {
            let text = "the API server says no".into();
            return Outcome::Node(Err(Fault { class, text }));
        }
        let before = self.node.clone();
        change(&mut self.node);
        if before != self.node {
            self.bump();
        }
        Outcome::Node(Ok(self.node.clone()))
    }

    fn bump(&mut self) {
        let version: u64 = self.node.resource_version.parse().unwrap();
        self.node.resource_version = (version + 1).to_string();
    }

    fn fresh(&self) -> Fresh {
        Fresh {
            pods: self.pods.clone(),
            others: None,
            vmis: self.full.then(|| self.vmis.clone()),
            migrations: self.full.then(|| self.migrations.clone()),
            malformed: self.confirm_malformed.clone(),
            unread: self.confirm_unread.clone(),
        }
    }

    fn hold(&self) -> HoldView {
        HoldView {
            held: self.held,
            limit: Some(Duration::from_secs(2700)),
            ..HoldView::default()
        }
    }

    /// Lets time pass, with every wake-up on the way.
    fn wait(&mut self, seconds: u64) -> &mut Self {
        let end = self.now + seconds * 1000;
        while let Some((wake, _)) = self.machine.poll_timeout() {
            if wake.0 > end {
                break;
            }
            assert!(wake.0 > self.now, "a wake-up that is not in the future");
            self.now = wake.0;
            self.machine.handle_timeout(wake);
            self.settle();
        }
        self.now = end;
        self
    }

    fn trigger(&mut self) -> &mut Self {
        self.trigger_with(Trigger::default())
    }

    fn trigger_with(&mut self, trigger: Trigger) -> &mut Self {
        let hold = self.hold();
        self.input(Input::Hold(hold));
        self.input(Input::Trigger(Token(1), trigger)).show()
    }

    fn shutdown(&mut self) -> &mut Self {
        let hold = self.hold();
        self.input(Input::Hold(hold));
        self.signal(2700).show()
    }

    fn signal(&mut self, limit: u64) -> &mut Self {
        let held = self.held;
        self.input(Input::Shutdown(Shutdown {
            kind: None,
            limit: Some(Duration::from_secs(limit)),
            held,
        }))
    }

    /// Answers the oldest eviction of this VM that waits.
    fn answer(&mut self, name: &str, code: u16, message: &str) -> &mut Self {
        let answer = reply(code, message);
        self.answer_with(name, Ok(answer))
    }

    fn answer_with(&mut self, name: &str, answer: Result<Reply, Fault>) -> &mut Self {
        let uid = format!("{name}-pod");
        let at = self.waiting.iter().position(|s| s.pod.uid == uid);
        let sent = self
            .waiting
            .remove(at.unwrap_or_else(|| panic!("nothing was asked about {name}")));
        self.input(Input::Done(sent.id, Outcome::Reply(answer)))
    }

    fn lost(&mut self, name: &str) -> &mut Self {
        let fault = Fault {
            class: FaultClass::Transient,
            text: "the connection was reset".into(),
        };
        self.answer_with(name, Err(fault))
    }

    /// Accepted: marked, and the picture shows it.
    fn accepted(&mut self, name: &str) -> &mut Self {
        self.mark(name);
        self.answer(name, 429, TRIGGERED).show()
    }

    fn cancel(&mut self, abort_migrations: bool) -> &mut Self {
        self.input(Input::Cancel {
            token: Token(9),
            abort_migrations,
            signal: String::new(),
        })
    }

    fn extend(&mut self, seconds: u64) -> &mut Self {
        self.input(Input::Extend {
            token: Token(7),
            by: Duration::from_secs(seconds),
        })
    }

    fn release(&mut self, ending: Ending) -> &mut Self {
        self.input(Input::Release {
            token: Token(8),
            ending,
        })
    }

    fn last_answer(&self) -> Result<String, String> {
        let (_, answer) = self.answers.last().unwrap();
        answer.clone().map_err(|refusal| refusal.to_string())
    }

    /// Names of the VMs whose eviction waits for an answer; dry ones with a question mark.
    fn asked(&self) -> Vec<String> {
        let name = |s: &Sent| {
            let name = s.pod.uid.trim_end_matches("-pod");
            format!("{name}{}", if s.dry { "?" } else { "" })
        };
        self.waiting.iter().map(name).collect()
    }

    /// Real evictions of this VM so far.
    fn real(&self, name: &str) -> usize {
        let uid = format!("{name}-pod");
        let of = |(_, pod, dry): &&(u64, String, bool)| *pod == uid && !*dry;
        self.posts.iter().filter(of).count()
    }

    fn phase(&self) -> Phase {
        self.machine.phase()
    }

    fn status(&self) -> Status {
        self.machine.status(Mono(self.now))
    }

    fn row(&self, name: &str) -> VmStatus {
        let rows = self.status().vms;
        rows.into_iter().find(|v| v.name == name).unwrap()
    }

    fn exit(&self) -> Option<u8> {
        self.status().drain.and_then(|d| d.exit)
    }

    fn was_told(&self, part: &str) -> bool {
        self.told.iter().any(|n| n.text.contains(part))
    }

    /// The process dies; a new one goes on from the record. Answers on the wire are lost.
    fn crash(&mut self) -> &mut Self {
        let record = self.record.clone();
        self.machine = Machine::start(self.policy.clone(), 11, record, Mono(self.now));
        self.waiting.clear();
        self.watching = false;
        let hold = self.hold();
        self.input(Input::Hold(hold))
    }
}
