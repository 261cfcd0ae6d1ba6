//! The events of an API in Stripe's form: `GET /v1/events`, newest first, with `starting_after`,
//! `ending_before` and `has_more`.

use super::{EventPage, Provider, event};
use crate::client::{Client, Error};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Events of one page; Stripe's maximum.
const PAGE: &str = "100";
/// Pages on the way to the oldest event: with 100 events each, a million.
const MAX_PAGES: usize = 10_000;

/// Reads Stripe's list from its oldest event on. It first goes back page by page to the begin of
/// the time span, remembering only an id, and then forward with `ending_before`: at most one page
/// is in memory, and events that are created in the meantime are found.
pub struct Stripe {
    client: Client,
    types: Vec<String>,
}

impl Stripe {
    pub fn new(client: Client) -> Stripe {
        Stripe { client, types: Vec::new() }
    }

    /// Only these types, at most 20 (Stripe's limit).
    #[must_use]
    pub fn types(mut self, types: &[&str]) -> Stripe {
        self.types = types.iter().map(|kind| (*kind).to_owned()).collect();
        self
    }

    async fn list(&self, since: u64, parameter: &str, id: Option<&str>) -> Result<List, Error> {
        let mut request = self
            .client
            .get("/v1/events")
            .query("limit", PAGE)
            .query("created[gte]", &since.to_string());
        for kind in &self.types {
            request = request.query("types[]", kind);
        }
        if let Some(id) = id {
            request = request.query(parameter, id);
        }
        request.send().await?.json()
    }

    /// The page with the oldest events, and whether newer ones follow.
    async fn oldest(&self, since: u64) -> Result<(List, bool), Error> {
        let mut list = self.list(since, "starting_after", None).await?;
        let mut walked = false;
        for _ in 0..MAX_PAGES {
            let last = match (list.has_more, list.data.last()) {
                (true, Some(last)) => event(last)?.id,
                _ => return Ok((list, walked)),
            };
            walked = true;
            let next = self.list(since, "starting_after", Some(&last)).await?;
            // The server said that there is more: an empty page ends the walk at this one.
            if next.data.is_empty() {
                return Ok((list, walked));
            }
            list = next;
        }
        Err(Error::Unexpected(format!("the list of events has over {MAX_PAGES} pages")))
    }
}

/// Newest first.
#[derive(Deserialize)]
struct List {
    data: Vec<Box<RawValue>>,
    #[serde(default)]
    has_more: bool,
}

impl Provider for Stripe {
    async fn page(&mut self, since: u64, cursor: Option<&str>) -> Result<EventPage, Error> {
        let (list, more) = match cursor {
            None => self.oldest(since).await?,
            Some(id) => {
                let list = self.list(since, "ending_before", Some(id)).await?;
                let more = list.has_more;
                (list, more)
            }
        };
        let events = list.data.iter().rev().map(|text| event(text));
        let events: Vec<_> = events.collect::<Result<_, _>>()?;
        let next = events.last().filter(|_| more).map(|event| event.id.clone());
        Ok(EventPage { events, next })
    }
}
