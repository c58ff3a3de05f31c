//! What belongs to one connection: the subscriptions, and who owns which name.
//!
//! The bus filters on the owner of a well-known name, except for signals that are sent to us alone: so the sender is
//! compared as well. A new owner's first signal may come before the news of it: then the bus is asked.

use super::body;
use super::credentials::{self, Root};
use super::sources;
use crate::config::Maintenance;
use crate::config::maintenance::{Fit, Heard, ROOT};
use crate::drain::action::Source;
use crate::host::Timing;
use crate::host::login1::{CallError, connect, owner_of, within};
use futures_util::stream::SelectAll;
use futures_util::{FutureExt, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use zbus::message::{Message, Type};
use zbus::{Connection, MatchRule, MessageStream};

/// What has happened.
#[derive(Debug)]
pub(super) enum Update {
    /// A signal that has to be looked at: [`Session::understand`].
    Signal(Box<Message>),
    /// A name has another owner.
    Owners,
    /// The bus is gone.
    Lost,
}

pub(super) struct Session {
    bus: Connection,
    /// A bus of a test or of a user: no policy of the package is in force there.
    private: bool,
    entries: Vec<Maintenance>,
    signals: SelectAll<MessageStream>,
    names: SelectAll<MessageStream>,
    /// Well-known name → unique name; absent: nobody owns it.
    owners: BTreeMap<String, String>,
    complained: BTreeSet<String>,
    timing: Timing,
}

impl Session {
    /// Connects and subscribes; names without an owner are no failure.
    pub(super) async fn open(
        address: Option<&str>,
        entries: &[Maintenance],
        timing: Timing,
    ) -> Result<Self, CallError> {
        let mut session = Self {
            bus: connect(address, timing.work).await?,
            private: address.is_some(),
            entries: Vec::new(),
            signals: SelectAll::new(),
            names: SelectAll::new(),
            owners: BTreeMap::new(),
            complained: BTreeSet::new(),
            timing,
        };
        session.change(entries).await?;
        Ok(session)
    }

    /// Other entries: the new subscriptions are there before the old ones go; answers which of the old came meanwhile.
    pub(super) async fn change(
        &mut self,
        entries: &[Maintenance],
    ) -> Result<Vec<Maintenance>, CallError> {
        let bus = &self.bus;
        let subscribe = async {
            let (mut signals, mut names) = (SelectAll::new(), SelectAll::new());
            let mut rules = Vec::new();
            for entry in entries {
                let rule = (&entry.sender, &entry.path, &entry.interface, &entry.member);
                if !rules.contains(&rule) {
                    rules.push(rule);
                    signals.push(MessageStream::for_match_rule(of(entry)?, bus, None).await?);
                }
            }
            for name in named(entries) {
                names.push(MessageStream::for_match_rule(of_name(name)?, bus, None).await?);
            }
            Ok((signals, names))
        };
        let (signals, names) = within(self.timing.work, "AddMatch", subscribe).await?;
        let mut meant = Vec::new();
        while let Some(Some(Ok(message))) = self.signals.next().now_or_never() {
            meant.extend(self.understand(&message).await);
        }
        (self.signals, self.names) = (signals, names);
        self.entries = entries.to_vec();
        self.complained.clear();
        self.owners.clear();
        for name in named(entries) {
            if let Ok(owner) = owner_of(&self.bus, name, self.timing.probe).await {
                self.owners.insert(name.to_owned(), owner);
            }
        }
        Ok(meant)
    }

    /// The next thing that happens. Safe to drop half-way.
    pub(super) async fn next(&mut self) -> Update {
        tokio::select! {
            biased;
            () = self.bus.closed() => Update::Lost,
            Some(message) = self.names.next() => match message {
                Ok(message) => self.renamed(&message),
                Err(_) => Update::Lost,
            },
            Some(message) = self.signals.next() => match message {
                Ok(message) => Update::Signal(Box::new(message)),
                Err(_) => Update::Lost,
            },
            else => Update::Lost,
        }
    }

    /// Who sends what, and who is not there.
    pub(super) fn sources(&self) -> Vec<Source> {
        sources(&self.entries, |entry| {
            if entry.sender == ROOT || self.owners.contains_key(&entry.sender) {
                String::new()
            } else {
                format!(
                    "nobody owns {} on the bus now, so it cannot come; is that service installed and running?",
                    entry.sender
                )
            }
        })
    }

    fn renamed(&mut self, message: &Message) -> Update {
        // (name, old owner, new owner); a body of another form cannot come from the bus itself.
        if let Ok((name, _, new)) = message.body().deserialize::<(String, String, String)>() {
            tracing::debug!(name, owner = new, "a sender of maintenance signals");
            if new.is_empty() {
                self.owners.remove(&name);
            } else {
                self.owners.insert(name, new);
            }
        }
        Update::Owners
    }

    /// The entries that a signal is meant by: of the right sender, and with the right arguments.
    pub(super) async fn understand(&mut self, message: &Message) -> Vec<Maintenance> {
        let mut meant = Vec::new();
        let header = message.header();
        let (Some(path), Some(interface), Some(member)) =
            (header.path(), header.interface(), header.member())
        else {
            return meant;
        };
        let mut heard = Heard {
            path: path.to_string(),
            interface: interface.to_string(),
            member: member.to_string(),
            args: Vec::new(),
        };
        let same = self.entries.iter().filter(|entry| entry.names(&heard));
        let candidates: Vec<Maintenance> = same.cloned().collect();
        let read = body::read(message);
        for entry in candidates {
            if let Err(why) = self.is_from(&entry, message).await {
                self.complain(&entry, &why);
                continue;
            }
            let fit = match &read {
                Ok(args) => {
                    heard.args.clone_from(args);
                    entry.fits(&heard)
                }
                Err(why) => Fit::Malformed(why.clone()),
            };
            match fit {
                Fit::Yes => meant.push(entry),
                Fit::No => {}
                Fit::Malformed(why) => self.complain(&entry, &why),
            }
        }
        meant
    }

    /// Whether the sender is the one that the entry names.
    async fn is_from(&mut self, entry: &Maintenance, message: &Message) -> Result<(), String> {
        let header = message.header();
        let Some(sender) = header.sender() else {
            return Err("it has no sender".into());
        };
        if entry.sender == ROOT {
            let root = credentials::is_root(&self.bus, sender, self.private, self.timing.probe);
            return match root.await {
                Root::Yes => Ok(()),
                Root::No(why) => Err(why),
            };
        }
        let is = |owner: Option<&String>| owner.is_some_and(|owner| owner == sender.as_str());
        if is(self.owners.get(&entry.sender)) {
            return Ok(());
        }
        match owner_of(&self.bus, &entry.sender, self.timing.probe).await {
            Ok(owner) => self.owners.insert(entry.sender.clone(), owner),
            Err(_) => self.owners.remove(&entry.sender),
        };
        if is(self.owners.get(&entry.sender)) {
            return Ok(());
        }
        Err(format!(
            "it comes from {sender}, which does not own {}",
            entry.sender
        ))
    }

    /// Once for each entry: anybody can send as many as they like.
    fn complain(&mut self, entry: &Maintenance, why: &str) {
        if self.complained.insert(entry.name.clone()) {
            tracing::warn!(
                vmdrain_reason = "MaintenanceIgnored",
                "{} was ignored: {why}; more of them are not told",
                entry.reason()
            );
        }
    }
}

fn named(entries: &[Maintenance]) -> BTreeSet<&str> {
    let names = entries.iter().map(|entry| entry.sender.as_str());
    names.filter(|name| *name != ROOT).collect()
}

fn of(entry: &Maintenance) -> zbus::Result<MatchRule<'static>> {
    let mut rule = MatchRule::builder()
        .msg_type(Type::Signal)
        .interface(entry.interface.clone())
        .member(entry.member.clone());
    rule = match entry.folder() {
        Some("/") => rule,
        Some(folder) => rule.path_namespace(folder.to_owned()),
        None => rule.path(entry.path.clone()),
    };
    if entry.sender != ROOT {
        rule = rule.sender(entry.sender.clone());
    }
    rule.build()
}

fn of_name(name: &str) -> zbus::Result<MatchRule<'static>> {
    MatchRule::builder()
        .msg_type(Type::Signal)
        .sender("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .member("NameOwnerChanged")
        .add_arg(name.to_owned())
        .build()
}
