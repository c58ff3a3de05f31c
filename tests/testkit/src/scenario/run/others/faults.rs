//! How the API server misbehaves: the events `api.*`.

use super::Others;
use crate::api::failure::Failure;
use crate::api::faults::{Effect, Rule};
use crate::api::log::Filter;
use crate::scenario::event::api::{Answer, ApiDo, Trouble};

impl Others<'_> {
    pub(super) fn api(&self, what: &ApiDo) {
        let server = &self.cluster.server;
        let now = server.clock().elapsed();
        match what {
            ApiDo::Answer(answer) => {
                server.faults.add(self.answer(answer));
            }
            ApiDo::Drop(it) => self.trouble(
                it,
                Effect::Drop {
                    after_write: it.after_write,
                },
            ),
            ApiDo::Hang(it) => self.trouble(
                it,
                Effect::Hang {
                    after_write: it.after_write,
                },
            ),
            ApiDo::Delay(it) => {
                self.trouble(it, Effect::Delay(it.by.unwrap_or_default().0));
            }
            ApiDo::Down(down) => server.faults.down(self.moment(down.until)),
            ApiDo::ExpireWatches => server.expire_watches(),
            ApiDo::CloseWatches => server.faults.close_watches(),
            ApiDo::RotateCredentials(rotate) => {
                server.faults.rotate_credentials(now, rotate.grace.0);
            }
        }
    }

    /// Faults hit the agent, not the played parts, which share its credentials: those fill a real node in other ways.
    fn filter(&self, parts: [&Option<String>; 4]) -> Filter {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let [verb, resource, subresource, name] = parts;
        let without = subresource.is_none() && resource.is_some();
        Filter {
            user: format!("system:node:{}", self.host),
            verb: text(verb),
            resource: text(resource),
            subresource: if without {
                "-".into()
            } else {
                text(subresource)
            },
            name: text(name),
            ..Filter::default()
        }
    }

    fn answer(&self, answer: &Answer) -> Rule {
        let mut failure = match &answer.reason {
            Some(reason) => Failure::new(answer.status, reason, answer.message.clone()),
            None => Failure {
                reason: None,
                ..Failure::new(answer.status, "", answer.message.clone())
            },
        };
        for cause in &answer.causes {
            failure = failure.with_cause(&cause.reason, &cause.message, "");
        }
        if let Some(wait) = answer.retry_after {
            // The header counts whole seconds of whoever reads it.
            let real = wait.0.div_f64(self.cluster.server.clock().speed());
            let whole = real.as_secs_f64().ceil();
            let whole = std::time::Duration::from_secs_f64(whole).as_secs();
            failure = failure.with_retry_after(u32::try_from(whole).unwrap_or(u32::MAX));
        }
        Rule {
            filter: self.filter([
                &answer.verb,
                &answer.resource,
                &answer.subresource,
                &answer.name,
            ]),
            effect: Effect::Answer(failure),
            times: answer.times,
            until: self.moment(answer.until),
        }
    }

    fn trouble(&self, trouble: &Trouble, effect: Effect) {
        self.cluster.server.faults.add(Rule {
            filter: self.filter([
                &trouble.verb,
                &trouble.resource,
                &trouble.subresource,
                &trouble.name,
            ]),
            effect,
            times: trouble.times,
            until: self.moment(trouble.until),
        });
    }
}
