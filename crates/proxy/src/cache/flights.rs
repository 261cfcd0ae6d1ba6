//! The requests for responses that may be stored, by key: whoever wants the same response joins
//! one, and a write marks those that it overtakes. Its lock is the one for writers of the store.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::fill::{Fill, Ticket};
use super::key::Key;
use super::store::{Store, Stored};
use super::vary::Selection;

#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<Key, Vec<Flight>>>);

struct Flight {
    /// The values of the request for the known `Vary` fields.
    fingerprint: u64,
    /// Others may join it.
    is_open: bool,
    fill: Arc<Fill>,
}

impl Flights {
    /// Joins a request for the same response, or begins one: then the ticket is its leader's.
    pub(crate) fn join(&self, key: &Key, fingerprint: u64, is_open: bool) -> (Arc<Fill>, Ticket) {
        let mut flights = self.0.lock();
        let same = flights.entry(key.clone()).or_default();
        let open = same.iter().find(|one| is_open && one.is_open && one.fingerprint == fingerprint);
        let fill = match open {
            Some(flight) => flight.fill.clone(),
            None => {
                let fill = Fill::new();
                same.push(Flight { fingerprint, is_open, fill: fill.clone() });
                fill
            }
        };
        let ticket = fill.ticket();
        (fill, ticket)
    }

    pub(crate) fn end(&self, key: &Key, fill: &Arc<Fill>) {
        let mut flights = self.0.lock();
        if let Some(same) = flights.get_mut(key) {
            same.retain(|flight| !Arc::ptr_eq(&flight.fill, fill));
            if same.is_empty() {
                flights.remove(key);
            }
        }
    }

    /// Stores a response, unless a write has overtaken it. True if it was stored.
    pub(crate) fn store(
        &self,
        store: &Store,
        key: &Key,
        fill: &Fill,
        stored: &Arc<Stored>,
    ) -> bool {
        let _writers = self.0.lock();
        let is_current = !fill.is_outdated();
        if is_current {
            store.insert(key, stored.clone());
        }
        is_current
    }

    /// Removes one stored response.
    pub(crate) fn forget(&self, store: &Store, key: &Key, selection: &Selection) {
        let _writers = self.0.lock();
        store.remove_variant(key, selection);
    }

    /// Removes what is stored for a key, and keeps requests in progress from storing older
    /// responses. True if something was stored.
    pub(crate) fn invalidate(&self, store: &Store, key: &Key) -> bool {
        let mut flights = self.0.lock();
        for flight in flights.remove(key).into_iter().flatten() {
            flight.fill.outdate();
        }
        store.remove(key)
    }
}
