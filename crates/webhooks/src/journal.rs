//! Outcomes in a file of their own the moment they are known, written and not synced: a process
//! that is killed has sent nothing again but what was under way. The store makes the same outcomes
//! durable a little later, many at a time; waiting for that before the next request would cost half
//! the speed. Only a machine that loses power loses this file's end, and sends a little more again.
//!
//! Two pages take turns: one is written while what stands on the other becomes durable. Does not
//! know what an outcome means.

use crate::insist::insist;
use crate::limits::Limits;
use model::{Scope, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Outcome, Settlement, Status, Store};

const NAMES: [&str; 2] = ["outcomes.0", "outcomes.1"];
/// A page that is longer is left when the other one is done with.
const PAGE_BYTES: u64 = 1 << 20;
/// Of one line, at most: an attempt is far below.
const LINE_BYTES: u64 = 1 << 20;

/// Which page an outcome stands on; `None` where nothing is written down.
pub type Place = Option<usize>;

/// One line. The event's id tells whether the log is still the one this was written for: a database
/// may have been put back from a copy.
#[derive(Deserialize)]
struct Line<'a> {
    endpoint: i64,
    seq: i64,
    #[serde(borrow)]
    event: Cow<'a, str>,
    scope: i64,
    #[serde(borrow)]
    delivery: Cow<'a, str>,
    status: i64,
    attempts: u32,
    next: Option<i64>,
    now: i64,
    #[serde(default)]
    asked: i64,
    #[serde(borrow)]
    attempt: Option<&'a RawValue>,
}

#[derive(Default)]
pub struct Journal {
    pages: Option<[Page; 2]>,
    active: usize,
    buffer: Vec<u8>,
}

struct Page {
    file: File,
    bytes: u64,
    /// Outcomes on it that are not durable yet.
    open: usize,
}

impl Journal {
    /// Settles what the last process wrote down and could not settle, then begins anew. Without a
    /// folder, or where it cannot be written, nothing is written down.
    pub async fn open(folder: Option<&Path>, store: &Arc<dyn Store>, limits: &Limits) -> Journal {
        let Some(folder) = folder else { return Journal::default() };
        for name in NAMES {
            settle_page(&folder.join(name), store, limits).await;
        }
        let pages = NAMES.map(|name| Page::create(folder.join(name)));
        match pages {
            [Ok(first), Ok(second)] => {
                Journal { pages: Some([first, second]), ..Journal::default() }
            }
            [Err(error), _] | [_, Err(error)] => {
                tracing::warn!(%error, "webhooks: no journal; a crash may send more again");
                Journal::default()
            }
        }
    }

    /// Written with the next `flush`.
    pub fn note(&mut self, outcome: &Outcome, event: &str) -> Place {
        let page = self.pages.as_mut()?.get_mut(self.active)?;
        // By hand: the attempt is JSON already, and this is on the way of every delivery.
        let out = &mut self.buffer;
        push_number(out, "{\"endpoint\":", outcome.endpoint);
        push_number(out, ",\"seq\":", outcome.event);
        push_word(out, ",\"event\":\"", event);
        push_number(out, "\",\"scope\":", outcome.scope.0);
        push_word(out, ",\"delivery\":\"", &outcome.id);
        push_number(out, "\",\"status\":", outcome.status as i64);
        push_number(out, ",\"attempts\":", i64::from(outcome.attempts));
        match outcome.next {
            Some(next) => push_number(out, ",\"next\":", next.0),
            None => push_word(out, ",\"next\":", "null"),
        }
        push_number(out, ",\"now\":", outcome.now.0);
        push_number(out, ",\"asked\":", outcome.asked);
        push_word(out, ",\"attempt\":", outcome.attempt.as_deref().unwrap_or("null"));
        out.extend_from_slice(b"}\n");
        page.open += 1;
        Some(self.active)
    }

    /// What was noted is out of this process. Must come before the next request is begun.
    pub fn flush(&mut self) {
        let Some(pages) = &mut self.pages else { return };
        if self.buffer.is_empty() {
            return;
        }
        let page = &mut pages[self.active];
        let mut written = page.file.write_all(&self.buffer);
        page.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        let other = 1 - self.active;
        if page.bytes >= PAGE_BYTES && pages[other].open == 0 {
            written = written.and_then(|()| pages[other].begin());
            self.active = other;
        }
        if let Err(error) = written {
            tracing::warn!(%error, "webhooks: the journal ends here; a crash may send more again");
            self.pages = None;
        }
    }

