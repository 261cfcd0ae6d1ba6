//! OpenAPI 3.1 of the service, generated from its schema.

pub fn document(_: &model::Schema, _: Option<&str>) -> serde_json::Value {
    serde_json::Value::Null
}

pub fn errors_markdown() -> String {
    String::new()
}
