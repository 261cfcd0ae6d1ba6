//! Outcomes in a file of their own the moment they are known, written and not synced: a process
//! that is killed has sent nothing again but what was in flight. The store makes the same outcomes
//! durable a little later, many at a time; waiting for that before the next request would cost half
//! the speed. Only a machine that loses power loses this file's end, and sends a little more again.
//!
//! Two pages take turns: one is written while what stands on the other becomes durable. Every line
//! begins with its length and checksum: a line that a power cut tore is ignored. Does not know what
//! an outcome means.

use crate::limits::Limits;
use crate::store_retry::until_answered;
use model::event::Event;
use model::record::{Fields, parse_object};
use model::{Scope, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::cluster::{Lease, bucket_of};
use store::{Outcome, Settlement, Status, Store};

const NAMES: [&str; 2] = ["outcomes.0", "outcomes.1"];
/// A page that is longer is left when the other one is done with.
const PAGE_BYTES: u64 = 1 << 20;
/// Of one line, at most: an attempt is far below.
const LINE_BYTES: u64 = 1 << 20;
/// Length and checksum of a line in hexadecimal, each followed by a space.
const PREFIX_BYTES: usize = 18;

/// Which page an outcome stands on; `None` where nothing is written down.
pub type Place = Option<usize>;

/// One line. The id of the event shows whether the log is still the one this was written for: a
/// database may have been put back from a copy.
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
    /// The fence of the lease under which it was sent, where there are leases.
    #[serde(default)]
    fence: Option<i64>,
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
    /// Something on it was erased: it is emptied as soon as all its outcomes are durable.
    erased: bool,
}

impl Journal {
    /// Settles what the last process wrote down and could not settle, then starts again. Without a
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
    pub fn note(&mut self, outcome: &Outcome, event: &str, fence: Option<i64>) -> Place {
        let page = self.pages.as_mut()?.get_mut(self.active)?;
        // By hand: the attempt is JSON already, and this is on the path of every delivery.
        let out = &mut self.buffer;
        let start = out.len();
        out.extend_from_slice(&[b' '; PREFIX_BYTES]);
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
        if let Some(fence) = fence {
            push_number(out, ",\"fence\":", fence);
        }
        push_word(out, ",\"attempt\":", outcome.attempt.as_deref().unwrap_or("null"));
        out.push(b'}');
        let line = &out[start + PREFIX_BYTES..];
        let prefix = format!("{:08x} {:08x} ", line.len(), crc32fast::hash(line));
        out[start..start + PREFIX_BYTES].copy_from_slice(prefix.as_bytes());
        out.push(b'\n');
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
        let full = page.bytes >= PAGE_BYTES || page.erased;
        if full && pages[other].open == 0 && !pages[other].erased {
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
            self.empty_erased();
        }
    }

    /// Events were erased: what receivers answered to them must not stay here.
    pub fn erase(&mut self) {
        for page in self.pages.iter_mut().flatten() {
            page.erased = true;
        }
        self.empty_erased();
    }

