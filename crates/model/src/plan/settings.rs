//! Edits of settings of the whole service, its log and its live channels. Hints, timeouts and
//! development settings are not compared: no client relies on them.

use super::{PEOPLE, TAKEN, Work};
use crate::parse::duration_text;
use crate::schema::{RateLimit, Schema};

impl Work<'_> {
    pub(super) fn settings(&mut self) {
        let (old, new) = (self.old, self.new);
        let (were, are) = (&old.service, &new.service);
        let errors = |schema: &Schema| format!("{:?}", schema.service.errors).to_lowercase();
        self.setting("service.errors", &errors(old), &errors(new), "clients read the other shape");
        let why = "clients connect to the old path";
        self.setting("live.mount", &old.live.mount, &new.live.mount, why);
        self.setting("live.socket", &old.live.socket, &new.live.socket, why);
        let why = "bodies that were accepted are refused";
        self.bound("service.max_body", were.max_body_bytes, are.max_body_bytes, why);
        let why = "pages are shorter than clients ask for";
        self.bound("service.max_page", were.max_page as usize, are.max_page as usize, why);
        self.rate_limit(were.rate_limit, are.rate_limit);
        let texts = [were, are].map(|service| (&service.name, &service.description));
        self.note("service", &texts[0], &texts[1], "described otherwise", PEOPLE);
        let types = [old, new].map(|schema| {
            schema.events.published.iter().map(|kind| kind.name.clone()).collect::<Vec<_>>()
        });
        self.offers("events.types", "the event type", &types[0], &types[1]);
        self.retention();
        self.live();
    }

    /// A limit: a smaller one breaks clients.
    fn bound(&mut self, place: &str, was: usize, is: usize, why: &str) {
        if is < was {
            self.breaks(place, format!("{was} became {is}"), why);
        } else if is > was {
            self.safe(place, format!("{was} became {is}"), TAKEN);
        }
    }

    fn rate_limit(&mut self, was: RateLimit, is: RateLimit) {
        let place = "service.rate_limit";
        // The number of windows of the old limit that begin in one of the new.
        let windows = is.window.as_millis().div_ceil(was.window.as_millis().max(1));
        if u128::from(is.requests) < u128::from(was.requests) * windows {
            let (many, span) = (is.requests, duration_text(is.window));
            let what = format!("allows {many} requests in {span}, which is less");
            self.breaks(place, what, "requests that were accepted are refused");
        } else {
            self.note(place, &was, &is, "allows more", TAKEN);
        }
    }

    fn retention(&mut self) {
        let (old, new) = (&self.old.events, &self.new.events);
        let [was, is] = [old.retention, new.retention].map(duration_text);
        if new.retention < old.retention {
            let why = "older events are deleted, and cannot be read or replayed any more";
            let (what, said) = (format!("{was} became {is}"), format!("retention = \"{was}\""));
            self.put_back("events.retention", &what, why, ("events", &said));
        } else {
            let what = format!("{was} became {is}");
            self.note("events.retention", &was, &is, &what, "more is kept");
        }
    }

    fn live(&mut self) {
        let (old, new) = (&self.old.live, &self.new.live);
        // `*` admits every origin.
        let admitted = |all: &[String], origin: &String| all.contains(origin) || all == ["*"];
        let (was, is) = (&self.old.service.origins, &self.new.service.origins);
        for origin in was.iter().filter(|origin| !admitted(is, origin)) {
            let what = format!("`{origin}` is gone");
            self.breaks("origins", what, "its pages could not use the API");
        }
        if is.iter().any(|origin| !admitted(was, origin)) {
            self.safe("origins", "more pages may use the API", "nobody is refused");
        }
        let gone = old.origins.iter().filter(|origin| !admitted(&new.origins, origin));
        for origin in gone {
            let what = format!("`{origin}` is gone");
            self.breaks("live.origins", what, "its pages could not connect");
        }
        if new.origins.iter().any(|origin| !admitted(&old.origins, origin)) {
            self.safe("live.origins", "more pages may connect", "nobody is refused");
        }
        let why = "clients that were let in would be refused";
        self.bound("live.max_connections", old.max_connections, new.max_connections, why);
        let [was, is] = [old, new].map(|live| live.max_connections_per_account);
        self.bound("live.max_connections_per_account", was, is, why);
    }
}
