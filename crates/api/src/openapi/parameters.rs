//! Parameters: ids in paths, query parameters of lists and reads, request headers. Parameters of
//! one collection are inline in its operations, all others are components.

use super::names::Names;
use super::{expansions, filters, headers, own, reference};
use model::expand::MAX_PATHS;
use model::query::{
    self, DEFAULT_LIMIT, MAX_SEARCH_CHARACTERS, MAX_SORT_KEYS, MAX_VALUES, MAX_WORD_PARTS,
    MAX_WORDS,
};
use model::schema::{Collection, CollectionIx, Schema};
use model::webhook::pattern;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Visible ASCII; also in quotes, as in the IETF draft, but then not empty.
const IDEMPOTENCY_KEY: &str = r#"^(?:[!-~]|[!#-~][!-~]|"[!#-~]|[!-~]{3,255})$"#;

/// Separators of the words of a search: white space and control characters.
const SEPARATOR: &str =
    r"\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000";

/// Parameters that mean the same in every operation.
pub fn components(schema: &Schema, names: &Names) -> Map<String, Value> {
    let mut all = Map::new();
    for (index, collection) in schema.routed() {
        all.insert(names.id(index), id(collection));
    }
    all.insert("Page".into(), page(schema));
    all.insert("Limit".into(), limit(schema));
    all.insert("After".into(), after());
    all.insert("Search".into(), search());
    all.insert("RestiveVersion".into(), version(schema));
    all.insert("IfNoneMatch".into(), if_none_match());
    for required in [false, true] {
        all.insert(if_match_name(required).into(), if_match(required));
        all.insert(idempotency_key_name(required).into(), idempotency_key(required));
    }
    all
}

/// The ids in the path of a collection's records: those of its ancestors, outermost first, then its
/// own.
pub fn path(names: &Names, chain: &[CollectionIx]) -> Vec<Value> {
    chain.iter().map(|index| reference("parameters", &names.id(*index))).collect()
}

pub fn list(schema: &Schema, index: CollectionIx) -> Vec<Value> {
    let collection = &schema.collections[index];
    let mut all = vec![shared("Page"), shared("Limit"), shared("After"), sort(collection)];
    if collection.searched().next().is_some() {
        all.push(shared("Search"));
    }
    all.extend(view(schema, index));
    all.extend(filter_parameters(schema, collection));
    all
}

/// Parameters that choose how records are shown.
pub fn view(schema: &Schema, index: CollectionIx) -> Vec<Value> {
    let mut all = Vec::new();
    let paths = expansions::paths(schema, index);
    if !paths.is_empty() {
        for name in ["include", "expand"] {
            all.push(expansion(name, &paths));
        }
    }
    all.push(fields(&schema.collections[index]));
    all
}

pub fn shared(name: &str) -> Value {
    reference("parameters", name)
}

pub fn if_match_name(required: bool) -> &'static str {
    if required { "IfMatchRequired" } else { "IfMatch" }
}

pub fn idempotency_key_name(required: bool) -> &'static str {
    if required { "IdempotencyKeyRequired" } else { "IdempotencyKey" }
}

pub fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

/// Several values in one parameter, separated by commas.
pub fn commas(name: &str, description: &str, schema: Value) -> Value {
    let mut parameter = query(name, description, schema);
    parameter["style"] = "form".into();
    parameter["explode"] = false.into();
    parameter
}

pub fn header(name: &str, required: bool, description: &str, schema: Value) -> Value {
    json!({
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": schema,
    })
}

fn id(collection: &Collection) -> Value {
    let object = &collection.object;
    let form = match collection.feed {
        Some(_) => "A whole number.".to_owned(),
        None => format!("Of the form `^{}_[0-9a-hjkmnp-tv-z]{{29}}$`.", collection.id_prefix),
    };
    json!({
        "name": format!("{object}_id"),
        "in": "path",
        "required": true,
        "description": format!("Id of the {object}. {form} Any other value gets 404."),
        "schema": { "type": "string", "minLength": 1 },
    })
}

fn page(schema: &Schema) -> Value {
    let last = query::last_page(schema);
    query(
        "page",
        "Number of the page, from 1: selects offset pages with a total. Cannot be combined \
         with `after`.",
        json!({ "type": "integer", "minimum": 1, "maximum": last }),
    )
}

fn limit(schema: &Schema) -> Value {
    let most = schema.service.max_page;
    query(
        "limit",
        &format!(
            "Records per page. The limit is {most}; larger values are reduced to it. A page with \
             a cursor ends early when its records reach {} bytes; an offset page of that size is \
             refused with 400.",
            store::PAGE_BYTES
        ),
        json!({
            "type": "integer",
            "format": "int64",
            "minimum": 1,
            "default": DEFAULT_LIMIT.min(most),
        }),
    )
}

fn after() -> Value {
    query(
        "after",
        "The `next_cursor` of the previous page. Cursors are opaque, belong to one list with its \
         filters and order, and are signed: any other value is refused.",
        json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{60,16384}$" }),
    )
}

fn search() -> Value {
    let word = format!("[^{SEPARATOR}]+");
    let gap = format!("[{SEPARATOR}]");
    let more = MAX_WORDS - 1;
    query(
        "q",
        &format!(
            "Words that must all occur in the record, at most {MAX_WORDS}. At least one must have \
             a letter or a digit. Punctuation inside a word separates it into parts that must \
             occur next to each other, at most {MAX_WORD_PARTS} parts in all. Newest first."
        ),
        json!({
            "type": "string",
            "maxLength": MAX_SEARCH_CHARACTERS,
            "pattern": format!("^{gap}*{word}(?:{gap}+{word}){{0,{more}}}{gap}*$"),
        }),
    )
}

