//! What does logind tell us, and how does the hold survive logind and the bus?
//!
//! One task. It owns the subscriptions and decides nothing about the drain: it reports what is true.

use super::hold::{self, Hold};
use super::login1::{ManagerProxy, within};
use super::logind::Options;
use super::pending::{Look, Pending};
use super::{clock, look, schedule, session};
use crate::agent::ports::HostEvent;
use crate::drain::action::HoldView;
use crate::drain::time::Mono;
use crate::drain::trigger::{Shutdown, Then};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use zbus::Connection;

/// What the driver's side asks of the task.
#[derive(Debug)]
pub(super) enum Request {
    /// Take the lock if it is missing.
    Take(oneshot::Sender<Result<HoldView, String>>),
    /// Look again and tell.
    Look(oneshot::Sender<HoldView>),
}

/// The task's state. What belongs to one connection is in [`session::Session`].
pub(super) struct Worker {
    options: Arc<Options>,
    hold: Arc<Hold>,
    events: mpsc::Sender<HostEvent>,
    bus: watch::Sender<Option<Connection>>,
    /// Where the first view goes; later ones are events.
    first: Option<oneshot::Sender<HoldView>>,
    view: HoldView,
    pending: Pending,
    /// When `PreparingForShutdown` was last seen false: bounds when a missed signal was sent.
    last_quiet: Option<Mono>,
    /// When to look at a pending shutdown again.
    look_at: Option<Mono>,
    /// When to look at the lock and the limit again.
    check_at: Mono,
    /// Looks at the lock in a row that got no answer.
    unanswered: u32,
    /// What is asked each minute only.
    known: look::Known,
    /// Tells when to look at the schedule.
    folder: schedule::Folder,
    /// What was last told of the schedule; `None`: nothing yet.
    scheduled: Option<schedule::Found>,
}

impl Worker {
    pub(super) fn new(
        options: Arc<Options>,
        hold: Arc<Hold>,
        events: mpsc::Sender<HostEvent>,
        bus: watch::Sender<Option<Connection>>,
        first: oneshot::Sender<HoldView>,
    ) -> Self {
        Self {
            folder: schedule::Folder::new(options.folder.as_deref()),
            scheduled: None,
            known: look::Known::default(),
            options,
            hold,
            events,
            bus,
            first: Some(first),
            view: HoldView::default(),
            pending: Pending::default(),
            last_quiet: None,
            look_at: None,
            check_at: Mono::default(),
            unanswered: 0,
        }
    }

