//! The API server is away: the local part of the policy (design sections 3.3, 5).
//!
//! This host looks at its own `compute` containers, tells their virt-launchers to end where the policy allows it, and is empty
//! when none is left. The order is that of the fallback, the consent that of every stop. When the server is back the drain
//! goes on with it: whoever was told stays told, the others are moved as ever.

mod tell;
mod view;

use super::Machine;
use super::show::span;
use crate::drain::action::Level;
use crate::drain::local::LocalView;
use crate::drain::phase::Phase;
use crate::drain::time::Mono;

/// What the host has found out by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Local {
    /// Since when the server counts as away; `None`: it does not.
    since: Option<Mono>,
    /// The newest look that has brought something, and when it was asked for.
    view: Option<(Mono, LocalView)>,
    /// KubeVirt's processes were recognised here: a guest, or virt-handler. Before that, seeing none means nothing: they
    /// may only look different from what is known.
    recognised: bool,
    /// Why the host cannot be looked at; empty when it can.
    trouble: String,
    /// No look before.
    look_at: Mono,
    /// A guest was told last.
    told_at: Option<Mono>,
    /// So many were told.
    told: usize,
}

impl Machine {
    /// Takes the local part where the server is away. False: it is not, the drain goes on with it.
    pub(super) fn local_step(&mut self, now: Mono) -> bool {
        if !self.is_away(now) {
            self.back(now);
            return false;
        }
        self.gone_away(now);
        self.look_here(now);
        self.follow_here(now);
        self.tell_here(now);
        let told = self.drain.as_ref().is_some_and(|d| d.local.told > 0);
        if told {
            self.phase = Phase::FallingBack;
        } else if self.phase != Phase::Preparing {
            self.phase = self.working();
        }
        self.empty_here(now);
        true
    }

    /// The server counts as away in this drain.
    pub(super) fn acts_alone(&self) -> bool {
        self.drain.as_ref().is_some_and(|d| d.local.since.is_some())
    }

    /// The host has looked at itself, so it is known what is left.
    pub(super) fn knows_itself(&self) -> bool {
        let looked = |d: &super::Drain| d.local.view.is_some() && d.local.recognised;
        self.acts_alone() && self.drain.as_ref().is_some_and(looked)
    }

    fn gone_away(&mut self, now: Mono) {
        let silence = span(self.silence(now));
        let Some(drain) = &mut self.drain else { return };
        if drain.local.since.is_some() {
            return;
        }
        drain.local.since = Some(now);
        let why = drain.contact.why.clone();
        let does = self.does_alone();
        let text = format!("the API server was not reached for {silence} ({why}): {does}");
        self.loud(Level::Warn, "ApiUnreachable", text);
    }

    /// What this host does by itself, as a sentence part.
    fn does_alone(&self) -> String {
        let looks = "this host looks at its own containers, and goes on when no VM is left";
        if self.may_stop() {
            return format!("the guests that are left are shut down on this host itself; {looks}");
        }
        match self.consent() {
            Err(why) => format!("no guest is shut down ({}); {looks}", consentless(why)),
            Ok(()) => format!(
                "no guest is shut down (on_deadline is \"{}\"); {looks}",
                self.ending().word()
            ),
        }
    }

    /// The sentence for `status`, while the server is away.
    pub(super) fn alone_says(&self, now: Mono) -> Option<String> {
        let drain = self.drain.as_ref()?;
        drain.local.since.filter(|_| self.phase.is_draining())?;
        let told = match drain.local.told {
            0 => String::new(),
            n => format!("; {n} guest(s) were told to shut down on this host itself"),
        };
        let blind = match drain.local.trouble.as_str() {
            "" => String::new(),
            why => format!("; its own containers cannot be looked at: {why}"),
        };
        Some(format!(
            "the API server was not reached for {} ({}){told}{blind}",
            span(self.silence(now)),
            drain.contact.why
        ))
    }

    /// It is back.
    fn back(&mut self, now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        let Some(since) = drain.local.since else {
            return;
        };
        let told = drain.local.told;
        let cordoned = drain.cordoned;
        drain.local = Local::default();
        let told = match told {
            0 => String::new(),
            n => format!("; {n} guest(s) were told to shut down meanwhile"),
        };
        let text = format!(
            "the API server answers again after this host has acted alone for {}{told}",
            span(now.since(since))
        );
        self.phase = if cordoned {
            self.working()
        } else {
            Phase::Preparing
        };
        self.loud(Level::Info, "ApiBack", text);
    }

    /// What the end of the drain has to say about it; empty when the server has confirmed it.
    pub(super) fn empty_by(&self) -> String {
        let Some(drain) = self.drain.as_ref().filter(|d| d.local.since.is_some()) else {
            return String::new();
        };
        let told = match drain.local.told {
            0 => String::new(),
            n => format!("; {n} guest(s) were shut down locally, the cluster was not told"),
        };
        format!(" (by this host's own view, the API server is away){told}")
    }
}

fn consentless(why: crate::drain::judge::Consentless) -> &'static str {
    use crate::drain::judge::Consentless;
    match why {
        Consentless::NotAsked => "the host stays up and nobody has allowed it",
        Consentless::Scheduled => "the shutdown is only scheduled",
        Consentless::Never => "drain.allow_guest_shutdown is \"never\"",
    }
}
