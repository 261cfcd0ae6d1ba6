//! Shapes of JSON values for people: the type of a member in a few words, tables of members, and
//! sample values. Reads the JSON Schemas of an OpenAPI document.

use super::markdown::{code, quote};
use serde_json::{Map, Value, json};

/// A schema that refers to itself ends here.
const MAX_DEPTH: usize = 4;
/// A longer list of words is cut.
const MAX_WORDS: usize = 12;

pub struct Shapes<'a> {
    pub document: &'a Value,
}

impl<'a> Shapes<'a> {
    /// What a reference refers to; another value is returned as it is.
    pub fn resolve(&self, value: &'a Value) -> &'a Value {
        let mut value = value;
        for _ in 0..MAX_DEPTH {
            let pointer = value["$ref"].as_str().and_then(|text| text.strip_prefix('#'));
            match pointer.and_then(|pointer| self.document.pointer(pointer)) {
                Some(target) => value = target,
                None => break,
            }
        }
        value
    }

    /// The type of a value in a few words, as Markdown.
    pub fn kind(&self, schema: &'a Value) -> String {
        if let Some(name) = referred(schema) {
            let target = self.resolve(schema);
            if target["type"] == "object" && target["properties"].is_object() {
                return code(name);
            }
        }
        let schema = self.resolve(schema);
        if let Some(value) = schema.get("const") {
            return code(&value.to_string());
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[word].as_array() {
                let mut kinds: Vec<String> = choices.iter().map(|one| self.kind(one)).collect();
                kinds.dedup();
                return kinds.join(" or ");
            }
        }
        if let Some(words) = schema["enum"].as_array() {
            return one_of(words);
        }
        let names: Vec<&str> = match &schema["type"] {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => return "any value".to_owned(),
        };
        let format = schema["format"].as_str();
        let named = |name: &&str| match (*name, format) {
            ("string", Some("date-time")) => "timestamp".to_owned(),
            ("string", Some("date")) => "date".to_owned(),
            ("array", _) => format!("list of {}", self.kind(&schema["items"])),
            (name, _) => name.to_owned(),
        };
        names.iter().map(named).collect::<Vec<_>>().join(" or ")
    }

    /// The rules of a value that its type does not say, as a sentence.
    fn rules(&self, schema: &'a Value) -> String {
        let schema = self.resolve(schema);
        let mut rules = Vec::new();
        for (keyword, text) in [
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("minLength", "characters: at least"),
            ("maxLength", "characters: at most"),
            ("minItems", "items: at least"),
            ("maxItems", "items: at most"),
        ] {
            let value = &schema[keyword];
            // The limits that every text and number has are in the guide about limits.
            let usual = value.as_f64().is_none_or(|number| number == 0.0 || number.abs() >= 1e6);
            if !usual {
                rules.push(format!("{text} {value}"));
            }
        }
        if let Some(default) = schema.get("default") {
            rules.push(format!("default {}", code(&default.to_string())));
        }
        match rules.is_empty() {
            true => String::new(),
            false => format!(" ({})", rules.join(", ")),
        }
    }

    /// A table of the members of an object.
    pub fn members(&self, schema: &'a Value, is_body: bool) -> String {
        let schema = self.resolve(schema);
        let Some(properties) = schema["properties"].as_object() else { return String::new() };
        let required: Vec<&str> = texts(&schema["required"]);
        let mut text = String::from("| Member | Type | Meaning |\n|---|---|---|\n");
        for (name, member) in ordered(properties, &required) {
            let mark = match is_body && required.contains(&name.as_str()) {
                true => " **required**",
                false => "",
            };
            let about = self.about(member);
            text.push_str(&format!(
                "| {}{mark} | {}{} | {about} |\n",
                code(name),
                self.kind(member),
                self.rules(member),
            ));
        }
        text
    }

    /// The description of a member, or of what it refers to.
    pub fn about(&self, member: &'a Value) -> String {
        let own = member["description"].as_str();
        let about = own.or_else(|| self.resolve(member)["description"].as_str());
        let mut about = quote(about.unwrap_or_default());
        if member["deprecated"] == true {
            about = format!("**Deprecated.** {about}");
        }
        about
    }

    /// A sample of a value. `whole`: with the members that are not required.
    pub fn sample(&self, name: &str, schema: &'a Value, whole: bool) -> Value {
        self.sample_at(name, schema, whole, 0)
    }

    fn sample_at(&self, name: &str, schema: &'a Value, whole: bool, depth: usize) -> Value {
        let schema = self.resolve(schema);
        for known in ["const", "default", "example"] {
            if let Some(value) = schema.get(known).filter(|value| !value.is_null()) {
                return value.clone();
            }
        }
        if let Some(first) = schema["enum"].as_array().and_then(|words| words.first()) {
            return first.clone();
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(first) = schema[word].as_array().and_then(|choices| choices.first()) {
                return self.sample_at(name, first, whole, depth);
            }
        }
        let kind = match &schema["type"] {
            Value::Array(names) => names.first().and_then(Value::as_str).unwrap_or_default(),
            name => name.as_str().unwrap_or_default(),
        };
        match kind {
            "object" if depth < MAX_DEPTH => self.sample_object(schema, whole, depth),
            "array" => {
                json!([self.sample_at(name, &schema["items"], whole, depth + 1)])
            }
            "integer" => schema
                .get("minimum")
                .filter(|least| least.as_i64() > Some(0))
                .map_or(json!(1), Clone::clone),
            "number" => json!(9.5),
            "boolean" => json!(true),
            "string" => sample_text(name, schema),
            _ => Value::Null,
        }
    }

    fn sample_object(&self, schema: &'a Value, whole: bool, depth: usize) -> Value {
        let required = texts(&schema["required"]);
        let Some(properties) = schema["properties"].as_object() else { return json!({}) };
        let mut object = Map::new();
        for (name, member) in ordered(properties, &required) {
            if whole && depth == 0 || required.contains(&name.as_str()) {
                object.insert(name.clone(), self.sample_at(name, member, whole, depth + 1));
            }
        }
        Value::Object(object)
    }
}

/// A text that fits the field.
fn sample_text(name: &str, schema: &Value) -> Value {
    let about = schema["description"].as_str().unwrap_or_default();
    match (schema["format"].as_str(), name) {
        (Some("date-time"), _) => json!("2026-01-31T08:30:00.000Z"),
        (Some("date"), _) => json!("2026-01-31"),
        (_, "url") => json!("https://example.com/hook"),
        (_, "email") => json!("ann@example.com"),
        (_, "currency") => json!("eur"),
        (_, "id") => json!("id_…"),
        _ if about.contains("Id of a record") => json!(format!("{name}_…")),
        _ => json!("text"),
    }
}

fn one_of(words: &[Value]) -> String {
    let shown = words.iter().take(MAX_WORDS).map(|word| match word {
        Value::String(word) => code(word),
        other => other.to_string(),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if words.len() > MAX_WORDS {
        text.push_str(&format!(" and {} more", words.len() - MAX_WORDS));
    }
    text
}

/// The required members in the order of that list, which is that of the schema file, then the rest.
fn ordered<'a>(
    properties: &'a Map<String, Value>,
    required: &[&str],
) -> Vec<(&'a String, &'a Value)> {
    let mut all: Vec<_> = properties.iter().collect();
    let place = |name: &str| required.iter().position(|one| *one == name);
    all.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
    all
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The name of the component that a value refers to.
pub fn referred(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.rsplit('/').next()
}
