//! The daemon on the bus, as the command line sees it.

use super::daemon::{AT_LEAST, CallError, Daemon, Feed};
use crate::bus::client::Following;
use crate::bus::{Client, ClientError};
use crate::drain::plan::Plan;
use crate::drain::status::Status;
use crate::drain::trigger::{Ending, Trigger};
use std::sync::Arc;
use std::time::Duration;

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unreachable(why) => Self::Unreachable(why),
            ClientError::Refused(why) => Self::Refused(why),
            ClientError::Denied(why) => Self::Denied(why),
            ClientError::Failed(why) => Self::Failed(why),
        }
    }
}

impl Daemon for Client {
    type Feed = Following;

    async fn trigger(&self, trigger: &Trigger) -> Result<String, CallError> {
        Ok(Client::trigger(self, trigger).await?)
    }

    async fn cancel(&self, abort_migrations: bool) -> Result<String, CallError> {
        Ok(Client::cancel(self, abort_migrations).await?)
    }

    async fn extend(&self, by: Duration) -> Result<String, CallError> {
        Ok(Client::extend(self, by).await?)
    }

    async fn release(&self, ending: Ending) -> Result<String, CallError> {
        Ok(Client::release(self, ending).await?)
    }

    async fn restore(&self) -> Result<String, CallError> {
        Ok(Client::restore(self).await?)
    }

    async fn status(&self) -> Result<Arc<Status>, CallError> {
        Ok(Arc::new(Client::status(self).await?))
    }

    async fn plan(&self) -> Result<Plan, CallError> {
        Ok(Client::plan(self).await?)
    }

    async fn follow(&self) -> Result<Following, CallError> {
        Ok(Client::follow(self, AT_LEAST).await?)
    }
}

impl Feed for Following {
    async fn next(&mut self) -> Result<Arc<Status>, CallError> {
        Ok(Arc::new(Following::next(self).await?))
    }
}
