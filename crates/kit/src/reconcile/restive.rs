//! The events of a restive server: `GET /v1/events`, oldest first, by cursor.

use super::{Event, EventPage, Provider, event};
use crate::client::{Client, Error};
use crate::own::includes;
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

    /// Whether a webhook for these types brings this one.
    fn is_sent(&self, kind: &str) -> bool {
        let types = self.types.as_deref().unwrap_or("*");
        types.split(',').any(|pattern| includes(pattern, kind))
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
        // The list includes more in `*` than a webhook for all types brings.
        events.retain(|event: &Event| self.is_sent(&event.kind));
        let next = list.pagination.next_cursor.filter(|_| list.pagination.has_more);
        Ok(EventPage { events, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_type_is_fetched_only_if_it_is_named() {
        let client = || Client::builder("http://127.0.0.1:1").key("sk_test_1").build().unwrap();
        for (types, kind, expected) in [
            (&[][..], "order.created", true),
            (&[], "webhook_endpoint.disabled", false),
            (&["*"], "replay.completed", false),
            (&["*", "webhook_endpoint.disabled"], "webhook_endpoint.disabled", true),
            (&["*", "webhook_endpoint.disabled"], "webhook_endpoint.updated", false),
            (&["webhook_endpoint.*"], "webhook_endpoint.updated", true),
            (&["order.*"], "ping", false),
        ] {
            let provider = match types {
                [] => Restive::new(client()),
                types => Restive::new(client()).types(types),
            };
            assert_eq!(provider.is_sent(kind), expected, "{types:?} {kind}");
        }
    }
}
