//! Lists in every version: filters, ranges, sorting, selected fields and pages, with the names and
//! values of the version.

use super::change::of;
use super::shape::{Field, Kind};
use super::{Kept, World};
use serde_json::{Value, json};
use std::cmp::Ordering;

/// Pages are long enough for all records of the test.
const ALL: &str = "limit=100";

impl World<'_> {
    pub fn list(&mut self, version: usize, collection: usize) {
        let it = self.collection(collection);
        if !it.is_served(version) {
            return;
        }
        let home = self.home(collection);
        let ours = |kept: &&Kept| kept.collection == collection && kept.home == home;
        let kept: Vec<Kept> = self.records.iter().filter(ours).cloned().collect();
        self.finds(version, collection, ALL, &kept.iter().collect::<Vec<_>>());
        for field in it.shapes[version].visible() {
            if field.filter {
                self.filter(version, collection, field, &kept);
                self.range(version, collection, field, &kept);
            }
            if field.sort {
                self.sort(version, collection, field, &kept);
            }
            if field.converted {
                for query in [format!("{}=1", field.name), format!("sort=-{}", field.name)] {
                    let path = format!("{}?{query}", self.list_path(collection));
                    let refused = self.ask(version, "GET", &path, None);
                    refused.error(400, "invalid_parameter");
                }
            }
        }
        self.search(version, collection, &kept);
        self.choose(version, collection, &kept);
    }

    /// Asserts that the list has these records, in any order, each in the shape of the version.
    #[track_caller]
    fn finds(&self, version: usize, collection: usize, query: &str, expected: &[&Kept]) {
        let path = format!("{}?{query}", self.list_path(collection));
        let answer = self.ask(version, "GET", &path, None);
        assert_eq!(answer.status, 200, "{path} in version {version}: {}", answer.text);
        let data = answer.json["data"].as_array().unwrap();
        let expected: Vec<Value> = expected.iter().map(|kept| self.shown(version, kept)).collect();
        let all = data.iter().all(|record| expected.contains(record));
        assert!(
            all && data.len() == expected.len(),
            "{path} in {} finds {data:#?} and not {expected:#?}",
            self.plan.dates[version]
        );
    }

    fn filter(&mut self, version: usize, collection: usize, field: &Field, kept: &[Kept]) {
        let it = self.collection(collection);
        if kept.is_empty() {
            return;
        }
        let seen = |kept: &Kept| of(&it.shown(version, &kept.fields), &field.name);
        let value = seen(&kept[self.chance.below(kept.len())]);
        let text = asked(&value);
        let expected: Vec<&Kept> = kept.iter().filter(|kept| seen(kept) == value).collect();
        self.finds(version, collection, &format!("{ALL}&{}={text}", field.name), &expected);
    }

    fn range(&mut self, version: usize, collection: usize, field: &Field, kept: &[Kept]) {
        let it = self.collection(collection);
        let ordered = matches!(
            field.kind,
            Kind::Whole
                | Kind::Small
                | Kind::UpTo(_)
                | Kind::Number
                | Kind::Ticks(_)
                | Kind::Moment
                | Kind::Day
        );
        if kept.is_empty() || !ordered {
            return;
        }
        let seen = |kept: &Kept| of(&it.shown(version, &kept.fields), &field.name);
        let bound = seen(&kept[self.chance.below(kept.len())]);
        if bound.is_null() {
            return;
        }
        let text = asked(&bound);
        for (side, unwanted) in [("min", Ordering::Less), ("max", Ordering::Greater)] {
            let query = format!("{ALL}&{side}_{}={text}", field.name);
            let fits = |value: &Value| !value.is_null() && compare(value, &bound) != unwanted;
            let expected: Vec<&Kept> = kept.iter().filter(|kept| fits(&seen(kept))).collect();
            self.finds(version, collection, &query, &expected);
        }
    }

    /// By words of stored records, in fields that the version knows.
    fn search(&mut self, version: usize, collection: usize, kept: &[Kept]) {
        const WORDS: [&str; 7] = ["ada", "King", "12", "true", "y", "z", "日本語"];
        let it = self.collection(collection);
        let word = self.chance.pick(&WORDS);
        let query = format!("{ALL}&q={}", asked(&json!(word)));
        if !it.shapes[version].visible().any(|field| field.search) {
            let path = format!("{}?{query}", self.list_path(collection));
            self.ask(version, "GET", &path, None).error(400, "unknown_parameter");
            return;
        }
        let searched: Vec<&Field> = it.searched(version).collect();
        let has = |kept: &&Kept| {
            let text = |field: &&Field| of(&kept.fields, &field.name);
            let texts: Vec<Value> = searched.iter().map(text).collect();
            let texts = texts.iter().filter_map(Value::as_str);
            let mut words = texts.flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
            words.any(|other| other.to_lowercase() == word.to_lowercase())
        };
        let expected: Vec<&Kept> = kept.iter().filter(has).collect();
        self.finds(version, collection, &query, &expected);
    }

    /// Sorted by the shown values, page by page.
    fn sort(&self, version: usize, collection: usize, field: &Field, kept: &[Kept]) {
        let it = self.collection(collection);
        for (sign, wrong) in [("", Ordering::Greater), ("-", Ordering::Less)] {
            let query = format!("limit=2&sort={sign}{}", field.name);
            let ids = self.walk(version, &self.list_path(collection), &query);
            let values: Vec<Value> = ids
                .iter()
                .map(|id| kept.iter().find(|kept| kept.assigned["id"] == *id).unwrap())
                .map(|kept| of(&it.shown(version, &kept.fields), &field.name))
                .collect();
            assert!(
                values.windows(2).all(|two| compare(&two[0], &two[1]) != wrong),
                "{} by {query}: {values:?}",
                self.about(version, collection)
            );
            let mut once = ids.clone();
            once.sort_by_key(Value::to_string);
            once.dedup();
            assert_eq!((once.len(), ids.len()), (kept.len(), kept.len()), "{query}");
        }
    }

    /// The ids of a list, by its cursors.
    fn walk(&self, version: usize, list: &str, query: &str) -> Vec<Value> {
        let mut ids = Vec::new();
        let mut path = format!("{list}?{query}");
        loop {
            let page = self.ask(version, "GET", &path, None);
            ids.extend(page.column("id"));
            match page.json["pagination"]["next_cursor"].as_str() {
                Some(cursor) => path = format!("{list}?{query}&after={cursor}"),
                None => return ids,
            }
        }
    }

    /// Only the selected fields.
    fn choose(&mut self, version: usize, collection: usize, kept: &[Kept]) {
        let it = self.collection(collection);
        let names: Vec<&str> =
            it.shapes[version].visible().map(|field| field.name.as_str()).collect();
        if names.is_empty() || kept.is_empty() {
            return;
        }
        let (first, second) =
            (names[self.chance.below(names.len())], names[self.chance.below(names.len())]);
        let mine = &kept[self.chance.below(kept.len())];
        let path = format!("{}?fields={first},{second}", self.path(mine));
        let shown = self.ask(version, "GET", &path, None).expect(200);
        let mut expected = self.shown(version, mine);
        let members = expected.as_object_mut().unwrap();
        members.retain(|name, _| name == first || name == second);
        assert_eq!(shown, expected, "{path} in {}", self.plan.dates[version]);
    }
}

/// The text of a value in a query.
fn asked(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "%22%22".to_owned(),
        Value::String(text) => text.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        other => other.to_string(),
    }
}

/// Null first, then numbers, then texts by their bytes.
fn compare(one: &Value, other: &Value) -> Ordering {
    let key = |value: &Value| match value {
        Value::Null => (0, 0.0, String::new()),
        Value::Bool(flag) => (1, f64::from(u8::from(*flag)), String::new()),
        Value::Number(number) => (1, number.as_f64().unwrap(), String::new()),
        text => (2, 0.0, text.as_str().unwrap_or_default().to_owned()),
    };
    key(one).partial_cmp(&key(other)).unwrap()
}