fn sort(collection: &Collection) -> Value {
    let sortable = query::sortable(collection);
    let keys: Vec<String> =
        sortable.iter().flat_map(|name| [name.clone(), format!("-{name}")]).collect();
    let only_once: Vec<Value> = sortable
        .iter()
        .map(|name| {
            let both = [name.clone(), format!("-{name}")]
                .map(|key| json!({ "contains": { "const": key } }));
            json!({ "not": { "allOf": both } })
        })
        .collect();
    let by_rank = match collection.searched().next() {
        Some(_) => " With `q` and `page` also `rank`, alone: the best match first.",
        None => "",
    };
    commas(
        "sort",
        &format!(
            "Fields to sort by, separated by commas; `-` before a name means descending. Each \
             field at most once.{by_rank}"
        ),
        json!({
            "type": "array",
            "items": { "type": "string", "enum": keys },
            "minItems": 1,
            "maxItems": MAX_SORT_KEYS.min(sortable.len()),
            "uniqueItems": true,
            "allOf": only_once,
            "default": [format!("-{}", sortable.first().map_or("created_at", String::as_str))],
        }),
    )
}

fn expansion(name: &str, paths: &[String]) -> Value {
    commas(
        name,
        &format!(
            "Related records to embed, separated by commas: a reference becomes the record it \
             names, children are added as a list. `include` and `expand` mean the same. A \
             response that would embed more than {} bytes of records is refused with 400.",
            store::EMBEDDED_BYTES
        ),
        json!({
            "type": "array",
            "items": { "type": "string", "enum": paths },
            "minItems": 1,
            "maxItems": MAX_PATHS,
        }),
    )
}

fn fields(collection: &Collection) -> Value {
    let names: Vec<&str> = collection.public_names().collect();
    commas(
        "fields",
        "The fields to return, separated by commas. Embedded records are always returned.",
        json!({
            "type": "array",
            "items": { "type": "string", "enum": names },
            "minItems": 1,
        }),
    )
}

fn filter_parameters(schema: &Schema, collection: &Collection) -> Vec<Value> {
    let mut seen: BTreeSet<String> = query::RESERVED.iter().map(|name| (*name).into()).collect();
    let names = query::filter_names(collection).into_iter();
    names
        .filter(|(name, _)| seen.insert(name.clone()))
        .map(|(name, kind)| {
            let bound = !is_equality(collection, &name);
            let description = match name.split_once('_') {
                Some(("min", field)) if bound => {
                    format!("Only records whose `{field}` is at least this value.")
                }
                Some(("max", field)) if bound => {
                    format!("Only records whose `{field}` is at most this value.")
                }
                _ => format!("Only records with this `{name}`."),
            };
            let words = match collection.field(&name).is_some_and(|field| field.wildcards) {
                true => Some(event_types(schema)),
                false => choices(collection, &name),
            };
            match words {
                Some(words) => commas(
                    &name,
                    &description,
                    json!({
                        "type": "array",
                        "items": { "type": "string", "enum": words },
                        "minItems": 1,
                        "maxItems": MAX_VALUES,
                    }),
                ),
                None => query(
                    &name,
                    &description,
                    reference("schemas", filters::component(&kind, bound)),
                ),
            }
        })
        .collect()
}

/// The words of a filter with few values, if none has a character that is special in a list.
fn choices(collection: &Collection, name: &str) -> Option<Vec<String>> {
    let choices = query::choices(collection, name)?;
    let plain = !choices.iter().any(|word| word.contains([',', '"']));
    // Fields of built-in collections always have a value.
    let null = collection.builtin.is_none().then(|| "null".to_owned());
    plain.then(|| choices.iter().cloned().chain(null).collect())
}

/// What the list of events can be filtered by: types, and patterns such as `order.*`.
fn event_types(schema: &Schema) -> Vec<String> {
    let ping = pattern::PING.to_owned();
    own::patterns(schema).into_iter().chain([ping]).collect()
}

/// Whether a filter has the name of a field; the others are bounds.
fn is_equality(collection: &Collection, name: &str) -> bool {
    matches!(name, "id" | "created_at" | "updated_at")
        || collection.field(name).is_some_and(|field| field.filterable() && !field.write_only)
}

fn version(schema: &Schema) -> Value {
    header(
        "Restive-Version",
        false,
        "The API version of the request; by default, the version that the account is pinned to.",
        json!({ "type": "string", "enum": [schema.service.version] }),
    )
}

fn if_none_match() -> Value {
    header(
        "If-None-Match",
        false,
        "ETags from earlier responses: if nothing has changed since, the response is 304 without a \
         body. A header without valid ETags is refused.",
        json!({ "type": "string" }),
    )
}

fn if_match(required: bool) -> Value {
    let description = match required {
        true => {
            "The ETag of the record as it was read: if the record has changed since, nothing is \
             written and the response is 412. `*` is not sufficient."
        }
        false => {
            "The ETag of the record as it was read: if the record has changed since, nothing is \
             written and the response is 412. `*` matches every version."
        }
    };
    header(
        "If-Match",
        required,
        description,
        json!({ "type": "string", "pattern": headers::ENTITY_TAGS }),
    )
}

fn idempotency_key(required: bool) -> Value {
    header(
        "Idempotency-Key",
        required,
        "A unique string that the client chooses: a repetition with the same key within 24 hours \
         returns the same response without a second effect. The key is refused with another \
         request.",
        json!({ "type": "string", "pattern": IDEMPOTENCY_KEY }),
    )
}
