//! The published JSON Schema and the reader know the same keys.

use crate::parse::{keys, parse};
use crate::schema::{BOOKSHOP, JSON_SCHEMA};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn published() -> Value {
    serde_json::from_str(JSON_SCHEMA).unwrap()
}

fn faults(file: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&published()).unwrap();
    let file: Value = toml::from_str(file).unwrap();
    validator.iter_errors(&file).map(|error| error.to_string()).collect()
}

#[test]
fn an_editor_finds_nothing_wrong_with_the_bookshop() {
    assert!(jsonschema::meta::is_valid(&published()));
    assert_eq!(faults(BOOKSHOP), Vec::<String>::new());
}

#[test]
fn an_editor_completes_exactly_the_keys_that_are_read() {
    let schema = published();
    let mut tables: BTreeSet<&str> =
        schema["$defs"].as_object().unwrap().keys().map(String::as_str).collect();
    for (table, keys) in [
        ("service", keys::SERVICE),
        ("rate_limit", keys::RATE_LIMIT),
        ("collection", keys::COLLECTION),
        ("feed", keys::FEED),
        ("events", keys::EVENTS),
        ("field", keys::FIELD),
        ("param", keys::PARAM),
        ("states", keys::STATES),
        ("action", keys::ACTION),
        ("handler", keys::HANDLER),
        ("rule", keys::RULE),
        ("timed", keys::TIMED),
        ("log", keys::LOG),
        ("published", keys::PUBLISHED),
        ("webhooks", keys::WEBHOOKS),
        ("live", keys::LIVE),
        ("version", keys::VERSION),
        ("mount", keys::MOUNT),
        ("change", keys::CHANGE),
        ("rename", keys::RENAME),
        ("move", keys::MOVE),
        ("convert", keys::CONVERT),
        ("enum_map", keys::ENUM_MAP),
        ("changed_default", keys::CHANGED_DEFAULT),
        ("limits", keys::LIMITS),
        ("were", keys::WERE),
        ("filled", keys::FILLED),
        ("removed", keys::REMOVED),
        ("code", keys::CODE),
        ("old_field", keys::OLD_FIELD),
    ] {
        assert!(tables.remove(table), "{table}");
        check(&schema["$defs"][table], keys, table);
    }
    assert!(tables.is_empty(), "without a key list: {tables:?}");
    check(&schema, keys::FILE, "the file");
    let field = &schema["$defs"]["field"]["properties"];
    assert_eq!(field["type"]["enum"], json!(keys::KINDS));
    let collection = &schema["$defs"]["collection"]["properties"];
    assert_eq!(collection["operations"]["items"]["enum"], json!(keys::OPERATIONS));
}

/// The table has these properties, no others, and each says what it is for.
fn check(table: &Value, keys: &[&str], name: &str) {
    assert_eq!(table["additionalProperties"], json!(false), "{name}");
    let properties = table["properties"].as_object().unwrap();
    let published: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
    assert_eq!(published, keys.iter().copied().collect(), "{name}");
    let defs = published_descriptions();
    for (key, property) in properties {
        let referred = property["$ref"].as_str().map(|path| path.rsplit('/').next().unwrap());
        let described = property["description"].is_string()
            || referred.is_some_and(|referred| defs.contains(referred));
        assert!(described, "{name}.{key}");
    }
}

fn published_descriptions() -> BTreeSet<String> {
    let schema = published();
    let defs = schema["$defs"].as_object().unwrap();
    defs.iter()
        .filter(|(_, def)| def["description"].is_string())
        .map(|(name, _)| name.clone())
        .collect()
}

/// A file with one change.
fn past(change: &str) -> String {
    format!(
        "[collections.books.fields]\ntitle = 'string'\npages = 'integer'\n[[versions]]\ndate = \
         '2026-01-01'\n[[versions.changes]]\ncollection = 'books'\n{change}\n[[versions]]\ndate = \
         '2025-01-01'"
    )
}

#[test]
fn the_published_json_schema_accepts_and_refuses_the_same_files_as_the_reader() {
    for (file, right) in [
        ("[collections.books.fields]\ntitle = 'string'", true),
        ("[collections.books.fields]\ntags = { type = 'array', items = 'string' }", true),
        ("[collections.books.fields]\nbook = { ref = 'books' }", true),
        ("[service]\nmax_body = 4096\n[collections.books]", true),
        ("[collections.notes]\nfeed = true", true),
        ("[collections.books.actions.buy]\nhandler = 'https://a.example'", true),
        ("[collections.books.fields]\ntitle = {}", false),
        ("[collections.books.fields]\ntitle = 'text'", false),
        ("[collections.Books]", false),
        ("[collections.books]\ncolour = 'red'", false),
        ("[collections.books.states]\nfield = 'status'", false),
        ("[collections.books.actions.buy]\nhandler = 'ftp://a.example'", false),
        ("[[collections.books.actions.buy.rules]]\nwhen = 'true'", false),
        ("[service]\nerrors = 'other'\n[collections.books]", false),
        ("[service]", false),
        ("[events]\nretention = '7d'\n[events.types.'report.ready']\n[collections.books]", true),
        ("[webhooks]\ndevelopment = true\n[collections.books]", true),
        ("[events.types.report]\n[collections.books]", false),
        ("[webhooks]\ndevelopment = 'yes'\n[collections.books]", false),
        ("[[versions]]\ndate = '2026-01-01'\ndeprecated = '2026-02-01'\n[collections.books]", true),
        ("[[versions]]\n[collections.books]", false),
        (&past("rename = { from = 'name', to = 'title' }"), true),
        (&past("rename = { from = 'name', to = 'title' }\nremoved = { field = 'title' }"), false),
        (&past("rename = { from = 'name' }"), false),
        (&past("collection_added = true"), true),
        (&past("convert = { field = 'pages', from = 'string', up = 'int(value)' }"), false),
        (
            &past(
                "convert = { field = 'pages', from = 'number', up = 'int(value)', down = \
                 'double(value)', lossy = true }",
            ),
            true,
        ),
        (&past("limits = { field = 'title', was = { max_length = 9 } }"), true),
        (&past("limits = { was = { max_length = 9 } }"), false),
        (&past("limits = { field = 'title', was = { enum = ['a'] } }"), false),
        (&past("").replace("collection = 'books'", "breaks = 'books.title: other'"), true),
        (&past("breaks = 'books.title: other'"), false),
        (&past("").replace("collection = 'books'", "breaks = 'other'"), false),
        (&past(""), false),
        (
            &(past("collection_added = true")
                + "\n[[mounts]]\npath = '/v0'\nversion = '2025-01-01'"),
            true,
        ),
        (
            &(past("collection_added = true")
                + "\n[[mounts]]\npath = 'v0'\nversion = '2025-01-01'"),
            false,
        ),
    ] {
        assert_eq!(parse(file).is_ok(), right, "reader: {file}");
        assert_eq!(faults(file).is_empty(), right, "editor: {file}");
    }
}
