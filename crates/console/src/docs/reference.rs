//! The API reference: one page for each tag of the service's OpenAPI document, which is each
//! collection, the live channels and the service itself. Every route, member, filter, action and
//! event of the schema is there, and nothing is written twice: this file only shows the document.

use super::examples::Request;
use super::markdown::{code, quote, slug};
use super::shape::{Shapes, referred};
use serde_json::Value;

/// A page of the reference.
pub struct ReferencePage {
    /// The tag, which is the name of the collection.
    pub name: String,
    pub markdown: String,
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// An operation with its place in the document.
struct Operation<'a> {
    path: &'a str,
    method: &'a str,
    value: &'a Value,
    /// The parameters of all operations on the path.
    shared: &'a Value,
}

pub fn pages(document: &Value) -> Vec<ReferencePage> {
    let tags = document["tags"].as_array().into_iter().flatten();
    tags.filter_map(|tag| page(document, tag)).collect()
}

fn page(document: &Value, tag: &Value) -> Option<ReferencePage> {
    let name = tag["name"].as_str()?;
    let operations = operations(document, name);
    if operations.is_empty() {
        return None;
    }
    let shapes = Shapes { document };
    let about = quote(tag["description"].as_str().unwrap_or_default());
    let mut text = format!("# {}\n\n{about}\n\n", quote(name));
    text.push_str("| Request | What it does |\n|---|---|\n");
    for one in &operations {
        let (summary, place) = (quote(one.summary()), slug(one.summary()));
        text.push_str(&format!("| {} | [{summary}](#{place}) |\n", code(&one.label())));
    }
    if let Some((component, record)) = record(&shapes, &operations) {
        text.push_str(&format!(
            "\n## The record\n\nThe schema {} of the OpenAPI document.\n\n",
            code(component)
        ));
        text.push_str(&shapes.members(record, false));
        let sample = shapes.sample(name, record, false);
        text.push_str(&format!("\n```json\n{}\n```\n", pretty(&sample)));
    }
    for one in &operations {
        one.describe(&shapes, &mut text);
    }
    push_events(&shapes, name, &mut text);
    Some(ReferencePage { name: name.to_owned(), markdown: text })
}

/// The operations of a tag: on the collection, then on a record, then the actions.
fn operations<'a>(document: &'a Value, tag: &str) -> Vec<Operation<'a>> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let mut all: Vec<Operation<'a>> = paths
        .flat_map(|(path, item)| {
            let found = METHODS.into_iter().filter_map(|method| Some((method, item.get(method)?)));
            let shared = &item["parameters"];
            found.map(move |(method, value)| Operation { path, method, value, shared })
        })
        .filter(|one| one.value["tags"].as_array().is_some_and(|tags| tags.contains(&tag.into())))
        .collect();
    let rank = |method: &str| METHODS.iter().position(|one| *one == method);
    all.sort_by_key(|one| (one.path.split('/').count(), one.path, rank(one.method)));
    all
}

/// The record of the collection: what a get, a create or the items of a list return.
fn record<'a>(shapes: &Shapes<'a>, operations: &[Operation<'a>]) -> Option<(&'a str, &'a Value)> {
    operations.iter().filter(|one| one.value["tags"][0] != "service").find_map(|one| {
        let success = ["201", "200"].into_iter().find_map(|status| {
            let response = one.value["responses"].get(status)?;
            shapes.resolve(response).pointer("/content/application~1json/schema")
        })?;
        let name = referred(success)?;
        let schema = shapes.resolve(success);
        let is_record = schema["properties"]["id"].is_object() && name != "Deleted";
        is_record.then_some((name, schema))
    })
}

