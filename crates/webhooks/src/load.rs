//! Reads endpoints with their states, and open replays: of all accounts at a start, and of some
//! when their buckets come. Knows nothing of the engine that opens them.

use crate::limits::Limits;
use crate::store_retry::until_answered;
use model::schema::Builtin;
use model::{CollectionIx, Record, Schema, Scope};
use std::sync::Arc;
use store::cluster::{BUCKETS, Bucket, bucket_of, head_of};
use store::{BoxFuture, EndpointStates, Error, Store};

/// Records read at a time.
const PAGE: usize = 256;

/// Endpoints with their states, and replays.
#[derive(Default)]
pub struct LoadedEndpoints {
    pub endpoints: Vec<(Scope, Record)>,
    pub replays: Vec<(Scope, Record)>,
    pub states: EndpointStates,
}

/// Reads endpoints, and replays with work left: of the accounts in these buckets, or of all. `beat`
/// is called after each read.
pub async fn load(
    store: &Arc<dyn Store>,
    schema: &Schema,
    buckets: Option<Vec<Bucket>>,
    limits: &Limits,
    beat: &dyn Fn(),
) -> LoadedEndpoints {
    let start = (limits, beat);
    let mut is_wanted = [buckets.is_none(); BUCKETS];
    for bucket in buckets.iter().flatten() {
        is_wanted[usize::from(*bucket)] = true;
    }
    let wanted = |scope: Scope| is_wanted[usize::from(bucket_of(scope))];
    let served = async |builtin: Builtin| {
        let collection = schema.own(builtin);
        let read = |after| store.every_served(collection, buckets.clone(), after, PAGE);
        let mut all = paged(read, start).await;
        all.retain(|(scope, _)| wanted(*scope));
        all
    };
    let endpoints = served(Builtin::Endpoint).await;
    let replays = served(Builtin::Replay).await;
    let heads = buckets.iter().flatten().map(|bucket| head_of(*bucket)).collect();
    let states = states(store, &endpoints, heads, start).await;
    LoadedEndpoints { endpoints, replays, states }
}

/// The records of a collection, of all accounts.
pub async fn every(
    store: &Arc<dyn Store>,
    collection: CollectionIx,
    start: (&Limits, &dyn Fn()),
) -> Vec<(Scope, Record)> {
    paged(|after| store.every(collection, after, PAGE), start).await
}

/// All that is read page by page.
async fn paged<'a>(
    read: impl Fn(i64) -> BoxFuture<'a, Result<Vec<(Scope, Record)>, Error>>,
    (limits, beat): (&Limits, &dyn Fn()),
) -> Vec<(Scope, Record)> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = until_answered("records", limits, || read(after)).await;
        beat();
        let more = page.len() == PAGE;
        after = page.last().map_or(after, |(_, record)| record.number);
        all.extend(page);
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
