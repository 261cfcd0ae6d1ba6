//! Reads endpoints with their states, and replays: of all accounts at a start, and of some when
//! their buckets come. Knows nothing of the engine that opens them.

use crate::limits::Limits;
use crate::store_retry::until_answered;
use model::schema::Builtin;
use model::{CollectionIx, Record, Schema, Scope};
use std::sync::Arc;
use store::{EndpointStates, Store};

/// Records read at a time.
const PAGE: usize = 256;

/// Which endpoints and replays to load.
pub struct Loading {
    /// Rows of positions besides those of the endpoints.
    pub heads: Vec<i64>,
    /// Whether those of an account are wanted.
    pub wanted: Box<dyn Fn(Scope) -> bool>,
}

impl Loading {
    pub fn all() -> Loading {
        Loading { heads: Vec::new(), wanted: Box::new(|_| true) }
    }
}

/// Endpoints with their states, and replays.
#[derive(Default)]
pub struct LoadedEndpoints {
    pub endpoints: Vec<(Scope, Record)>,
    pub replays: Vec<(Scope, Record)>,
    pub states: EndpointStates,
}

/// Reads endpoints and replays; `beat` is called after each read.
pub async fn load(
    store: &Arc<dyn Store>,
    schema: &Schema,
    loading: Loading,
    limits: &Limits,
    beat: &dyn Fn(),
) -> LoadedEndpoints {
    let Loading { heads, wanted } = loading;
    let start = (limits, beat);
    let endpoints = every(store, schema.own(Builtin::Endpoint), &*wanted, start).await;
    let replays = every(store, schema.own(Builtin::Replay), &*wanted, start).await;
    let states = states(store, &endpoints, heads, start).await;
    LoadedEndpoints { endpoints, replays, states }
}

/// The records of a collection, of the accounts that are wanted.
pub async fn every(
    store: &Arc<dyn Store>,
    collection: CollectionIx,
    wanted: &dyn Fn(Scope) -> bool,
    (limits, beat): (&Limits, &dyn Fn()),
) -> Vec<(Scope, Record)> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = until_answered("records", limits, || store.every(collection, after, PAGE)).await;
        beat();
        let more = page.len() == PAGE;
        after = page.last().map_or(after, |(_, record)| record.number);
        all.extend(page.into_iter().filter(|(scope, _)| wanted(*scope)));
        if !more {
            return all;
        }
    }
}

/// The states of these endpoints, and the head. Page by page: one read must end in its time.
async fn states(
    store: &Arc<dyn Store>,
    endpoints: &[(Scope, Record)],
    heads: Vec<i64>,
    (limits, beat): (&Limits, &dyn Fn()),
) -> EndpointStates {
    let read = async |page: &[i64]| {
        let ask = || store.endpoint_states(page.to_vec());
        let states = until_answered("states of endpoints", limits, ask).await;
        beat();
        states
    };
    let mut numbers = heads;
    numbers.extend(endpoints.iter().map(|(_, record)| record.number));
    let mut pages = numbers.chunks(PAGE);
    // Also without endpoints: the head counts for those that are created later.
    let mut all = read(pages.next().unwrap_or_default()).await;
    for page in pages {
        all.endpoints.extend(read(page).await.endpoints);
    }
    all
}
