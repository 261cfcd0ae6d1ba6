//! The documentation that the service serves: the page at `/`, `/docs` with the reference of the
//! schema, `/errors` for browsers, and `/llms.txt`.

use crate::harness::{Answer, Server, Start};
use serde_json::{Value, json};

/// Markup in every text of a schema that a page shows.
const SCHEMA: &str = r#"
[service]
name = "shop"
description = "<script>alert('service')</script>"
[collections.things]
description = "A thing. <img src=x onerror=alert(1)> [link](javascript:alert(2))"
[collections.things.fields]
name = { type = "string", required = true, filter = true, description = "a | b </td><b>" }
kind = { type = "string", enum = ["<u>big</u>", "small"], filter = true }
[collections.things.states]
names = ["new", "used"]
[collections.things.actions.use]
from = "new"
to = "used"
description = "Uses it. <b>"
[[collections.things.actions.use.rules]]
when = "record.name == 'glass'"
code = "breaks_easily"
message = "It <i>breaks</i>."
"#;

fn browse(server: &Server, path: &str) -> Answer {
    let accept = "text/html,application/xhtml+xml,*/*;q=0.8";
    let answer = server.ask_anonymously("GET", path).header("accept", accept).send();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer
}

#[test]
fn the_root_is_a_page_for_browsers_and_json_for_clients() {
    let server = Start::schema(SCHEMA).go();
    let page = browse(&server, "/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text.contains("<title>shop</title>"), "{}", page.text);
    assert!(browse(&server, "/errors").text.contains("<title>Error codes · shop</title>"));
    let policy = page.header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    for link in ["/docs", "/console", "/openapi.json", "/errors", "/docs/reference/things"] {
        assert!(page.text.contains(&format!("href=\"{link}\"")), "{link} in {}", page.text);
    }
    let answer = server.ask_anonymously("GET", "/").send();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let service = answer.expect(200);
    assert_eq!((&service["object"], &service["name"]), (&json!("service"), &json!("shop")));
    assert_eq!(service["links"]["docs"], "/docs");
    server.post("/", json!({})).error(405, "method_not_allowed");
    let tag = page.header("etag").unwrap().to_owned();
    let again = server.ask_anonymously("GET", "/").header("accept", "text/html");
    assert_eq!(again.header("if-none-match", &tag).send().status, 304);
}

#[test]
fn the_documentation_shows_the_schema_and_runs_none_of_its_texts() {
    let server = Start::schema(SCHEMA).go();
    let overview = browse(&server, "/docs").text;
    let guide = |name: &str| format!("href=\"/docs/{name}\"");
    for name in ["tutorial", "webhooks", "reference/things", "reference/events", "reference/live"] {
        assert!(overview.contains(&guide(name)), "{name}");
    }
    let pages = overview.split("href=\"").skip(1).filter_map(|rest| rest.split(['"', '#']).next());
    let mut pages: Vec<&str> = pages.filter(|path| path.starts_with("/docs/")).collect();
    pages.sort_unstable();
    pages.dedup();
    assert!(pages.len() > 20, "{pages:?}");
    for path in pages.into_iter().chain(["/", "/errors"]) {
        let page = browse(&server, path).text;
        for markup in ["<script>", "<img", "<b>", "<i>", "<u>", "href=\"javascript", "onerror=\""] {
            assert!(!page.contains(markup), "{path}: {markup}");
        }
    }
    let source = server.ask_anonymously("GET", "/docs/reference/things.md").send();
    assert_eq!(source.header("content-type"), Some("text/markdown; charset=utf-8"));
    for part in [
        "`POST /v1/things/{thing_id}/use`",
        "| `name` **required** | string",
        "| `status` | query |",
        "- `thing.used`",
        "[`breaks_easily`](/errors#breaks_easily)",
        "curl \"$URL/v1/things\"",
    ] {
        assert!(source.text.contains(part), "{part} in {}", source.text);
    }
    server.ask_anonymously("GET", "/docs/none").send().error(404, "route_not_found");
}

#[test]
fn every_doc_url_has_an_anchor_on_the_page_of_errors() {
    let server = Start::schema(SCHEMA).go();
    let page = browse(&server, "/errors").text;
    let thing = server.make("/v1/things", json!({ "name": "glass" }));
    let refused = server.post(&format!("/v1/things/{thing}/use"), json!({}));
    let refusals: [Value; 3] = [
        refused.error(422, "breaks_easily"),
        server.get("/v1/things/none").error(404, "not_found"),
        server.post("/v1/things", json!({})).error(422, "validation_failed"),
    ];
    for refusal in refusals {
        let place = refusal["doc_url"].as_str().unwrap().to_owned();
        let id = place.strip_prefix("/errors#").unwrap_or_else(|| panic!("{place}"));
        assert!(page.contains(&format!("id=\"{id}\"")), "{place}");
    }
    assert!(page.contains("id=\"codes-of-action-handlers\""));
    let text = server.ask_anonymously("GET", "/errors").send();
    assert_eq!(text.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert!(text.text.contains("<a id=\"breaks_easily\"></a>"), "{}", text.text);
}

#[test]
fn the_documentation_stays_without_the_console_and_lists_itself_for_models() {
    let server = Start::schema(SCHEMA).arg("--console").arg("off").go();
    let list = browse(&server, "/llms.txt").text;
    for part in ["# shop", "(/docs/tutorial.md)", "(/docs/reference/things.md)", "/openapi.json"] {
        assert!(list.contains(part), "{part} in {list}");
    }
    assert!(!browse(&server, "/docs").text.contains("href=\"/console\""));
    server.get("/console").error(404, "route_not_found");
    let index = browse(&server, "/docs/search.json");
    assert!(index.json.as_array().unwrap().len() > 100);
    for file in ["/docs/style.css", "/docs/docs.js", "/docs/icon.svg"] {
        browse(&server, file);
    }
}
