//! Creating, reading, changing and deleting in every version: bodies, repeated requests, tags, the
//! account's pin, and the OpenAPI document.

use super::shape::Fields;
use super::{Happened, Kept, World};
use crate::harness::Answer;
use serde_json::{Value, json};

impl World<'_> {
    /// The writes of a client of a version to a new record.
    pub fn write(&mut self, version: usize, collection: usize) {
        let list = self.list_path(collection);
        if !self.collection(collection).is_served(version) {
            self.ask(version, "GET", &list, None).error(404, "route_not_found");
            return;
        }
        let place = self.create(version, collection);
        self.read_in_all(place);
        if !self.collection(collection).feed {
            self.send_back(version, place);
            self.patch(version, place);
            self.read_in_all(place);
            self.put(version, place);
            self.read_in_all(place);
            self.touch_up(place);
            self.act(version, place);
        }
    }

    /// Creates a record twice with one key, which has one effect.
    fn create(&mut self, version: usize, collection: usize) -> usize {
        let (about, it) = (self.about(version, collection), self.collection(collection));
        let body = self.body(version, collection);
        let choice = self.chance.below(self.owners(collection).len().max(1));
        let owner = self.owners(collection).get(choice).map(|owner| self.path(owner));
        let home = owner.unwrap_or_default();
        let list = format!("{home}/{}", it.name);
        let fields = it.created(version, &body).unwrap();
        let key = format!("{about}-{}", self.records.len()).replace(' ', "-");
        let ask = || {
            let ask = self.request(version, "POST", &list);
            ask.header("idempotency-key", &key).json(&Value::Object(body.clone())).send()
        };
        self.contracts[version].takes(it.object, &body);
        let made = ask();
        assert_eq!(made.status, 201, "{about}: {body:?}: {}", made.text);
        let kept =
            Kept { collection, fields, assigned: self.assigned(collection, &made.json), home };
        assert_eq!(made.json, self.shown(version, &kept), "{about}: {body:?}");
        let again = ask();
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{about}");
        assert_eq!((again.text, again.status), (made.text.clone(), 201), "{about}");
        let kind = format!("{}.created", it.object);
        self.log.push(Happened { kind, before: None, after: kept.clone() });
        self.records.push(kept);
        self.records.len() - 1
    }

    /// Every version shows the record in its shape, as its document describes, and with a tag of
    /// its own.
    pub fn read_in_all(&self, place: usize) {
        let kept = &self.records[place];
        let mut tags: Vec<(String, Value)> = Vec::new();
        for version in 0..self.plan.dates.len() {
            let answer = self.ask(version, "GET", &self.path(kept), None);
            if !self.collection(kept.collection).is_served(version) {
                answer.error(404, "route_not_found");
                continue;
            }
            self.check_record(version, kept, &answer);
            let ask = self.request(version, "GET", &self.path(kept));
            let unchanged = ask.header("if-none-match", &tag(&answer)).send();
            assert_eq!(unchanged.status, 304, "{}", self.about(version, kept.collection));
            let (own, shown) = (tag(&answer), answer.json);
            let confused = tags.iter().find(|(other, text)| *other == own && *text != shown);
            assert!(confused.is_none(), "{own} is the tag of {shown} and of {confused:?}");
            tags.push((own, shown));
        }
    }

    fn check_record(&self, version: usize, kept: &Kept, answer: &Answer) {
        let about = self.about(version, kept.collection);
        assert_eq!(answer.status, 200, "{about}: {}", answer.text);
        assert_eq!(answer.header("restive-version"), Some(self.plan.dates[version]), "{about}");
        assert_eq!(answer.json, self.shown(version, kept), "{about}, kept as {:?}", kept.fields);
        self.contracts[version].shows(self.collection(kept.collection).object, &answer.json);
    }

    /// Sending back a response unchanged changes nothing.
    fn send_back(&self, version: usize, place: usize) {
        let kept = &self.records[place];
        let shown = self.shown(version, kept);
        let before = self.ask(version, "GET", &self.path(kept), None);
        let after = self.ask(version, "PATCH", &self.path(kept), shown.as_object());
        self.check_record(version, kept, &after);
        assert_eq!(tag(&after), tag(&before), "{}", self.about(version, kept.collection));
    }

    fn patch(&mut self, version: usize, place: usize) {
        let collection = self.records[place].collection;
        let it = self.collection(collection);
        let mut patch = it.shapes[version].patch(&mut self.chance);
        self.refer(version, collection, &mut patch);
        self.say_otherwise(version, collection, &mut patch);
        let fields = it.patched(version, &self.records[place].fields, &patch).unwrap();
        self.change(version, place, ("PATCH", patch), fields);
    }

    /// Clients of some versions change a part of a record that a newest client wrote, and of which
    /// they may not see all.
    fn touch_up(&mut self, place: usize) {
        let collection = self.records[place].collection;
        let it = self.collection(collection);
        let versions = self.plan.dates.len();
        if it.is_served(0) {
            self.put(0, place);
        }
        for _ in 0..2 {
            let version = self.chance.below(versions);
            if !it.is_served(version) {
                continue;
            }
            let mut patch = it.shapes[version].patch(&mut self.chance);
            self.refer(version, collection, &mut patch);
            let field = self.chance.below(patch.len().max(1));
            let patch: Fields = patch.into_iter().skip(field).take(1).collect();
            // A value that newer versions cannot represent is refused; `refusals` covers that.
            let written = it.patched(version, &self.records[place].fields, &patch);
            let Ok(fields) = written else { continue };
            self.change(version, place, ("PATCH", patch), fields);
            self.read_in_all(place);
        }
    }

    fn put(&mut self, version: usize, place: usize) {
        let collection = self.records[place].collection;
        let body = self.body(version, collection);
        let it = self.collection(collection);
        let fields = it.replaced(version, &self.records[place].fields, &body).unwrap();
        self.change(version, place, ("PUT", body), fields);
    }

    /// Changes a record, guarded by the tag of another version.
    fn change(
        &mut self,
        version: usize,
        place: usize,
        (method, body): (&str, Fields),
        fields: Fields,
    ) {
        let kept = self.records[place].clone();
        let (about, it) = (self.about(version, kept.collection), self.collection(kept.collection));
        let served: Vec<usize> =
            (0..self.plan.dates.len()).filter(|&version| it.is_served(version)).collect();
        let reader = served[self.chance.below(served.len())];
        let guard = tag(&self.ask(reader, "GET", &self.path(&kept), None));
        let ask = || {
            let ask = self.request(version, method, &self.path(&kept)).header("if-match", &guard);
            ask.json(&Value::Object(body.clone())).send()
        };
        let answer = ask();
        assert_eq!(
            answer.status, 200,
            "{about}: {method} {body:?} on {:?}: {}",
            kept.fields, answer.text
        );
        let changed = fields != kept.fields;
        let assigned = self.assigned(kept.collection, &answer.json);
        let after = Kept { fields, assigned, ..kept.clone() };
        assert_eq!(
            answer.json,
            self.shown(version, &after),
            "{about}: {method} {body:?} on {:?}",
            kept.fields
        );
        if changed {
            ask().error(412, "precondition_failed");
            let (kind, before) = (format!("{}.updated", it.object), Some(kept.fields));
            self.log.push(Happened { kind, before, after: after.clone() });
        }
        self.records[place] = after;
    }

    /// Without a header, the account's pin selects the version.
    pub fn read_by_pin(&self, version: usize) {
        let date = self.plan.dates[version];
        let mount = self.plan.mount(version);
        let account = format!("{mount}/account");
        let pinned = self.server.post(&account, json!({ "api_version": date })).expect(200);
        assert_eq!(pinned["api_version"], date);
        let served = |kept: &&Kept| self.collection(kept.collection).is_served(version);
        for kept in self.records.iter().filter(served).take(2) {
            let path = format!("{mount}{}", self.path(kept));
            self.check_record(version, kept, &self.server.get(&path));
        }
    }

    /// A version is served below its own mount only.
    pub fn miss_the_mount(&self, version: usize) {
        let other = if self.plan.mount(version) == "/v1" { "/v2" } else { "/v1" };
        if self.plan.turn.is_some() {
            let ask = self.server.ask("GET", &format!("{other}/books"));
            ask.version(self.plan.dates[version]).send().error(400, "unknown_version");
        }
    }

    /// Deletes a record without children and referrers, in some version.
    pub fn delete_one(&mut self) {
        let version = self.chance.below(self.plan.dates.len());
        let fits = |kept: &Kept| {
            let it = self.collection(kept.collection);
            let owns = self.records.iter().any(|other| other.home == self.path(kept));
            let id = kept.assigned["id"].to_string();
            let names = |other: &Kept| json!(other.fields).to_string().contains(&id);
            let is_named = self.records.iter().any(names);
            !it.feed && !owns && !is_named && it.is_served(version)
        };
        let Some(place) = self.records.iter().position(fits) else { return };
        let kept = self.records.remove(place);
        self.ask(version, "DELETE", &self.path(&kept), None).expect(200);
        let kind = format!("{}.deleted", self.collection(kept.collection).object);
        self.log.push(Happened { kind, before: None, after: kept });
    }
}

fn tag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("no ETag: {}", answer.text)).to_owned()
}
