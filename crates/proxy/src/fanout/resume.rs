//! Opens a shared stream again that the backend has lost, where it was, so that its clients notice
//! nothing. Only a stream that goes on at exactly that position is taken.

use std::future::poll_fn;
use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_ENCODING;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use wire::{Chunks, Payload, Response};

use super::blocks::{Batch, Position, Splitter};
use super::polls::scattered;
use super::reopen::{Reopen, Reopened, is_event_stream};

/// For how long a lost stream is tried. 10 s: most restarts take less, and a client that hears
/// nothing for longer should know.
const RESUME: Duration = Duration::from_secs(10);
/// Streams that are lost together are opened within this time, and not all at once.
const SCATTER: Duration = Duration::from_millis(500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// A restive server sends the first block at once.
const FIRST_BLOCK: Duration = Duration::from_secs(5);

/// A stream that goes on.
pub(super) struct Resumed {
    pub(super) source: Box<dyn Chunks>,
    pub(super) splitter: Splitter,
    /// Blocks that came together with the first one, which is not for the clients.
    pub(super) blocks: Option<Batch>,
}

enum Opened {
    Stream(Resumed),
    /// It does not go on there.
    Refused,
    /// It may later.
    Failed,
}

/// Tries to open the stream after this position. `number` scatters streams that were lost together.
pub(super) async fn resume(repeat: &dyn Reopen, at: Position, number: u64) -> Option<Resumed> {
    let until = Instant::now() + RESUME;
    sleep(SCATTER.mul_f64(f64::from(scattered(number)) / f64::from(u32::MAX))).await;
    while Instant::now() < until {
        match timeout_at(until, open(repeat, at)).await {
            Ok(Opened::Stream(resumed)) => return Some(resumed),
            Ok(Opened::Refused) | Err(_) => return None,
            Ok(Opened::Failed) => sleep(PAUSE).await,
        }
    }
    None
}

async fn open(repeat: &dyn Reopen, at: Position) -> Opened {
    let Ok(Reopened { response, is_restive }) = repeat.reopen(at.to_string()).await else {
        return Opened::Failed;
    };
    let Response { status, headers, body, .. } = response;
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        return Opened::Failed;
    }
    let is_readable = is_event_stream(&headers) && !headers.contains_key(CONTENT_ENCODING);
    if status != StatusCode::OK || !is_readable || !is_restive {
        return Opened::Refused;
    }
    // A server without room sends a body that ends.
    let Payload::Stream(mut source) = body else { return Opened::Failed };
    let mut splitter = Splitter::default();
    let batch = loop {
        let piece = timeout(FIRST_BLOCK, poll_fn(|cx| source.poll_chunk(cx))).await;
        let Ok(Some(Ok(piece))) = piece else { return Opened::Failed };
        match splitter.push(&piece) {
            Ok(None) => {}
            Ok(Some(batch)) => break batch,
            Err(_) => return Opened::Refused,
        }
    };
    match batch.marks.first().map(|first| (first.id, first.has_data)) {
        Some((Some(id), false)) if id == at => {
            Opened::Stream(Resumed { source, splitter, blocks: batch.without_first() })
        }
        Some((None, false)) => Opened::Failed,
        _ => Opened::Refused,
    }
}
