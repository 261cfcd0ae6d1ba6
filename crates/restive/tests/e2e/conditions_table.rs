//! Every conditional header, alone and combined, on every method and state of a resource, compared
//! with RFC 9110 13.2.2: the order of evaluation, and the effect of a false condition.

use crate::harness::{Answer, Server, Start};
use serde_json::{Value, json};

const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const FAR_AHEAD: &str = "Fri, 01 Jan 2100 00:00:00 GMT";
const OTHER_TAG: &str = "\"1-1\"";

/// One value of a header, and whether its condition is true. `None`: the header is not sent, or
/// does not apply to the resource.
type Choice = (Option<String>, Option<bool>);

/// Values of the four headers to combine, in the order of evaluation.
struct Headers {
    if_match: Vec<Choice>,
    if_unmodified_since: Vec<Choice>,
    if_none_match: Vec<Choice>,
    if_modified_since: Vec<Choice>,
}

const ABSENT: Choice = (None, None);

fn said(text: &str, holds: impl Into<Option<bool>>) -> Choice {
    (Some(text.to_owned()), holds.into())
}

impl Headers {
    /// For a resource with this tag, which may be weak, and with or without a date.
    fn of(tag: &str, dated: bool) -> Headers {
        let weak = format!("W/{}", tag.trim_start_matches("W/"));
        let is_strong = !tag.starts_with("W/");
        let dates = |early: bool| match dated {
            true => vec![ABSENT, said(LONG_AGO, early), said(FAR_AHEAD, !early)],
            // If the resource has no date, the header is ignored: 13.1.3 and 13.1.4.
            false => vec![ABSENT, said(LONG_AGO, None), said(FAR_AHEAD, None)],
        };
        Headers {
            if_match: vec![
                ABSENT,
                said("*", true),
                said(&format!("{OTHER_TAG}, {tag}"), is_strong),
                said(OTHER_TAG, false),
                // Compared strongly: 13.1.1.
                said(&weak, false),
            ],
            if_unmodified_since: dates(false),
            if_none_match: vec![
                ABSENT,
                said(OTHER_TAG, true),
                said("*", false),
                said(&format!("{OTHER_TAG}, {tag}"), false),
                // Compared weakly: 13.1.2.
                said(&weak, false),
            ],
            if_modified_since: dates(true),
        }
    }
}

/// The expected result of a request whose unconditional response is 2xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Performed,
    NotModified,
    Failed,
}

/// RFC 9110 13.2.2, step by step.
fn expected(is_read: bool, values: [Option<bool>; 4], present: [bool; 4]) -> Expected {
    let [matches, unmodified, none_match, modified] = values;
    if present[0] {
        if matches == Some(false) {
            return Expected::Failed;
        }
    } else if unmodified == Some(false) {
        return Expected::Failed;
    }
    if present[2] {
        return match (none_match, is_read) {
            (Some(false), true) => Expected::NotModified,
            (Some(false), false) => Expected::Failed,
            _ => Expected::Performed,
        };
    }
    match (is_read, modified) {
        (true, Some(false)) => Expected::NotModified,
        _ => Expected::Performed,
    }
}

/// Sends every combination. `target` creates a resource and returns its path, its tag and whether
/// it has a date.
fn check(
    server: &Server,
    method: &str,
    body: &Value,
    mut target: impl FnMut() -> (String, String, bool),
) -> usize {
    const NAMES: [&str; 4] =
        ["if-match", "if-unmodified-since", "if-none-match", "if-modified-since"];
    let is_read = matches!(method, "GET" | "HEAD");
    let mut count = 0;
    let counts = {
        let (_, tag, dated) = target();
        let headers = Headers::of(&tag, dated);
        [
            headers.if_match.len(),
            headers.if_unmodified_since.len(),
            headers.if_none_match.len(),
            headers.if_modified_since.len(),
        ]
    };
    for number in 0..counts.iter().product() {
        // The request may change the resource, so each gets its own.
        let (path, tag, dated) = target();
        let headers = Headers::of(&tag, dated);
        let all = [
            &headers.if_match,
            &headers.if_unmodified_since,
            &headers.if_none_match,
            &headers.if_modified_since,
        ];
        let mut rest = number;
        let chosen = all.map(|values| {
            let value = &values[rest % values.len()];
            rest /= values.len();
            value
        });
        let mut ask = server.ask(method, &path);
        for (name, (value, _)) in NAMES.iter().zip(chosen) {
            if let Some(value) = value {
                ask = ask.header(name, value);
            }
        }
        let has_body = matches!(method, "POST" | "PUT" | "PATCH");
        let answer = if has_body { ask.json(body).send() } else { ask.send() };
        let values = chosen.map(|(_, holds)| *holds);
        let present = chosen.map(|(value, _)| value.is_some());
        let expected = expected(is_read, values, present);
        assert_eq!(outcome(&answer), expected, "{method} {path} {chosen:?}: {}", answer.text);
        count += 1;
    }
    count
}

