//! Edits of what concerns the whole service: its settings, its log, its live channels.

use super::{Work, lines};
use crate::schema::parse::duration_text;
use crate::schema::{RateLimit, Schema};
use std::time::Duration;

impl Work<'_> {
    pub(super) fn settings(&mut self) {
        let (old, new) = (self.old, self.new);
        let shape = |schema: &Schema| format!("{:?}", schema.service.errors).to_lowercase();
        self.setting("service.errors", &shape(old), &shape(new), "clients read the other shape");
        let why = "clients connect to the old path";
        self.setting("live.mount", &old.live.mount, &new.live.mount, why);
        self.setting("live.socket", &old.live.socket, &new.live.socket, why);
        let (were, are) = (&old.service, &new.service);
        let why = "bodies that were taken are refused";
        self.bound("service.max_body", were.max_body_bytes, are.max_body_bytes, why);
        let why = "pages are shorter than clients ask for";
        self.bound("service.max_page", were.max_page as usize, are.max_page as usize, why);
        self.rate_limit(were.rate_limit, are.rate_limit);
        self.hints("service", &were.early_hints, &are.early_hints);
        if (&were.name, &were.description) != (&are.name, &are.description) {
            self.safe("service", "described otherwise".to_owned(), "only people read it");
        }
        self.published();
        self.retention();
        self.live();
    }

    /// Something there may be less of than before.
    fn bound(&mut self, place: &str, was: usize, is: usize, why: &str) {
        if is < was {
            self.breaking(place, format!("{was} became {is}"), why, None);
        } else if is > was {
            self.safe(place, format!("{was} became {is}"), "what was taken still is");
        }
    }

    fn rate_limit(&mut self, was: RateLimit, is: RateLimit) {
        let place = "service.rate_limit";
        // As many windows of the old limit begin in one of the new.
        let windows = is.window.as_millis().div_ceil(was.window.as_millis().max(1));
        if u128::from(is.requests) < u128::from(was.requests) * windows {
            let why = "requests that were taken are refused";
            let (many, span) = (is.requests, is.window);
            let what = format!("allows {many} requests in {}, which is less", duration_text(span));
            self.breaking(place, what, why, None);
        } else if was != is {
            self.safe(place, "allows more".to_owned(), "what was taken still is");
        }
    }

    /// What browsers may load while they wait.
    pub(super) fn hints(&mut self, place: &str, were: &[String], are: &[String]) {
        if were != are {
            let place = format!("{place}.early_hints");
            self.safe(&place, "changed".to_owned(), "only speed depends on them");
        }
    }

    fn published(&mut self) {
        let (old, new) = (&self.old.events.published, &self.new.events.published);
        for kind in old.iter().filter(|kind| !new.iter().any(|kept| kept.name == kind.name)) {
            let what = format!("the event type `{}` is gone", kind.name);
            self.breaking("events.types", what, "applications publish it", None);
        }
        for kind in new.iter().filter(|kind| !old.iter().any(|known| known.name == kind.name)) {
            let what = format!("the event type `{}` is new", kind.name);
            self.safe("events.types", what, "nobody publishes it yet");
        }
    }

    fn retention(&mut self) {
        let (was, is) = (self.old.events.retention, self.new.events.retention);
        let days = |span: Duration| span.as_secs_f64() / 86_400.0;
        let what = format!("{} days became {}", days(was), days(is));
        if is < was {
            let why = "older events are deleted, and cannot be read or replayed any more";
            let said = format!("retention = \"{}\"", duration_text(was));
            let lines = lines::put_back("events", &said);
            self.destructive("events.retention", what, why, Some(lines));
        } else if is > was {
            self.safe("events.retention", what, "more is kept");
        }
        let (was, is) = (self.old.events.max_backlog, self.new.events.max_backlog);
        if was != is {
            let what = format!("{} days became {}", days(was), days(is));
            self.safe("events.max_backlog", what, "only endpoints that lag behind notice");
        }
    }

    fn live(&mut self) {
        let (old, new) = (&self.old.live, &self.new.live);
        let open = |origins: &[String]| origins.iter().any(|origin| origin == "*");
        for origin in &old.origins {
            if !new.origins.contains(origin) && !open(&new.origins) {
                let what = format!("`{origin}` is gone");
                self.breaking("live.origins", what, "its pages could not connect", None);
            }
        }
        let more = |origin: &String| !old.origins.contains(origin) && !open(&old.origins);
        if new.origins.iter().any(more) {
            self.safe("live.origins", "more pages may connect".to_owned(), "nobody is refused");
        }
        if old.poll_timeout != new.poll_timeout {
            let what = "polls are held for another time".to_owned();
            self.safe("live.poll_timeout", what, "clients poll again when one ends");
        }
        let why = "clients that were let in would be refused";
        self.bound("live.max_connections", old.max_connections, new.max_connections, why);
        self.bound(
            "live.max_connections_per_account",
            old.max_connections_per_account,
            new.max_connections_per_account,
            why,
        );
        if self.old.webhooks.development != self.new.webhooks.development {
            let (what, why) = match self.new.webhooks.development {
                true => ("switched on", "endpoints that were taken still are"),
                false => ("switched off", "what it let in was for development"),
            };
            self.safe("webhooks.development", what.to_owned(), why);
        }
    }
}
