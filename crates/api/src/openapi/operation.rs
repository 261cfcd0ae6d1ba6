//! One operation of the document, and the parts that all operations share.

use super::headers;
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

pub fn answer(description: &str, more: &[&str], schema: Value) -> Value {
    json!({
        "description": description,
        "headers": headers::with(more),
        "content": { JSON: { "schema": schema } },
    })
}

pub fn unchanged() -> Value {
    json!({
        "description": "Not changed since the version in If-None-Match. No body.",
        "headers": headers::with(&["ETag"]),
    })
}