fn outcome(answer: &Answer) -> Expected {
    match answer.status {
        200..=299 => Expected::Performed,
        304 => Expected::NotModified,
        412 => {
            assert_eq!(answer.header("restive-error-code"), Some("precondition_failed"));
            Expected::Failed
        }
        other => panic!("{other}: {}", answer.text),
    }
}

fn tag(server: &Server, path: &str) -> String {
    server.get(path).header("etag").unwrap().to_owned()
}

fn server() -> Server {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off").go()
}

#[test]
fn conditions_on_records_follow_rfc_9110() {
    let server = server();
    let book = server.book("Dune");
    let body = json!({"title": "Mine", "author": "Me"});
    let mut count = 0;
    let read = format!("/v1/books/{book}");
    for method in ["GET", "HEAD"] {
        let record = || (read.clone(), tag(&server, &read), true);
        count += check(&server, method, &body, record);
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let record = || {
            let path = format!("/v1/books/{}", server.book("Dune"));
            let tag = tag(&server, &path);
            (path, tag, true)
        };
        count += check(&server, method, &body, record);
    }
    let action = || {
        let order = format!("/v1/orders/{}", server.make("/v1/orders", json!({"book": book})));
        let tag = tag(&server, &order);
        (format!("{order}/cancel"), tag, true)
    };
    count += check(&server, "POST", &json!({}), action);
    assert_eq!(count, 6 * 225);
}

#[test]
fn conditions_on_collections_follow_rfc_9110() {
    let server = server();
    server.book("Dune");
    for path in ["/v1/books", "/v1/webhook-endpoints"] {
        for method in ["GET", "HEAD", "POST"] {
            let body = match path {
                "/v1/books" => json!({"title": "Dune", "author": "Frank Herbert"}),
                _ => json!({"url": "https://hooks.example.com/", "status": "disabled"}),
            };
            let list = || (path.to_owned(), tag(&server, path), false);
            assert_eq!(check(&server, method, &body, list), 225, "{method} {path}");
            // The number of endpoints is limited.
            for id in server.get("/v1/webhook-endpoints?limit=100").column("id") {
                let id = id.as_str().unwrap();
                server.delete(&format!("/v1/webhook-endpoints/{id}")).expect(200);
            }
        }
    }
}

#[test]
fn conditions_on_built_in_resources_follow_rfc_9110() {
    let server = server();
    let mut kept = None;
    let url = "https://hooks.example.com/";
    let mut endpoint = || {
        let id = kept
            .take()
            .filter(|id| server.get(&format!("/v1/webhook-endpoints/{id}")).status == 200);
        let body = json!({"url": url, "status": "disabled"});
        let id = id.unwrap_or_else(|| server.make("/v1/webhook-endpoints", body));
        let path = format!("/v1/webhook-endpoints/{id}");
        let tag = tag(&server, &path);
        kept = Some(id);
        (path, tag, true)
    };
    for (method, body) in [
        ("GET", json!({})),
        ("HEAD", json!({})),
        ("PATCH", json!({"description": "Mine"})),
        ("DELETE", json!({})),
    ] {
        assert_eq!(check(&server, method, &body, &mut endpoint), 225, "{method}");
    }
    let mut rotation = || {
        let (path, tag, dated) = endpoint();
        (format!("{path}/rotate-secret"), tag, dated)
    };
    // Without an overlap, because the number of valid secrets is limited.
    check(&server, "POST", &json!({"overlap": 0}), &mut rotation);
}

