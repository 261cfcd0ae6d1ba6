//! Ephemeral messages between nodes: an unlogged table that each node reads, and a notification
//! without content that wakes the readers. Behind a pooler that drops notifications a poll is
//! enough. Messages may be lost: with a crash, at a limit, or with the connection of the node that
//! sends them.

use super::session::Session;
use super::tables::{CHANNEL, LOCK_CLASS, LOCK_RELAY};
use crate::Error;
use crate::cluster::Relayed;
use crate::postgres::connect::Cells as _;
use crate::postgres::param::{decoded, params};
use model::Scope;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Messages that wait to be sent, of all accounts and of one.
const OUTBOX: usize = 4096;
const OUTBOX_OF_ACCOUNT: usize = 1024;
/// Bytes of one message, and of those that wait.
const MESSAGE_BYTES: usize = 16 << 10;
const OUTBOX_BYTES: usize = 4 << 20;
/// Messages of other nodes that wait to be passed on.
const INBOX: usize = 8192;
/// Messages written and read at a time.
const BATCH: usize = 512;

#[derive(Default)]
pub struct Outbox {
    state: Mutex<Waiting>,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// Each with the time at which it came.
    messages: VecDeque<(Instant, Relayed)>,
    bytes: usize,
    accounts: HashMap<i64, usize>,
}

impl Outbox {
    /// Drops the message if it is too large, or too many wait. That counts as a loss unless the
    /// node is alone.
    pub fn push(&self, message: Relayed, is_alone: bool) {
        let mut state = self.state.lock();
        let bytes = message.bytes();
        let own = state.accounts.get(&account(&message)).copied().unwrap_or(0);
        let fits = bytes <= MESSAGE_BYTES
            && state.bytes + bytes <= OUTBOX_BYTES
            && state.messages.len() < OUTBOX
            && own < OUTBOX_OF_ACCOUNT;
        if !fits {
            self.dropped.fetch_add(u64::from(!is_alone), Relaxed);
            return;
        }
        *state.accounts.entry(account(&message)).or_default() += 1;
        state.bytes += bytes;
        state.messages.push_back((Instant::now(), message));
    }

