//! The tasks that read the feeds: one for each server, on a connection of its own. A feed that ends
//! is opened again; what was known by it is not.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode};
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::outgoing::{Call, CallTimeouts, Client, Flow, OutgoingLimits, Retry};

use crate::balance::{Backend, Pool};
use crate::follow::{Link, MAX_SILENCE, RESTIVE_EDGE};

const PATH: &str = "/edge/changes";
/// The pause before a feed is opened again, and how often a server is looked at that has not said
/// yet that it is a restive one.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause after a server has refused: it needs another configuration.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// The time for the head of the response.
const OPEN_TIME: Duration = Duration::from_secs(5);
/// The longest line: far more than one has with the most events that a server puts into it.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Reads the feeds of all servers of these pools until it is dropped.
pub(crate) async fn run(secret: Option<HeaderValue>, pools: Vec<Arc<Pool>>) {
    let Some(secret) = secret else { return };
    let mut tasks = JoinSet::new();
    // The secret opens the feeds of all: a server that only says that it is one must not get it.
    let followed = pools.iter().filter(|pool| pool.group.is_followed);
    for backend in followed.flat_map(|pool| &pool.backends) {
        tasks.spawn(follow(backend.clone(), secret.clone()));
    }
    if tasks.is_empty() {
        tracing::warn!("no backend uses the edge secret; write `follow = true` into those that do");
    }
    while tasks.join_next().await.is_some() {}
}

async fn follow(backend: Arc<Backend>, secret: HeaderValue) {
    let client = Client::with_limits(OutgoingLimits { idle_total: 0, ..OutgoingLimits::default() });
    let url = &backend.server.url;
    let mut is_refused = false;
    loop {
        if !backend.is_restive() {
            sleep(PAUSE).await;
            continue;
        }
        match open(&client, &backend, &secret).await {
            Ok(flow) => {
                is_refused = false;
                let why = Session { link: &backend.link, token: None }.read(flow).await;
                tracing::info!(url, why, "the feed of changes has ended; it is opened again");
                sleep(PAUSE).await;
            }
            Err(Some(status)) => {
                if !std::mem::replace(&mut is_refused, true) {
                    let status = status.as_u16();
                    tracing::warn!(
                        url,
                        status,
                        "a server refuses the feed of changes; check that \
                        it has the same edge secret"
                    );
                }
                sleep(REFUSED_PAUSE).await;
            }
            Err(None) => sleep(PAUSE).await,
        }
    }
}

/// The error is the status of a server that refuses.
async fn open(
    client: &Client,
    backend: &Backend,
    secret: &HeaderValue,
) -> Result<Flow, Option<StatusCode>> {
    let mut call = Call::new(Method::GET, &backend.probe);
    call.path = Some(PathAndQuery::from_static(PATH));
    call.headers.insert(RESTIVE_EDGE, secret.clone());
    call.retry = Retry::Never;
    call.timeouts = CallTimeouts { head: OPEN_TIME, stall: MAX_SILENCE, ..Default::default() };
    let opened = client.open(&mut call).await.map_err(|_| None)?;
    match opened.status {
        StatusCode::OK => Ok(opened.flow),
        status if status.is_server_error() => Err(None),
        status => Err(Some(status)),
    }
}

/// One reading of a feed. However it ends, the link is closed.
struct Session<'l> {
    link: &'l Link,
    token: Option<HeaderValue>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl Session<'_> {
    /// Reads to the end; returns why it ended.
    async fn read(mut self, mut flow: Flow) -> &'static str {
        let mut rest = Vec::new();
        loop {
            match flow.piece().await {
                None => return "the server has ended it",
                Some(Err(_)) => return "the connection broke or was silent",
                Some(Ok(piece)) => rest.extend_from_slice(&piece),
            }
            if let Err(why) = self.take_lines(&mut rest) {
                return why;
            }
        }
    }

    /// Takes the whole lines; the rest of the last one stays.
    fn take_lines(&mut self, rest: &mut Vec<u8>) -> Result<(), &'static str> {
        let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
            let is_short = rest.len() <= MAX_LINE_BYTES;
            return if is_short { Ok(()) } else { Err("a line is too long") };
        };
        let lines: Vec<u8> = rest.drain(..=end).collect();
        let lines = std::str::from_utf8(&lines).map_err(|_| "it is no text")?;
        match lines.lines().all(|line| self.take(line).is_some()) {
            true => Ok(()),
            false => Err("a line is not understood"),
        }
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "hello" => {
                let mut token = HeaderValue::from_str(rest).ok()?;
                token.set_sensitive(true);
                self.token = Some(token);
            }
            "change" => {
                let mut words = rest.split(' ');
                let position = words.next()?.parse().ok()?;
                let hashes: Option<Vec<u64>> =
                    words.map(|word| u64::from_str_radix(word, 16).ok()).collect();
                self.link.change(position, hashes?.into_iter());
            }
            "current" => {
                let position = rest.parse().ok()?;
                match self.token.take() {
                    // The first one: from here on everything is reported.
                    Some(token) => self.link.open(token, position),
                    None => self.link.current(position),
                }
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_feed_with_a_line_that_is_not_understood_is_not_used() {
        let link = Link::default();
        let mut session = Session { link: &link, token: None };
        for line in ["hello token", "current 5", "change 6", "change 7 a ff", "current 7"] {
            assert!(session.take(line).is_some(), "{line}");
        }
        assert!(link.is_open());
        for line in ["", "current", "current x", "change", "change 8 x", "change 8  a", "more 1"] {
            assert!(session.take(line).is_none(), "{line}");
        }
        let mut rest = b"current 8\ncurr".to_vec();
        assert!(session.take_lines(&mut rest).is_ok() && rest == b"curr");
        rest.extend_from_slice(b"ent 9\nmore 1\n");
        assert!(session.take_lines(&mut rest).is_err());
        assert!(session.take_lines(&mut vec![b'x'; MAX_LINE_BYTES]).is_ok());
        assert!(session.take_lines(&mut vec![b'x'; MAX_LINE_BYTES + 1]).is_err());
        assert!(session.take_lines(&mut vec![0xff, b'\n']).is_err());
        drop(session);
        assert!(!link.is_open() && link.basis(Instant::now()).is_none());
    }
}
