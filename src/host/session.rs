//! What belongs to one connection to the bus: the subscriptions, and who logind is on it.
//!
//! Subscribed before anything is asked, so that no signal falls between. One rule for all of logind's signals, so that
//! they keep their order. The bus filters on logind's name, except for signals that are sent to us alone: so the
//! sender is compared with the owner as well.

use super::login1::{self, CallError, ManagerProxy, within};
use super::timing::Timing;
use crate::drain::trigger::Then;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::Duration;
use zbus::message::{Message, Type};
use zbus::{Connection, MatchRule, MessageStream, OwnedVariant};

/// One connection.
pub(super) struct Session {
    pub(super) bus: Connection,
    pub(super) manager: ManagerProxy<'static>,
    pub(super) signals: MessageStream,
    pub(super) owners: MessageStream,
    owner: Option<String>,
    probe: Duration,
    complained: bool,
}

/// What logind said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It prepares a shutdown.
    Prepare,
    /// The same with the kind, if it names one that is known; [`Heard::Prepare`] follows.
    PrepareWithMetadata(Option<Then>),
    /// It does not any more.
    Unprepare,
    /// `ScheduledShutdown` changed.
    Schedule,
}

impl Session {
    /// Connects and subscribes; a bus without logind is no failure.
    pub(super) async fn open(address: Option<&str>, timing: &Timing) -> Result<Self, CallError> {
        let bus = login1::connect(address, timing.work).await?;
        let from_logind = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(login1::NAME)
            .path(login1::PATH)
            .build()?;
        let of_the_name = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender("org.freedesktop.DBus")
            .interface("org.freedesktop.DBus")
            .member("NameOwnerChanged")
            .add_arg(login1::NAME)
            .build()?;
        let subscribe = async {
            let signals = MessageStream::for_match_rule(from_logind, &bus, None).await?;
            let owners = MessageStream::for_match_rule(of_the_name, &bus, None).await?;
            Ok((signals, owners))
        };
        let (signals, owners) = within(timing.probe, "AddMatch", subscribe).await?;
        Ok(Self {
            owner: login1::owner(&bus, timing.probe).await.ok(),
            manager: login1::manager(&bus).await?,
            bus,
            signals,
            owners,
            probe: timing.probe,
            complained: false,
        })
    }

    /// `NameOwnerChanged`: remembers who logind is; whether somebody is it.
    pub(super) fn new_owner(&mut self, message: &Message) -> bool {
        // (name, old owner, new owner); a body of another form cannot come from the bus itself.
        if let Ok((_, _, new)) = message.body().deserialize::<(String, String, String)>() {
            self.owner = Some(new).filter(|new| !new.is_empty());
        }
        self.owner.is_some()
    }

    /// Reads a signal; `None` for what does not concern us, is malformed or not from logind.
    pub(super) async fn understand(&mut self, message: &Message) -> Option<Heard> {
        let header = message.header();
        let member = header.member()?.to_string();
        if header.interface()?.as_str() == "org.freedesktop.DBus.Properties" {
            let body: (String, HashMap<String, OwnedVariant>, Vec<String>) =
                self.body(message, &member)?;
            let named = body.1.contains_key("ScheduledShutdown")
                || body.2.iter().any(|name| name == "ScheduledShutdown");
            return (named && self.is_from_logind(message).await).then_some(Heard::Schedule);
        }
        if header.interface()?.as_str() != login1::INTERFACE {
            return None;
        }
        let (begins, heard) = match member.as_str() {
            "PrepareForShutdown" => (self.body::<bool>(message, &member)?, Heard::Prepare),
            "PrepareForShutdownWithMetadata" => {
                let (begins, about) =
                    self.body::<(bool, HashMap<String, OwnedVariant>)>(message, &member)?;
                (begins, Heard::PrepareWithMetadata(kind_of(&about)))
            }
            _ => return None,
        };
        let heard = if begins { heard } else { Heard::Unprepare };
        self.is_from_logind(message).await.then_some(heard)
    }

    /// Whether the sender owns logind's name. A new owner's first signal may come before the news of it.
    async fn is_from_logind(&mut self, message: &Message) -> bool {
        let sender = message.header().sender().map(ToString::to_string);
        if sender.is_some() && sender == self.owner {
            return true;
        }
        self.owner = login1::owner(&self.bus, self.probe).await.ok();
        if sender.is_some() && sender == self.owner {
            return true;
        }
        let sender = sender.unwrap_or_else(|| "nobody".into());
        self.complain(&format!("it comes from {sender}, which is not logind"));
        false
    }

    fn body<T: DeserializeOwned + zbus::Type>(
        &mut self,
        message: &Message,
        member: &str,
    ) -> Option<T> {
        match message.body().deserialize::<T>() {
            Ok(body) => Some(body),
            Err(error) => {
                self.complain(&format!("{member} has a body of another form: {error}"));
                None
            }
        }
    }

    /// Once per connection: anybody can send as many as they like.
    fn complain(&mut self, why: &str) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(why, "a signal was ignored; more of them are not told");
        }
    }
}

/// The kind in logind's metadata; unknown words are no kind.
pub(super) fn kind_of(metadata: &HashMap<String, OwnedVariant>) -> Option<Then> {
    kind(metadata.get("type")?.try_into().ok()?)
}

/// The kind that a word of logind means.
pub(super) fn kind(word: &str) -> Option<Then> {
    [
        Then::Poweroff,
        Then::Reboot,
        Then::Halt,
        Then::Kexec,
        Then::SoftReboot,
    ]
    .into_iter()
    .find(|then| then.word() == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zbus::Variant;

    #[test]
    fn kinds_are_read_from_the_wire_word() {
        let about = |word: &str| {
            let value = OwnedVariant::try_from(Variant::new(word.to_owned())).unwrap();
            HashMap::from([("type".to_owned(), value)])
        };
        assert_eq!(kind_of(&about("poweroff")), Some(Then::Poweroff));
        assert_eq!(kind_of(&about("soft-reboot")), Some(Then::SoftReboot));
        assert_eq!(kind_of(&about("power-off")), None, "only in the manual");
        assert_eq!(kind_of(&HashMap::new()), None);
        let number = OwnedVariant::try_from(Variant::new(3_u32)).unwrap();
        assert_eq!(kind_of(&HashMap::from([("type".to_owned(), number)])), None);
    }
}
