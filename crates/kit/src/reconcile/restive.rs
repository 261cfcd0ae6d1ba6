//! The events of a restive server: `GET /v1/events`, oldest first, by cursor.

use super::{Event, EventPage, Provider, event};
use crate::client::{Client, Error};
use crate::own::is_own;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Events of one page; the server's maximum by default.
const PAGE: &str = "100";

pub struct Restive {
    client: Client,
    types: Option<String>,
}

impl Restive {
    pub fn new(client: Client) -> Restive {
        Restive { client, types: None }
    }

    /// Only these types, or patterns such as `order.*`: those that the webhook receives.
    #[must_use]
    pub fn types(mut self, types: &[&str]) -> Restive {
        self.types = Some(types.join(","));
        self
    }
}

#[derive(Deserialize)]
struct List {
    data: Vec<Box<RawValue>>,
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    next_cursor: Option<String>,
    has_more: bool,
}

impl Provider for Restive {
    async fn page(&mut self, since: u64, cursor: Option<&str>) -> Result<EventPage, Error> {
        let mut request = self
            .client
            .get("/v1/events")
            .query("sort", "created")
            .query("min_created", &since.to_string())
            .query("limit", PAGE);
        if let Some(types) = &self.types {
            request = request.query("type", types);
        }
        if let Some(cursor) = cursor {
            request = request.query("after", cursor);
        }
        let list: List = request.send().await?.json()?;
        let mut events = list.data.iter().map(|text| event(text)).collect::<Result<Vec<_>, _>>()?;
        // As a webhook for all types does.
        if self.types.as_deref().is_none_or(|types| types.split(',').any(|one| one == "*")) {
            events.retain(|event: &Event| !is_own(&event.kind));
        }
        let next = list.pagination.next_cursor.filter(|_| list.pagination.has_more);
        Ok(EventPage { events, next })
    }
}
