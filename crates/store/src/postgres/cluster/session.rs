//! A connection as the cluster needs it: a client, and the notifications that it receives.

use crate::Error;
use crate::postgres::connect::{Address, Client};
use std::time::Duration;
use tokio::sync::mpsc;

/// Payloads of notifications; they end with the connection.
pub type Notices = mpsc::UnboundedReceiver<String>;

pub struct Session {
    pub client: Client,
    pub notices: Notices,
}

impl Session {
    pub async fn open(address: &Address) -> Result<Session, Error> {
        let (to, notices) = mpsc::unbounded_channel();
        Ok(Session { client: address.listen(to).await?, notices })
    }
}

/// Ends a call of the database that takes too long.
pub async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(patience, call).await.unwrap_or(Err(Error::Timeout))
}
