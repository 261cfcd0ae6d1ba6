//! One operation of the document, and the parts that all operations share.

use super::{headers, reference};
use serde_json::{Map, Value, json};

/// Tag of the routes that belong to no collection.
pub const SERVICE_TAG: &str = "service";

pub const JSON: &str = "application/json";

pub struct Operation {
    pub id: String,
    pub summary: String,
    pub description: String,
    pub parameters: Vec<Value>,
    pub body: Option<Value>,
    pub responses: Map<String, Value>,
}

impl Operation {
    pub fn into_value(self, tag: &str) -> Value {
        let mut value = json!({
            "operationId": self.id,
            "summary": self.summary,
            "description": self.description,
            "tags": [tag],
            "responses": self.responses,
        });
        if !self.parameters.is_empty() {
            value["parameters"] = self.parameters.into();
        }
        if let Some(body) = self.body {
            value["requestBody"] = body;
        }
        value
    }
}

/// A request body of one schema, in each of the media types.
pub fn body(about: &str, types: &[&str], component: &str, required: bool) -> Value {
    let schema = json!({ "schema": reference("schemas", component) });
    let content: Map<String, Value> =
        types.iter().map(|name| ((*name).to_owned(), schema.clone())).collect();
    json!({ "description": about, "required": required, "content": content })
}

pub fn answer(description: &str, more: &[&str], schema: Value) -> Value {
    let mut answer =
        json!({ "description": description, "content": { JSON: { "schema": schema } } });
    if !more.is_empty() {
        answer["headers"] = headers::with(more);
    }
    answer
}

const NOT_MODIFIED: &str = "NotModified";
const LIST_NOT_MODIFIED: &str = "ListNotModified";

pub fn unchanged() -> Value {
    reference("responses", NOT_MODIFIED)
}

pub fn unchanged_list() -> Value {
    reference("responses", LIST_NOT_MODIFIED)
}

/// What `unchanged` and `unchanged_list` refer to.
pub fn unchanged_components() -> Map<String, Value> {
    let response = |headers: &[&str]| {
        json!({
            "description": "Not changed since the version in If-None-Match. No body.",
            "headers": headers::with(headers),
        })
    };
    Map::from_iter([
        (NOT_MODIFIED.to_owned(), response(&["ETag"])),
        (LIST_NOT_MODIFIED.to_owned(), response(&["ETag", "X-Stream-Position"])),
    ])
}