    /// Runs until it is aborted or the driver is gone.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let timing = self.options.timing;
        let mut pause = timing.retry_first;
        while !self.events.is_closed() {
            let opened = session::Session::open(self.options.bus.as_deref(), &timing).await;
            let trouble = match opened {
                Ok(mut session) => {
                    pause = timing.retry_first;
                    self.serve(&mut session, &mut requests).await;
                    // The descriptor stays: the lock does not depend on the bus.
                    self.bus.send_replace(None);
                    self.pending.owner_changed();
                    tracing::warn!("the connection to the bus was lost");
                    "the connection to the bus was lost; it is being made again".to_owned()
                }
                Err(e) => e.text,
            };
            self.tell(hold::view(false, None, trouble.clone())).await;
            self.introduce();
            let waiting = self.refuse_requests(&mut requests, &trouble);
            let _ = tokio::time::timeout(pause, waiting).await;
            pause = (pause * 2).min(timing.retry_most);
        }
    }

    /// Answers requests while there is no bus.
    async fn refuse_requests(&self, requests: &mut mpsc::Receiver<Request>, trouble: &str) {
        while let Some(request) = requests.recv().await {
            match request {
                Request::Take(answer) => drop(answer.send(Err(trouble.to_owned()))),
                Request::Look(answer) => drop(answer.send(self.view.clone())),
            }
        }
        std::future::pending::<()>().await;
    }

    /// One connection, from its first look until the bus is gone.
    async fn serve(
        &mut self,
        session: &mut session::Session,
        requests: &mut mpsc::Receiver<Request>,
    ) {
        self.bus.send_replace(Some(session.bus.clone()));
        let manager = session.manager.clone();
        self.check_hold(&manager).await;
        self.look_ahead(&manager).await;
        self.look(&manager).await;
        loop {
            let nap = self.next_nap();
            tokio::select! {
                biased;
                message = session.signals.next() => match message {
                    Some(Ok(message)) => {
                        if let Some(heard) = session.understand(&message).await {
                            self.heard(&manager, heard).await;
                        }
                    }
                    Some(Err(_)) | None => return,
                },
                message = session.owners.next() => match message {
                    Some(Ok(message)) => {
                        let there = session.new_owner(&message);
                        self.owner_changed(there);
                    }
                    Some(Err(_)) | None => return,
                },
                () = self.folder.changed() => self.schedule_changed(&manager).await,
                request = requests.recv() => match request {
                    Some(request) => self.answer(&manager, request).await,
                    None => return,
                },
                () = tokio::time::sleep(nap) => self.due(&manager).await,
            }
        }
    }

    fn next_nap(&self) -> Duration {
        let next = self
            .look_at
            .map_or(self.check_at, |at| at.min(self.check_at));
        next.left(clock::now())
    }

    /// Whatever is due by the clock.
    async fn due(&mut self, manager: &ManagerProxy<'_>) {
        let now = clock::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.look(manager).await;
        }
        if self.check_at <= now {
            self.known = look::Known::default();
            self.check_hold(manager).await;
            if !self.pending.announced() {
                self.look_ahead(manager).await;
                self.look(manager).await;
            }
        }
    }

    /// Something was scheduled or called off, perhaps a shutdown that is pending already (257 and later).
    async fn schedule_changed(&mut self, manager: &ManagerProxy<'_>) {
        if self.pending.announced() {
            self.look(manager).await;
        }
        self.look_ahead(manager).await;
    }

    /// Looks at what is scheduled for later, and tells it when it has changed.
    async fn look_ahead(&mut self, manager: &ManagerProxy<'_>) {
        self.folder.listen();
        let found = match schedule::look(manager, self.options.timing.probe).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "cannot see whether a shutdown is scheduled");
                return;
            }
        };
        let told = match &found {
            // Its own signal tells. What follows it is news again.
            schedule::Found::Pending => {
                self.scheduled = None;
                return;
            }
            same if self.scheduled.as_ref() == Some(same) => return,
            schedule::Found::Nothing => None,
            schedule::Found::Scheduled(wire) => Some(schedule::schedule(wire, clock::realtime())),
        };
        self.scheduled = Some(found);
        let _ = self.events.send(HostEvent::Scheduled(told)).await;
    }

    async fn answer(&mut self, manager: &ManagerProxy<'_>, request: Request) {
        self.check_hold(manager).await;
        match request {
            Request::Look(answer) => drop(answer.send(self.view.clone())),
            Request::Take(answer) if self.view.held => drop(answer.send(Ok(self.view.clone()))),
            Request::Take(answer) => drop(answer.send(Err(self.view.trouble.clone()))),
        }
    }

    fn owner_changed(&mut self, there: bool) {
        tracing::info!(there, "systemd-logind has changed its place on the bus");
        self.pending.owner_changed();
        // A logind that is back re-arms a scheduled shutdown first: leave it that moment. One that is
        // gone is being restarted: leave it a longer one.
        let timing = self.options.timing;
        let pause = if there {
            timing.pending_confirm
        } else {
            timing.retry_most
        };
        self.look_at = Some(clock::now() + pause);
        self.check_at = clock::now() + pause;
    }

    /// Something that logind said.
    async fn heard(&mut self, manager: &ManagerProxy<'_>, heard: session::Heard) {
        match heard {
            session::Heard::Prepare if self.pending.is_twin() => {}
            session::Heard::Prepare => {
                if self.confirmed(manager).await {
                    self.pending.announce();
                    self.announced(None).await;
                }
            }
            session::Heard::PrepareWithMetadata(kind) => {
                if self.confirmed(manager).await {
                    self.pending.announce_with_metadata();
                    self.announced(kind).await;
                }
            }
            session::Heard::Unprepare => {
                self.pending.told_false();
                self.look(manager).await;
                if !self.pending.announced() {
                    self.check_hold(manager).await;
                }
            }
            session::Heard::Schedule => self.schedule_changed(manager).await,
        }
    }

    /// A shutdown was announced by logind: does its property say so too? Reads on the way what it is worth.
    async fn confirmed(&mut self, manager: &ManagerProxy<'_>) -> bool {
        let call = manager.preparing_for_shutdown();
        let probe = self.options.timing.probe;
        let (preparing, ()) = tokio::join!(
            within(probe, "PreparingForShutdown", call),
            self.check_hold(manager),
        );
        match preparing {
            Ok(false) => {
                tracing::warn!(
                    "logind announced a shutdown that its property does not know; ignored"
                );
            }
            // The sender is logind: when it is too busy to confirm, a drain too many is the lesser evil.
            Err(ref error) => tracing::warn!(%error, "logind did not confirm the shutdown"),
            Ok(true) => {}
        }
        preparing != Ok(false)
    }

    async fn announced(&mut self, kind: Option<Then>) {
        self.look_at = Some(clock::now() + self.options.timing.pending_poll);
        self.shutdown(kind, self.view.limit).await;
    }

    async fn shutdown(&self, kind: Option<Then>, limit: Option<Duration>) {
        let held = self.view.held && limit != Some(Duration::ZERO);
        let event = HostEvent::Shutdown(Shutdown { kind, limit, held });
        let _ = self.events.send(event).await;
    }

    /// Looks whether the shutdown is (still) pending.
    async fn look(&mut self, manager: &ManagerProxy<'_>) {
        let timing = self.options.timing;
        self.look_at = None;
        let call = manager.preparing_for_shutdown();
        let preparing = match within(timing.probe, "PreparingForShutdown", call).await {
            Ok(preparing) => preparing,
            Err(error) => {
                tracing::debug!(%error, "cannot see whether a shutdown is pending");
                self.look_at = Some(clock::now() + timing.pending_poll);
                return;
            }
        };
        let verdict = self.pending.look(preparing);
        // Pending, but not heard of: the second look decides, and tells of it.
        let settled = !matches!(verdict, Look::Unheard);
        if !preparing {
            self.last_quiet = Some(clock::now());
        }
        match verdict {
            Look::Same => {
                if self.pending.announced() {
                    self.look_at = Some(clock::now() + timing.pending_poll);
                }
            }
            Look::Doubtful => self.look_at = Some(clock::now() + timing.pending_confirm),
            // Signals go first in the loop, so the second look comes after all that are here.
            Look::Unheard => self.look_at = Some(clock::now()),
            Look::Missed => {
                self.pending.announce();
                self.look_at = Some(clock::now() + timing.pending_poll);
                let (kind, limit) =
                    look::pending(manager, timing.probe, self.view.limit, self.last_quiet).await;
                self.shutdown(kind, limit).await;
            }
            Look::LostByRestart => {
                self.vanished(manager, "systemd-logind was restarted, which forgets a pending shutdown: the host stays up until somebody asks again").await;
            }
            Look::Lost => {
                self.vanished(manager, "logind is no longer preparing a shutdown: it was called off, or its job failed").await;
            }
        }
        if settled {
            self.introduce();
        }
    }

    async fn vanished(&mut self, manager: &ManagerProxy<'_>, why: &str) {
        let event = HostEvent::ShutdownVanished { why: why.into() };
        let _ = self.events.send(event).await;
        // Whatever was released for that shutdown is needed for the next one.
        self.hold.want();
        self.check_hold(manager).await;
        self.look_ahead(manager).await;
    }

    /// Sees to the lock, reads the limit, tells what changed.
    async fn check_hold(&mut self, manager: &ManagerProxy<'_>) {
        let timing = self.options.timing;
        let seen = look::hold(manager, &self.hold, &self.options, &mut self.known).await;
        let view = match seen {
            Ok(view) => {
                self.unanswered = 0;
                view
            }
            Err(e) => {
                self.unanswered += 1;
                // One slow answer is no loss of the lock; a name without owner or two are.
                let held = self.view.held && e.silent() && self.unanswered < 2;
                hold::view(
                    held,
                    None,
                    format!(
                        "systemd-logind cannot be asked ({e}): there is no protection against a shutdown; `systemctl restart systemd-logind` brings it back"
                    ),
                )
            }
        };
        let well = view.held == self.hold.wanted() && self.unanswered == 0;
        let pause = if well {
            timing.limit_poll
        } else {
            timing.retry_most
        };
        self.check_at = clock::now() + pause;
        self.tell(view).await;
    }

    /// The first view, once it is known whether a shutdown is pending: what is announced by then has been told before.
    fn introduce(&mut self) {
        if let Some(first) = self.first.take() {
            let _ = first.send(self.view.clone());
        }
    }

    async fn tell(&mut self, view: HoldView) {
        let changed = view != self.view;
        self.view = view;
        if changed {
            let _ = self.events.send(HostEvent::Hold(self.view.clone())).await;
        }
    }
}