impl<'a> Operation<'a> {
    fn label(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), self.path)
    }

    fn summary(&self) -> &'a str {
        self.value["summary"].as_str().unwrap_or_default()
    }

    fn is_list(&self) -> bool {
        let id = self.value["operationId"].as_str().unwrap_or_default();
        self.method == "get" && id.starts_with("list")
    }

    fn describe(&self, shapes: &Shapes<'a>, text: &mut String) {
        text.push_str(&format!("\n## {}\n\n{}\n\n", quote(self.summary()), code(&self.label())));
        if self.value["deprecated"] == true {
            text.push_str("**Deprecated.** ");
        }
        let about = self.value["description"].as_str().unwrap_or_default();
        text.push_str(&format!("{}\n\n", quote(about)));
        self.push_parameters(shapes, text);
        let body = self.body(shapes);
        if let Some(body) = body {
            text.push_str("The body is a JSON object:\n\n");
            text.push_str(&shapes.members(body, true));
            text.push('\n');
        }
        self.push_responses(shapes, text);
        let sample = body.map(|body| shapes.sample("", body, false));
        let (path, is_list) = (self.path, self.is_list());
        let request = Request { method: self.method, path, body: sample.as_ref(), is_list };
        // A stream and a WebSocket are no single requests: the guide shows their clients.
        if !self.value["responses"].as_object().is_some_and(|all| all.contains_key("101")) {
            text.push_str(&request.markdown());
        }
    }

    fn body(&self, shapes: &Shapes<'a>) -> Option<&'a Value> {
        let content = self.value["requestBody"]["content"].as_object()?;
        let schema = content.get("application/json").or(content.values().next())?.get("schema")?;
        Some(shapes.resolve(schema))
    }

    fn push_parameters(&self, shapes: &Shapes<'a>, text: &mut String) {
        let lists = [self.shared, &self.value["parameters"]];
        let all: Vec<&Value> = lists
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|parameter| shapes.resolve(parameter))
            .collect();
        if all.is_empty() {
            return;
        }
        text.push_str("| Parameter | In | Type | Meaning |\n|---|---|---|---|\n");
        for parameter in all {
            let required = if parameter["required"] == true { " **required**" } else { "" };
            text.push_str(&format!(
                "| {}{required} | {} | {} | {} |\n",
                code(parameter["name"].as_str().unwrap_or_default()),
                parameter["in"].as_str().unwrap_or_default(),
                shapes.kind(&parameter["schema"]),
                shapes.about(parameter),
            ));
        }
        text.push('\n');
    }

    fn push_responses(&self, shapes: &Shapes<'a>, text: &mut String) {
        text.push_str("| Status | Response |\n|---|---|\n");
        for (status, response) in self.value["responses"].as_object().into_iter().flatten() {
            let resolved = shapes.resolve(response);
            let content = resolved.pointer("/content/application~1json/schema");
            let body = content.map(|schema| format!(" {}", shapes.kind(schema)));
            let is_error = status.starts_with(['4', '5']);
            let body = body.filter(|_| !is_error).unwrap_or_default();
            let about = match is_error && status.ends_with("XX") {
                true => "An error: see [all codes](/errors).".to_owned(),
                false => linked(response["description"].as_str(), resolved),
            };
            text.push_str(&format!("| {status} | {about}{body} |\n"));
        }
        text.push('\n');
    }
}

/// A description in which each error code links to its explanation.
fn linked(own: Option<&str>, response: &Value) -> String {
    let Some(own) = own else {
        return quote(response["description"].as_str().unwrap_or_default());
    };
    let is_code = |word: &str| {
        let inner = word.trim_matches(['`', ',', '.', ' ']);
        !inner.is_empty() && inner.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let words: Vec<&str> = own.split(", ").collect();
    if own.starts_with('`') && words.iter().all(|word| is_code(word)) {
        let link = |word: &&str| {
            let name = word.trim_matches(['`', ',', '.', ' ']);
            format!("[{}](/errors#{name})", code(name))
        };
        return words.iter().map(link).collect::<Vec<_>>().join(", ");
    }
    quote(own)
}

/// The events about the records, from the webhooks of the document.
fn push_events(shapes: &Shapes<'_>, tag: &str, text: &mut String) {
    let webhooks = shapes.document["webhooks"].as_object().into_iter().flatten();
    let mut kinds: Vec<(&str, &Value)> = Vec::new();
    for (kind, item) in webhooks {
        let post = &shapes.resolve(item)["post"];
        if post["tags"].as_array().is_some_and(|tags| tags.contains(&tag.into())) {
            kinds.push((kind, post));
        }
    }
    let Some((_, first)) = kinds.first() else { return };
    text.push_str(
        "\n## Events\n\nEach change writes one event into the log, to `/v1/events`, to \
         [webhooks](/docs/webhooks) and to the [live channels](/docs/live):\n\n",
    );
    for (kind, _) in &kinds {
        text.push_str(&format!("- {}\n", code(kind)));
    }
    let body = &first["requestBody"]["content"]["application/json"]["schema"];
    let body = shapes.resolve(body);
    let data = &body["properties"]["data"];
    if data.is_object() {
        text.push_str("\n`data` of an event:\n\n");
        text.push_str(&shapes.members(data, true));
    }
    for part in body["allOf"].as_array().into_iter().flatten() {
        text.push_str("\nThe other members:\n\n");
        text.push_str(&shapes.members(part, true));
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