    /// Forgets what is older. A node that seems to be alone keeps its messages for so long as
    /// another one may be there that it does not know yet.
    pub fn forget(&self, age: Duration) {
        let mut state = self.state.lock();
        while state.messages.front().is_some_and(|(came, _)| came.elapsed() > age) {
            state.pop();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().messages.is_empty()
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    fn take(&self) -> Vec<Relayed> {
        let mut state = self.state.lock();
        std::iter::from_fn(|| state.pop()).take(BATCH).collect()
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<Relayed> {
        let (_, message) = self.messages.pop_front()?;
        self.bytes -= message.bytes();
        if let Some(own) = self.accounts.get_mut(&account(&message)) {
            *own -= 1;
            if *own == 0 {
                self.accounts.remove(&account(&message));
            }
        }
        Some(message)
    }
}

fn account(message: &Relayed) -> i64 {
    match message {
        Relayed::Typing { scope, .. } | Relayed::Online { scope, .. } => scope.account_number(),
    }
}

#[derive(Default)]
pub struct Inbox {
    messages: Mutex<VecDeque<Relayed>>,
    came: Notify,
}

impl Inbox {
    /// The oldest make room.
    pub fn push(&self, messages: Vec<Relayed>) {
        let mut waiting = self.messages.lock();
        waiting.extend(messages);
        let over = waiting.len().saturating_sub(INBOX);
        drop(waiting.drain(..over));
        drop(waiting);
        self.came.notify_one();
    }

    pub async fn take(&self) -> Vec<Relayed> {
        loop {
            let messages = std::mem::take(&mut *self.messages.lock());
            if !messages.is_empty() {
                return messages.into();
            }
            self.came.notified().await;
        }
    }
}

/// Locked, so that the order of numbers is the order of commits, and no reader passes over one.
const SEND: &str = "WITH l AS MATERIALIZED (SELECT pg_advisory_xact_lock($1::int, $2::int)) \
    INSERT INTO restive_relay (node, at, scope, kind, about, body) \
    SELECT $3, clock_timestamp(), k.scope, k.kind, k.about, k.body FROM l \
    CROSS JOIN unnest($4::bigint[], $5::bigint[], $6::text[], $7::text[]) \
    k (scope, kind, about, body)";
const READ: &str = "SELECT n, node, scope, kind, about, body FROM restive_relay WHERE n > $1 \
    ORDER BY n LIMIT $2";
const NEWEST: &str = "SELECT coalesce(max(n), 0) FROM restive_relay";
const CLEAN: &str = "DELETE FROM restive_relay WHERE at < clock_timestamp() - interval '10 s'";

const TYPING: i64 = 0;
const ONLINE: i64 = 1;
const OFFLINE: i64 = 2;

/// Sends some of what waits. What is lost with the connection stays lost.
pub async fn send(session: &Session, outbox: &Outbox, node: i64) -> Result<(), Error> {
    let messages = outbox.take();
    let (mut scopes, mut kinds) = (Vec::new(), Vec::new());
    let (mut abouts, mut bodies): (Vec<Option<&str>>, Vec<&str>) = Default::default();
    for message in &messages {
        let (scope, kind, about, body) = match message {
            Relayed::Typing { scope, about, members } => (scope, TYPING, about.as_deref(), members),
            Relayed::Online { scope, user, online } => {
                (scope, if *online { ONLINE } else { OFFLINE }, None, user)
            }
        };
        scopes.push(scope.0);
        kinds.push(kind);
        abouts.push(about);
        bodies.push(body);
    }
    let values = params![LOCK_CLASS, LOCK_RELAY, node, scopes, kinds, abouts, bodies];
    session.client.execute(SEND, values).await?;
    session.client.query("SELECT pg_notify($1, '')", params![CHANNEL]).await?;
    Ok(())
}

/// The message after which a connection begins to read: the newest one, or where the one before it
/// has ended.
pub async fn begin(session: &Session, read: Option<i64>) -> Result<i64, Error> {
    let row = session.client.row(NEWEST, params![]).await?;
    let newest = row.map_or(Ok(0), |row| row.cell(0))?;
    Ok(match read {
        None => newest,
        // A crash of the database empties the table, and its numbers begin again.
        Some(read) if read > newest => 0,
        Some(read) => read,
    })
}

/// Messages of other nodes after a number, which moves on.
pub async fn read(session: &Session, after: &mut i64, node: i64) -> Result<Vec<Relayed>, Error> {
    let mut found = Vec::new();
    loop {
        let max = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let rows = session.client.query(READ, params![*after, max]).await?;
        for row in &rows {
            *after = row.cell(0)?;
            if row.cell::<i64>(1)? == node {
                continue;
            }
            let (scope, body) = (Scope(row.cell(2)?), decoded(row.cell(5)?));
            let about = row.cell::<Option<String>>(4)?.map(decoded);
            found.push(match row.cell::<i64>(3)? {
                TYPING => Relayed::Typing { scope, about, members: body },
                kind => Relayed::Online { scope, user: body, online: kind == ONLINE },
            });
        }
        if rows.len() < BATCH || found.len() >= INBOX {
            return Ok(found);
        }
    }
}

pub async fn clean(session: &Session) -> Result<(), Error> {
    session.client.execute(CLEAN, params![]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_leaves_room_for_the_messages_of_others() {
        let outbox = Outbox::default();
        let message = |account: i64, bytes: usize| Relayed::Typing {
            scope: Scope::new(account, true),
            about: None,
            members: "x".repeat(bytes),
        };
        (0..OUTBOX).for_each(|_| outbox.push(message(1, 10), false));
        outbox.push(message(2, 10), false);
        outbox.push(message(3, MESSAGE_BYTES), false);
        outbox.push(message(3, MESSAGE_BYTES), true);
        let dropped = (OUTBOX - OUTBOX_OF_ACCOUNT) as u64 + 1;
        assert_eq!(outbox.dropped(), dropped);
        let mut count = 0;
        while !outbox.is_empty() {
            count += outbox.take().len();
        }
        assert_eq!(count, OUTBOX_OF_ACCOUNT + 1);
        let state = outbox.state.lock();
        assert_eq!((state.bytes, state.accounts.len()), (0, 0));
    }
}
