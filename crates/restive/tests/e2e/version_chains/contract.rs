//! The OpenAPI document of a version: it describes exactly the accepted bodies and the shown
//! records.

use super::World;
use super::shape::Fields;
use jsonschema::Validator;
use serde_json::{Value, json};

pub struct Contract(Value);

impl Contract {
    /// A record that the version shows.
    #[track_caller]
    pub fn shows(&self, object: &str, record: &Value) {
        self.check(&capitalized(object), record);
    }

    /// A body of a create that the version accepts.
    #[track_caller]
    pub fn takes(&self, object: &str, body: &Fields) {
        self.check(&format!("{}Create", capitalized(object)), &Value::Object(body.clone()));
    }

    #[track_caller]
    fn check(&self, component: &str, value: &Value) {
        let schema = json!({
            "$ref": format!("#/components/schemas/{component}"),
            "components": self.0["components"],
        });
        let validator: Validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<String> =
            validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert!(
            wrong.is_empty(),
            "{component} of {}: {wrong:?}: {value}",
            self.0["info"]["version"]
        );
    }
}

impl World<'_> {
    /// The documents of all versions.
    pub fn contracts(server: &crate::harness::Server, dates: &[&str]) -> Vec<Contract> {
        let read = |date: &&str| server.get(&format!("/openapi.json?version={date}")).expect(200);
        dates.iter().map(|date| Contract(read(date))).collect()
    }
}

fn capitalized(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}
