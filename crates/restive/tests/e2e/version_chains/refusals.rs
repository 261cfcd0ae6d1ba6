//! Refusals in every version: errors use only the field names that the client knows.

use super::World;
use super::generate::{ACTION, VETO};
use super::history::Collection;
use super::shape::{Field, Fields, Kind};
use crate::harness::Answer;
use serde_json::{Value, json};

impl World<'_> {
    pub fn refuse(&mut self, version: usize, collection: usize) {
        let it = self.collection(collection);
        if !it.is_served(version) {
            return;
        }
        let good = it.folded(version, &self.body(version, collection));
        let fields: Vec<&Field> = it.shapes[version].writable().collect();
        for field in &fields {
            if field.required {
                let mut body = good.clone();
                body.remove(&field.name);
                self.is_refused(version, collection, &body, &field.name, "required");
            }
            let missing = field.required.then_some((Value::Null, "required"));
            for (value, code) in missing.into_iter().chain(self.unfit(version, it, field)) {
                for name in it.shapes[version].names(field) {
                    let mut body = good.clone();
                    body.remove(&field.name);
                    body.insert(name.clone(), value.clone());
                    self.is_refused(version, collection, &body, name, code);
                    self.is_refused_as_change(version, collection, name, value.clone(), code);
                }
            }
        }
        self.refuse_names_of_others(version, collection, &good);
        self.refuse_parameters(version, collection);
        self.refuse_by_rule(version, collection);
    }

    /// The error of a rule has the code and the names of the version.
    fn refuse_by_rule(&self, version: usize, collection: usize) {
        let Some(code) = &self.collection(collection).shapes[version].code else { return };
        let known = self.records.iter().find(|kept| kept.collection == collection);
        let Some(kept) = known else { return };
        let path = format!("{}/{VETO}", self.path(kept));
        let answer = self.ask(version, "POST", &path, Some(&Fields::new()));
        let about = format!("{VETO} of {}", self.about(version, collection));
        assert_eq!(answer.status, 422, "{about}: {}", answer.text);
        assert_eq!(answer.json["error"]["code"], *code, "{about}: {}", answer.text);
        let error = &answer.json["error"];
        self.is_told_in_own_words(version, collection, error, "");
        let it = self.collection(collection);
        let telling = it.telling(version, &it.shapes[0].fields[0].name);
        let (known, message) = match error["param"].as_str() {
            Some(param) => (telling.contains(param), format!("The `{param}` says no.")),
            None => {
                let message = "The `…` says no. (`…` is of another version.)";
                (telling.is_empty(), message.to_owned())
            }
        };
        assert!(known, "{about}, {telling:?}: {}", answer.text);
        assert_eq!(error["message"], message, "{about}");
    }

    /// The same for an action.
    fn refuse_parameters(&mut self, version: usize, collection: usize) {
        let Some(action) = &self.collection(collection).action else { return };
        let known = self.records.iter().find(|kept| kept.collection == collection);
        let Some(path) = known.map(|kept| format!("{}/{ACTION}", self.path(kept))) else { return };
        let good = action.form.shapes[version].body(&mut self.chance);
        for field in action.form.shapes[version].writable() {
            let missing = field.required.then_some((Value::Null, "required"));
            for (value, code) in missing.into_iter().chain(self.unfit(version, &action.form, field))
            {
                let mut params = good.clone();
                params.insert(field.name.clone(), value);
                let answer = self.ask(version, "POST", &path, Some(&params));
                let about = format!("{ACTION} of {}", self.about(version, collection));
                assert_eq!(answer.status, 422, "{about}, {}: {}", field.name, answer.text);
                let error = answer.error(422, "validation_failed");
                let told = (&error["param"], &error["errors"][0]["code"]);
                assert_eq!(told, (&json!(field.name), &json!(code)), "{about}: {error}");
            }
        }
    }

    /// A value that the field does not accept, and the error.
    fn unfit(
        &mut self,
        version: usize,
        collection: &Collection,
        field: &Field,
    ) -> Option<(Value, &'static str)> {
        let has_cents = collection.became_cents(version, field);
        Some(match &field.kind {
            Kind::Word(_) => (json!("no word"), "not_in_enum"),
            Kind::Digits => (json!("007"), "pattern_mismatch"),
            Kind::UpTo(most) => (json!(most + 1), "too_large"),
            Kind::Small => (json!(10), "too_large"),
            Kind::Short => (json!("Ada King"), "too_long"),
            Kind::Number if has_cents => (json!(0.005), "unsuitable"),
            Kind::Ref if self.chance.percent(50) => (json!("book_none"), "bad_reference"),
            _ if self.chance.percent(50) => (field.kind.wrong(), "wrong_type"),
            _ => return None,
        })
    }

    /// Fields of other versions are unknown, in bodies and in queries.
    fn refuse_names_of_others(&self, version: usize, collection: usize, good: &Fields) {
        let it = self.collection(collection);
        let known = |name: &str| it.shapes[version].visible().any(|field| field.name == name);
        let others = it.shapes.iter().flat_map(|shape| &shape.fields);
        let Some(other) = others.map(|field| field.name.as_str()).find(|name| !known(name)) else {
            return;
        };
        let mut body = good.clone();
        body.insert(other.to_owned(), json!("x"));
        self.is_refused(version, collection, &body, other, "unknown_field");
        for query in [format!("{other}=x"), format!("sort={other}"), format!("fields={other}")] {
            let path = format!("{}?{query}", self.list_path(collection));
            let answer = self.ask(version, "GET", &path, None);
            assert_eq!(answer.status, 400, "{query}: {}", answer.text);
            self.is_told_in_own_words(version, collection, &answer.json["error"], other);
        }
    }

    /// A body of a create.
    #[track_caller]
    fn is_refused(
        &self,
        version: usize,
        collection: usize,
        body: &Fields,
        param: &str,
        code: &str,
    ) {
        let path = self.list_path(collection);
        let answer = self.ask(version, "POST", &path, Some(body));
        self.names(version, collection, answer, param, code);
    }

    /// The same for a PATCH, if the collection allows it.
    #[track_caller]
    fn is_refused_as_change(
        &self,
        version: usize,
        collection: usize,
        param: &str,
        value: Value,
        code: &str,
    ) {
        let known = self.records.iter().find(|kept| kept.collection == collection);
        let Some(kept) = known.filter(|_| !self.collection(collection).feed) else { return };
        let path = self.path(kept);
        let shown = self.ask(version, "GET", &path, None);
        let unchanged = shown.json.get(param) == Some(&value);
        let patch = Fields::from_iter([(param.to_owned(), value)]);
        let answer = self.ask(version, "PATCH", &path, Some(&patch));
        // Newer clients wrote it, and it is sent back unchanged.
        if unchanged {
            assert_eq!(answer.expect(200), shown.json, "{}", self.about(version, collection));
            return;
        }
        self.names(version, collection, answer, param, code);
    }

    #[track_caller]
    fn names(&self, version: usize, collection: usize, answer: Answer, param: &str, code: &str) {
        let about = self.about(version, collection);
        assert_eq!(answer.status, 422, "{about}, {param}: {}", answer.text);
        let error = answer.error(422, "validation_failed");
        let told = (&error["param"], &error["errors"][0]["code"]);
        assert_eq!(told, (&json!(param), &json!(code)), "{about}: {error}");
        self.is_told_in_own_words(version, collection, &error, param);
    }

    /// Asserts that the error has no name that the client neither knows nor sent.
    #[track_caller]
    fn is_told_in_own_words(&self, version: usize, collection: usize, error: &Value, said: &str) {
        let it = self.collection(collection);
        let shape = &it.shapes[version];
        let message = error["message"].as_str().unwrap();
        let of_any = |name: &str| it.shapes.iter().any(|shape| shape.has(name));
        for name in message.split('`').skip(1).step_by(2).filter(|name| of_any(name)) {
            let known = name == said || shape.visible().any(|field| field.name == name);
            assert!(known, "{}: {message}", self.about(version, collection));
        }
    }
}