    /// An outcome that was noted is durable.
    pub fn settled(&mut self, place: Place) {
        if let (Some(pages), Some(place)) = (&mut self.pages, place) {
            pages[place].open = pages[place].open.saturating_sub(1);
        }
    }

    /// All outcomes are durable: the next start has nothing to read.
    pub fn close(&mut self) {
        for page in self.pages.iter_mut().flatten() {
            if page.open == 0
                && let Err(error) = page.file.set_len(0)
            {
                tracing::warn!(%error, "webhooks: the journal cannot be emptied");
            }
        }
    }
}

fn push_word(out: &mut Vec<u8>, name: &str, word: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(word.as_bytes());
}

fn push_number(out: &mut Vec<u8>, name: &str, number: i64) {
    push_word(out, name, itoa::Buffer::new().format(number));
}

impl Page {
    fn create(path: PathBuf) -> io::Result<Page> {
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
        Ok(Page { file, bytes: 0, open: 0 })
    }

    /// What stands there is written over, not cut off: that spares the file system finding room
    /// anew.
    fn begin(&mut self) -> io::Result<()> {
        self.bytes = 0;
        self.file.rewind()
    }
}

/// Settles those outcomes of a page that the store does not know.
async fn settle_page(path: &Path, store: &Arc<dyn Store>, limits: &Limits) {
    let mut reader = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, %path, "webhooks: the journal cannot be read");
            return;
        }
    };
    loop {
        let noted = read_some(&mut reader, limits.settlement);
        if noted.is_empty() {
            return;
        }
        let outcomes = unknown(noted, store, limits).await;
        if outcomes.is_empty() {
            continue;
        }
        tracing::info!(outcomes = outcomes.len(), "webhooks: outcomes from before the crash");
        let settlement = Settlement { outcomes, ..Settlement::default() };
        insist("outcomes", limits, || store.settle(settlement.clone())).await;
    }
}

/// The next lines that are whole. Others are remains: of a page that was written over, or of the
/// last moment before the power went.
fn read_some(reader: &mut impl BufRead, most: usize) -> Vec<(String, Outcome)> {
    let mut noted = Vec::new();
    let mut line = Vec::new();
    while noted.len() < most {
        line.clear();
        let read = io::Read::take(&mut *reader, LINE_BYTES).read_until(b'\n', &mut line);
        if !read.is_ok_and(|bytes| bytes > 0) {
            break;
        }
        noted.extend(serde_json::from_slice::<Line<'_>>(&line).ok().and_then(Line::outcome));
    }
    noted
}

/// Those whose event is still the same and whose attempt has no row yet.
async fn unknown(
    noted: Vec<(String, Outcome)>,
    store: &Arc<dyn Store>,
    limits: &Limits,
) -> Vec<Outcome> {
    let mut by_endpoint: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (_, outcome) in &noted {
        by_endpoint.entry(outcome.endpoint).or_default().push(outcome.event);
    }
    let mut attempts: BTreeMap<(i64, i64), u32> = BTreeMap::new();
    for (endpoint, events) in &by_endpoint {
        let ask = || store.deliveries(*endpoint, events);
        for delivery in insist("deliveries", limits, ask).await {
            attempts.insert((*endpoint, delivery.event), delivery.attempts);
        }
    }
    let mut found = Vec::new();
    for (event, outcome) in noted {
        let known = attempts.entry((outcome.endpoint, outcome.event)).or_default();
        if *known >= outcome.attempts {
            continue;
        }
        let ask = || store.events(Some(outcome.scope), outcome.event - 1, 1);
        let logged = insist("the log", limits, ask).await;
        if logged.first().is_some_and(|logged| logged.id == event) {
            *known = outcome.attempts;
            found.push(outcome);
        }
    }
    found
}

impl Line<'_> {
    fn outcome(self) -> Option<(String, Outcome)> {
        let status = match self.status {
            0 => Status::Pending,
            1 => Status::Succeeded,
            2 => Status::Failed,
            3 => Status::Skipped,
            _ => return None,
        };
        let outcome = Outcome {
            scope: Scope(self.scope),
            endpoint: self.endpoint,
            event: self.seq,
            id: self.delivery.into_owned(),
            // The store finds the row, if there is one.
            number: None,
            status,
            attempts: self.attempts,
            next: self.next.map(Timestamp),
            now: Timestamp(self.now),
            asked: self.asked,
            attempt: self.attempt.map(|text| text.get().to_owned()),
        };
        Some((self.event.into_owned(), outcome))
    }
}
