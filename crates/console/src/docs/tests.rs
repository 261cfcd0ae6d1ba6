//! The pages of a small service whose schema is full of markup.

use super::*;
use serde_json::json;

const HOSTILE: &str = "<script>alert(1)</script> [x](javascript:alert(1)) | `y|z` \n# heading";

fn service() -> Service {
    let record = json!({
        "type": "object",
        "description": HOSTILE,
        "properties": {
            "id": { "type": "string" },
            "title": { "type": "string", "description": HOSTILE },
            "cover": { "enum": ["<b>hard</b>", "soft"] },
            "pages": { "type": ["integer", "null"], "minimum": 1 },
        },
        "required": ["id", "title", "pages", "cover"],
    });
    let list = json!({ "type": "object", "properties": { "data": { "type": "array" } } });
    let answer = |name: &str| {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        json!({ "description": "A book.", "content": { "application/json": { "schema": schema } } })
    };
    let openapi = json!({
        "tags": [{ "name": "books", "description": HOSTILE }],
        "paths": {
            "/v1/books": {
                "parameters": [],
                "get": {
                    "operationId": "listBooks", "summary": "List books", "tags": ["books"],
                    "description": HOSTILE,
                    "parameters": [
                        { "name": "title", "in": "query", "description": HOSTILE,
                          "schema": { "type": "string" } },
                    ],
                    "responses": { "200": answer("BookList") },
                },
                "post": {
                    "operationId": "createBook", "summary": "Create a book", "tags": ["books"],
                    "requestBody": { "content": { "application/json": { "schema": {
                        "type": "object", "required": ["title"],
                        "properties": { "title": { "type": "string" } } } } } },
                    "responses": { "201": answer("Book"),
                        "409": { "description": "`invalid_state`, `card_declined`." },
                        "4XX": { "description": "Refused." } },
                },
            },
        },
        "webhooks": { "book.created": { "post": { "tags": ["books"] } } },
        "components": { "schemas": { "Book": record, "BookList": list } },
    });
    let code = |code: &str, actions: &[&str]| ErrorCode {
        code: code.to_owned(),
        status: "409".to_owned(),
        kind: "card_error".to_owned(),
        explanation: HOSTILE.to_owned(),
        actions: actions.iter().map(|action| (*action).to_owned()).collect(),
    };
    Service {
        name: "<i>shop</i>".to_owned(),
        description: Some(HOSTILE.to_owned()),
        version: "2026-01-01".to_owned(),
        mount: "/v1".to_owned(),
        openapi,
        errors: vec![
            code("invalid_state", &[]),
            code("validation_failed", &[]),
            code("card_declined", &["books/pay"]),
        ],
        changelog: "# Changes\n".to_owned(),
        has_console: true,
    }
}

fn text(docs: &Docs, path: &str) -> String {
    let asset = docs.find(path, true).unwrap_or_else(|| panic!("{path} is missing"));
    String::from_utf8(asset.body.to_vec()).unwrap()
}

#[test]
fn every_page_exists_as_html_and_as_markdown_and_runs_nothing_of_the_schema() {
    let docs = Docs::new(service());
    assert!(docs.pages.len() > 10);
    for path in docs.pages.iter().map(|page| page.path.as_str()).chain(["/"]) {
        let html = text(&docs, path);
        assert!(html.starts_with("<!doctype html>") && html.contains("<h1"), "{path}");
        for forbidden in ["<script>", "<i>", "<b>", "href=\"javascript", " style=", " onclick="] {
            assert!(!html.contains(forbidden), "{path}: {forbidden}");
        }
        if path != "/" && path != ERRORS {
            let source = docs.find(&format!("{path}.md"), true).unwrap();
            assert!(source.content_type.starts_with("text/markdown"), "{path}");
            assert!(source.body.starts_with(b"# "), "{path}");
        }
    }
    for missing in ["/docs/none", "/docs/none.md", "/doc", "/docs/search", "/errors.md"] {
        assert!(docs.find(missing, true).is_none(), "{missing}");
    }
}

#[test]
fn the_links_of_all_pages_lead_somewhere() {
    let docs = Docs::new(service());
    let outside = ["/", "/console", "/openapi.json", "/asyncapi.json", "/changelog", "/health"];
    for page in &docs.pages {
        let html = text(&docs, &page.path);
        for place in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let (path, fragment) = place.split_once('#').unwrap_or((place, ""));
            let target = match path {
                "" => html.clone(),
                path if path.starts_with("https://") || path.starts_with("http://") => continue,
                path if outside.contains(&path) => continue,
                path => text(&docs, path),
            };
            let id = format!("id=\"{fragment}\"");
            assert!(fragment.is_empty() || target.contains(&id), "{}: {place}", page.path);
        }
    }
}

#[test]
fn the_reference_has_every_member_filter_event_and_three_languages() {
    let docs = Docs::new(service());
    let page = docs.find("/docs/reference/books.md", false).unwrap();
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    for part in [
        "`GET /v1/books`",
        "## Create a book",
        "| `title` **required** | string |",
        "| `pages` | integer or null (at least 1) |",
        "`<b>hard</b>`, `soft`",
        "- `book.created`",
        "[`card_declined`](/errors#card_declined)",
        "curl \"$URL/v1/books\" -u \"$KEY:\"",
        "await client.post(\"/v1/books\", {\"title\":\"text\"})",
        "client.post(\"/v1/books\", {\"title\": \"text\"})",
        "for one in client.list(\"/v1/books\"):",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn every_error_code_is_an_anchor_for_browsers_and_clients_keep_the_markdown() {
    let docs = Docs::new(service());
    assert!(docs.find("/errors", false).is_none());
    let html = text(&docs, "/errors");
    for id in ["invalid_state", "card_declined", "codes-of-action-handlers"] {
        assert!(html.contains(&format!("id=\"{id}\"")), "{id} in {html}");
    }
}

#[test]
fn clients_get_json_at_the_root_and_models_a_list_of_the_pages() {
    let docs = Docs::new(service());
    let root = docs.find("/", false).unwrap();
    assert_eq!(root.content_type, "application/json");
    let root: Value = serde_json::from_slice(&root.body).unwrap();
    assert_eq!((&root["object"], &root["name"]), (&json!("service"), &json!("<i>shop</i>")));
    assert_eq!(root["links"]["console"], "/console");
    let llms = text(&docs, "/llms.txt");
    assert!(llms.contains("- [books](/docs/reference/books.md)"), "{llms}");
    let index: Value = serde_json::from_str(&text(&docs, "/docs/search.json")).unwrap();
    let places: Vec<&str> =
        index.as_array().unwrap().iter().filter_map(|e| e[0].as_str()).collect();
    assert!(places.contains(&"/docs/reference/books#create-a-book"), "{places:?}");
    assert!(places.contains(&"/errors#card_declined"), "{places:?}");
}

#[test]
fn the_frame_of_a_page_is_small() {
    let docs = Docs::new(service());
    let sent = |path: &str| {
        let asset = docs.find(path, true).unwrap();
        asset.gzip.unwrap_or(asset.body).len()
    };
    let total: usize =
        ["/docs/style.css", "/docs/docs.js", "/docs/icon.svg"].map(sent).iter().sum();
    assert!(total < 8_000, "{total} bytes");
}