#[test]
fn a_resource_without_validators_matches_no_etag() {
    let server = server();
    let version = server.get("/v1/account").expect(200)["api_version"].clone();
    let pin = json!({ "api_version": version });
    for (method, path, body) in [
        ("GET", "/v1/account", json!(null)),
        ("POST", "/v1/account", pin),
        ("GET", "/v1/version-usage", json!(null)),
        ("GET", "/v1/presence", json!(null)),
        ("GET", "/api/events", json!(null)),
        ("GET", "/health", json!(null)),
        ("HEAD", "/openapi.json", json!(null)),
    ] {
        let send = |name: &str, value: &str| {
            let ask = server.ask(method, path).header(name, value);
            if body.is_null() { ask.send() } else { ask.json(&body).send() }
        };
        let refused = send("if-match", OTHER_TAG);
        assert_eq!(refused.status, 412, "{method} {path}: {}", refused.text);
        if path != "/api/events" {
            let done = send("if-match", "*");
            assert!(done.status < 300, "{method} {path}: {} {}", done.status, done.text);
        }
        if method == "POST" {
            send("if-none-match", "*").error(412, "precondition_failed");
            send("if-none-match", OTHER_TAG).expect(200);
        }
    }
    // A token does not exist before it is created.
    let token = |name: &str, value: &str| {
        server.ask("POST", "/v1/channel-tokens").header(name, value).json(&json!({})).send()
    };
    token("if-match", "*").error(412, "precondition_failed");
    token("if-none-match", "*").expect(201);
    let polled = server.ask("GET", "/api/messages?since=0&wait=true").header("if-match", OTHER_TAG);
    polled.send().error(412, "precondition_failed");
}

#[test]
fn a_missing_resource_is_404_under_every_condition() {
    let server = server();
    let gone = server.book("Dune");
    server.delete(&format!("/v1/books/{gone}")).expect(200);
    let body = json!({"title": "Mine", "author": "Me"});
    for path in ["/v1/books/book_none".to_owned(), format!("/v1/books/{gone}")] {
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE"] {
            for (name, value) in [
                ("if-match", "*"),
                ("if-match", OTHER_TAG),
                ("if-none-match", "*"),
                ("if-none-match", OTHER_TAG),
                ("if-unmodified-since", LONG_AGO),
            ] {
                let ask = server.ask(method, &path).header(name, value);
                let has_body = matches!(method, "PUT" | "PATCH");
                let answer = if has_body { ask.json(&body).send() } else { ask.send() };
                // A repeated DELETE succeeds like the first one: 13.1.1 allows that.
                let repeated = method == "DELETE" && path.ends_with(&gone);
                let status = if repeated { 200 } else { 404 };
                assert_eq!(answer.status, status, "{method} {path} {name}: {value}");
            }
        }
    }
}

#[test]
fn a_condition_that_cannot_be_parsed_never_lets_a_request_pass() {
    let server = server();
    let path = format!("/v1/books/{}", server.book("Dune"));
    let before = server.get(&path).text;
    for (name, value) in [
        ("if-match", "no quotes"),
        ("if-none-match", "no quotes"),
        ("if-none-match", ""),
        ("if-none-match", " , "),
        ("if-none-match", "\"a\", b"),
        ("if-unmodified-since", "soon"),
    ] {
        for method in ["PUT", "PATCH", "DELETE"] {
            let ask = server.ask(method, &path).header(name, value);
            let body = json!({"title": "Mine", "author": "Me"});
            let answer = if method == "DELETE" { ask.send() } else { ask.json(&body).send() };
            answer.error(400, "invalid_header");
        }
    }
    let twice = server.ask("DELETE", &path).header("if-unmodified-since", FAR_AHEAD);
    twice.header("if-unmodified-since", LONG_AGO).send().error(400, "invalid_header");
    // Another value of the same header.
    let two = server.ask("DELETE", &path).header("if-none-match", OTHER_TAG);
    two.header("if-none-match", "*").send().error(412, "precondition_failed");
    assert_eq!(server.get(&path).text, before, "nothing was changed");
}

#[test]
fn only_one_of_many_writers_that_read_the_same_version_succeeds() {
    let server = server();
    let path = format!("/v1/books/{}", server.book("Dune"));
    // Each writes only if the record has changed from the old state: before the first write all are
    // refused, and after it all succeed.
    let old = tag(&server, &path);
    let write = |number: usize| {
        let ask = server.ask("PATCH", &path).header("if-none-match", &old);
        ask.json(&json!({"price": number + 1})).send().status
    };
    std::thread::scope(|threads| {
        let early: Vec<_> = (0..8).map(|number| threads.spawn(move || write(number))).collect();
        assert!(early.into_iter().all(|writer| writer.join().unwrap() == 412));
    });
    server.patch(&path, json!({"price": 100})).expect(200);
    assert_eq!(write(200), 200);
}