    /// Empties the pages that must be and can be. What is noted and not written yet counts as on
    /// the active page.
    fn empty_erased(&mut self) {
        for page in self.pages.iter_mut().flatten() {
            if !page.erased || page.open > 0 {
                continue;
            }
            match page.file.set_len(0).and_then(|()| page.begin()) {
                Ok(()) => page.erased = false,
                Err(error) => tracing::warn!(%error, "webhooks: the journal cannot be emptied"),
            }
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
        Ok(Page { file, bytes: 0, open: 0, erased: false })
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
        for settlement in by_lease(outcomes) {
            until_answered("outcomes", limits, || store.settle(settlement.clone())).await;
        }
    }
}

/// Outcomes that were sent under a lease count only while nobody else has taken it over: a node
/// that has is sending again what it found without an outcome.
fn by_lease(noted: Vec<Noted>) -> Vec<Settlement> {
    let mut settlements: BTreeMap<Option<i64>, Settlement> = BTreeMap::new();
    for Noted { outcome, fence, .. } in noted {
        let settlement = settlements.entry(fence).or_default();
        if let Some(fence) = fence {
            let lease = Lease { bucket: bucket_of(outcome.scope), fence };
            settlement.leases.insert(outcome.endpoint, lease);
        }
        settlement.outcomes.push(outcome);
    }
    settlements.into_values().collect()
}

/// A line that was read.
struct Noted {
    /// Id of the event.
    event: String,
    outcome: Outcome,
    fence: Option<i64>,
}

/// The next lines that are whole. Others are remains: of a page that was written over, or of the
/// last moment before the power went.
fn read_some(reader: &mut impl BufRead, most: usize) -> Vec<Noted> {
    let mut noted = Vec::new();
    let mut line = Vec::new();
    while noted.len() < most {
        line.clear();
        let read = io::Read::take(&mut *reader, LINE_BYTES).read_until(b'\n', &mut line);
        if !read.is_ok_and(|bytes| bytes > 0) {
            break;
        }
        let whole = unwrapped(&line).and_then(|line| serde_json::from_slice(line).ok());
        noted.extend(whole.and_then(Line::outcome));
    }
    noted
}

/// A line without its length and checksum, if both are right.
fn unwrapped(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let (prefix, text) = line.split_at_checked(PREFIX_BYTES)?;
    let prefix = std::str::from_utf8(prefix).ok()?;
    let (length, sum) = (prefix.get(..8)?, prefix.get(9..17)?);
    let is = |text: &str, value: u64| u64::from_str_radix(text, 16) == Ok(value);
    let sound = is(length, text.len() as u64) && is(sum, u64::from(crc32fast::hash(text)));
    sound.then_some(text)
}

/// Those whose event is still the same and whose attempt has no row yet.
async fn unknown(noted: Vec<Noted>, store: &Arc<dyn Store>, limits: &Limits) -> Vec<Noted> {
    let mut by_endpoint: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for Noted { outcome, .. } in &noted {
        by_endpoint.entry(outcome.endpoint).or_default().push(outcome.event);
    }
    let mut attempts: BTreeMap<(i64, i64), u32> = BTreeMap::new();
    for (endpoint, events) in &by_endpoint {
        let ask = || store.deliveries(*endpoint, events);
        for delivery in until_answered("deliveries", limits, ask).await {
            attempts.insert((*endpoint, delivery.event), delivery.attempts);
        }
    }
    let mut found = Vec::new();
    for Noted { event, outcome, fence } in noted {
        let known = attempts.entry((outcome.endpoint, outcome.event)).or_default();
        if *known >= outcome.attempts {
            continue;
        }
        let ask = || store.events(Some(outcome.scope), outcome.event - 1, 1);
        let logged = until_answered("the log", limits, ask).await;
        if let Some(logged) = logged.first().filter(|logged| logged.id == event) {
            *known = outcome.attempts;
            let outcome = without_erased(outcome, logged);
            found.push(Noted { event, outcome, fence });
        }
    }
    found
}

/// What a receiver answered to an event that was erased since is not kept.
fn without_erased(mut outcome: Outcome, event: &Event) -> Outcome {
    let object = parse_object(&event.object);
    if object.get("erased") == Some(&Value::Bool(true))
        && let Some(attempt) = outcome.attempt.as_deref().map(parse_object)
    {
        let names = ["response_body", "response_headers"];
        let blank = |(name, value): (String, Value)| match names.contains(&name.as_str()) {
            true => (name, Value::Null),
            false => (name, value),
        };
        let attempt: Fields = attempt.into_iter().map(blank).collect();
        outcome.attempt = Some(Value::Object(attempt).to_string());
    }
    outcome
}

impl Line<'_> {
    fn outcome(self) -> Option<Noted> {
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
        Some(Noted { event: self.event.into_owned(), outcome, fence: self.fence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(event: i64) -> Outcome {
        Outcome {
            scope: Scope::new(1, false),
            endpoint: 4,
            event,
            id: "dlv_1".into(),
            number: None,
            status: Status::Succeeded,
            attempts: 1,
            next: None,
            now: Timestamp(7),
            asked: 0,
            attempt: Some("{\"id\":\"att_1\",\"response_body\":\"secret\"}".into()),
        }
    }

    fn journal(folder: &Path) -> Journal {
        let pages = NAMES.map(|name| Page::create(folder.join(name)).unwrap());
        Journal { pages: Some(pages), ..Journal::default() }
    }

    #[test]
    fn lines_that_are_torn_or_changed_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal(folder.path());
        for event in 1..=3 {
            journal.note(&outcome(event), "evt_1", None);
        }
        journal.flush();
        let text = std::fs::read(folder.path().join(NAMES[0])).unwrap();
        let read = |bytes: &[u8]| -> Vec<i64> {
            let noted = read_some(&mut BufReader::new(bytes), 10);
            noted.iter().map(|noted| noted.outcome.event).collect()
        };
        assert_eq!(read(&text), [1, 2, 3]);
        let line = text.len() / 3;
        assert_eq!(read(&text[..2 * line + 9]), [1, 2]);
        // A line that lost its middle and still is JSON.
        let mut torn = text.clone();
        let at = torn.windows(6).position(|six| six == b"secret").unwrap();
        torn[at] = b'S';
        assert_eq!(read(&torn), [2, 3]);
        assert_eq!(read(b"{\"endpoint\":4}\n\n00 \n"), [0; 0]);
    }

    #[test]
    fn a_durable_erasure_removes_recorded_responses() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal(folder.path());
        let holds = || {
            let read = |name| std::fs::read(folder.path().join(name)).unwrap();
            NAMES.iter().any(|name| read(name).windows(6).any(|six| six == b"secret"))
        };
        let first = journal.note(&outcome(1), "evt_1", None);
        journal.flush();
        journal.erase();
        assert!(holds(), "it is not durable elsewhere yet");
        let clean = Outcome { attempt: None, ..outcome(2) };
        let second = journal.note(&clean, "evt_2", None);
        journal.flush();
        let third = journal.note(&clean, "evt_3", None);
        journal.flush();
        assert_ne!(second, third, "the other page is written from here on");
        journal.settled(first);
        journal.settled(second);
        assert!(!holds());
        assert!(std::fs::metadata(folder.path().join(NAMES[1])).unwrap().len() > 0);
    }
}
