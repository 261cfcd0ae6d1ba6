//! Parameters: ids in paths, query parameters of lists and reads, request headers. Parameters of
//! one collection are inline in its operations, all others are components.

use super::names::{EVENT_PATTERN, Names, pascal};
use super::{expansions, filters, headers, reference};
use model::expand::MAX_PATHS;
use model::query::{
    self, DEFAULT_LIMIT, MAX_SEARCH_CHARACTERS, MAX_SORT_KEYS, MAX_VALUES, MAX_WORD_PARTS,
    MAX_WORDS,
};
use model::schema::{Collection, CollectionIx, Kind, Schema};
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
        all.insert(names.fields(index), fields(collection));
        let paths = expansions::paths(schema, index);
        if !paths.is_empty() {
            all.insert(names.expand(index), expansion(&paths));
        }
        for filter in assigned_filters(collection) {
            all.insert(filter_component(&filter), filter_parameter(collection, &filter));
        }
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

pub fn list(schema: &Schema, names: &Names, index: CollectionIx) -> Vec<Value> {
    let collection = &schema.collections[index];
    let mut all = vec![shared("Page"), shared("Limit"), shared("After"), sort(collection)];
    if collection.searched().next().is_some() {
        all.push(shared("Search"));
    }
    all.extend(view(schema, names, index));
    all.extend(filter_parameters(collection));
    all
}

/// Parameters that choose how records are shown.
pub fn view(schema: &Schema, names: &Names, index: CollectionIx) -> Vec<Value> {
    let mut all = Vec::new();
    if !expansions::paths(schema, index).is_empty() {
        all.push(shared(&names.expand(index)));
    }
    all.push(shared(&names.fields(index)));
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
        Some(_) => "a whole number".to_owned(),
        None => format!("`{}_…`", collection.id_prefix),
    };
    json!({
        "name": format!("{object}_id"),
        "in": "path",
        "required": true,
        "description": format!("Id of the {object}: {form}. Any other value gets 404."),
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
    let by_rank = match collection.searched().next() {
        Some(_) => " With `q` and `page` also `rank`, alone: the best match first.",
        None => "",
    };
    commas(
        "sort",
        &format!("Fields to sort by, each once; `-` before a name means descending.{by_rank}"),
        json!({
            "type": "array",
            "items": { "type": "string", "enum": keys },
            "minItems": 1,
            "maxItems": MAX_SORT_KEYS.min(sortable.len()),
            "uniqueItems": true,
            "default": [format!("-{}", sortable.first().map_or("created_at", String::as_str))],
        }),
    )
}

fn expansion(paths: &[String]) -> Value {
    commas(
        "expand",
        &format!(
            "Related records to embed, at most {} bytes: a reference becomes the record it names, \
             children are added as a list. `include` means the same.",
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
        "The members to return: with it, a record has only these and those that are embedded.",
        json!({
            "type": "array",
            "items": { "type": "string", "enum": names },
            "minItems": 1,
        }),
    )
}

fn filter_parameters(collection: &Collection) -> Vec<Value> {
    let mut seen: BTreeSet<String> = query::RESERVED.iter().map(|name| (*name).into()).collect();
    let names = query::filter_names(collection).into_iter();
    names
        .filter(|(name, _)| seen.insert(name.clone()))
        .map(|filter| match is_assigned(collection, &filter.0) {
            true => shared(&filter_component(&filter)),
            false => filter_parameter(collection, &filter),
        })
        .collect()
}

/// A filter: its name, and the kind of its values.
type Filter = (String, Kind);

/// The filters by fields that the service assigns, which all collections have.
fn assigned_filters(collection: &Collection) -> impl Iterator<Item = Filter> {
    let names = query::filter_names(collection).into_iter();
    names.filter(|(name, _)| is_assigned(collection, name))
}

fn is_assigned(collection: &Collection, name: &str) -> bool {
    let field = match name.split_once('_') {
        Some(("min" | "max", field)) if !is_equality(collection, name) => field,
        _ => name,
    };
    matches!(field, "id" | "created_at" | "updated_at") && collection.field(field).is_none()
}

/// `FilterMinCreatedAt`. Ids of feeds are numbers, and their filters another component.
fn filter_component((name, kind): &Filter) -> String {
    let number = if *kind == Kind::Integer { "Number" } else { "" };
    format!("Filter{}{number}", pascal(name))
}

fn filter_parameter(collection: &Collection, (name, kind): &Filter) -> Value {
    let bound = !is_equality(collection, name);
    let description = match name.split_once('_') {
        Some(("min", field)) if bound => format!("`{field}` is at least this."),
        Some(("max", field)) if bound => format!("`{field}` is at most this."),
        _ => format!("`{name}` is this."),
    };
    let items = match collection.field(name).is_some_and(|field| field.wildcards) {
        true => Some(event_types()),
        false => {
            let words = choices(collection, name);
            words.map(|words| json!({ "type": "string", "enum": words }))
        }
    };
    match items {
        Some(items) => commas(
            name,
            &description,
            json!({ "type": "array", "items": items, "minItems": 1, "maxItems": MAX_VALUES }),
        ),
        None => query(name, &description, reference("schemas", filters::component(kind, bound))),
    }
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
fn event_types() -> Value {
    json!({ "anyOf": [reference("schemas", EVENT_PATTERN), { "const": pattern::PING }] })
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
