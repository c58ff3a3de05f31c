//! Is the announced shutdown still pending? Pure: what was seen goes in, a verdict comes out.
//!
//! logind says `PrepareForShutdown(false)` in two rare cases only; a cancel (257 and later) and a restart of
//! logind take a pending shutdown away without a word. So: *false* once is enough after logind has changed
//! its owner or has said *false* itself, else twice in a row.

/// What is known about an announced shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    announced: bool,
    plain_follows: bool,
    owner_changed: bool,
    unheard: bool,
    falses: u8,
}

/// What a look at `PreparingForShutdown` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing new.
    Same,
    /// A shutdown is pending that we have not heard of: its signal may be in the queue, so hear that out first.
    Unheard,
    /// A shutdown is pending that nobody told us about.
    Missed,
    /// Gone at first sight: look again soon.
    Doubtful,
    /// It is no longer pending, because logind was restarted.
    LostByRestart,
    /// It is no longer pending: called off, or its job failed.
    Lost,
}

impl Pending {
    /// A shutdown has been announced and not taken back.
    pub fn announced(&self) -> bool {
        self.announced
    }

    /// The signal with metadata has come and was believed; its plain twin follows.
    pub fn announce_with_metadata(&mut self) {
        *self = Self {
            announced: true,
            plain_follows: true,
            ..Self::default()
        };
    }

    /// Whether the plain signal that has just come is the twin of one that was delivered.
    pub fn is_twin(&mut self) -> bool {
        std::mem::take(&mut self.plain_follows)
    }

    /// The plain signal alone (systemd 254 and older), or a shutdown found without a signal.
    pub fn announce(&mut self) {
        *self = Self {
            announced: true,
            ..Self::default()
        };
    }

    /// logind has another owner, or the bus was lost.
    pub fn owner_changed(&mut self) {
        self.owner_changed = true;
        self.plain_follows = false;
    }

    /// logind itself said `false`: the next look decides.
    pub fn told_false(&mut self) {
        self.falses = self.falses.max(1);
    }

    /// `PreparingForShutdown` was read.
    pub fn look(&mut self, preparing: bool) -> Look {
        if preparing {
            self.falses = 0;
            self.owner_changed = false;
            return match (self.announced, std::mem::replace(&mut self.unheard, true)) {
                (true, _) => Look::Same,
                (false, false) => Look::Unheard,
                (false, true) => Look::Missed,
            };
        }
        self.unheard = false;
        if !self.announced {
            *self = Self::default();
            return Look::Same;
        }
        self.falses += 1;
        if self.owner_changed {
            *self = Self::default();
            return Look::LostByRestart;
        }
        if self.falses >= 2 {
            *self = Self::default();
            return Look::Lost;
        }
        Look::Doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_twice_is_a_cancel_and_once_after_a_restart() {
        let mut p = Pending::default();
        assert_eq!(p.look(false), Look::Same);
        p.announce();
        assert_eq!(p.look(true), Look::Same);
        assert_eq!(p.look(false), Look::Doubtful);
        assert_eq!(p.look(true), Look::Same, "a single false is forgiven");
        assert_eq!(p.look(false), Look::Doubtful);
        assert_eq!(p.look(false), Look::Lost);
        assert_eq!(p.look(false), Look::Same, "told once");

        p.announce();
        p.owner_changed();
        assert_eq!(p.look(false), Look::LostByRestart);
        assert!(!p.announced());
    }

    #[test]
    fn logind_s_own_false_needs_one_look() {
        let mut p = Pending::default();
        p.announce();
        p.told_false();
        assert_eq!(p.look(false), Look::Lost);
        p.announce();
        p.told_false();
        assert_eq!(p.look(true), Look::Same, "the property wins");
    }

    #[test]
    fn a_shutdown_without_a_signal_is_missed_and_twins_count_once() {
        let mut p = Pending::default();
        assert_eq!(p.look(true), Look::Unheard);
        assert_eq!(p.look(false), Look::Same);
        assert_eq!(p.look(true), Look::Unheard);
        assert_eq!(p.look(true), Look::Missed);
        p.announce_with_metadata();
        assert!(p.is_twin());
        assert!(!p.is_twin(), "a second plain signal is a second shutdown");
        p.announce_with_metadata();
        p.owner_changed();
        assert!(
            !p.is_twin(),
            "another logind does not finish the pair of the old one"
        );
    }
}
