//! Expressions in schemas and endpoint filters: errors of `check` and the API, and responses when
//! an accepted expression cannot be evaluated.

use crate::harness::{Server, Start, eventually, run};
use crate::sink::Sink;
use serde_json::{Value, json};

/// Rules and values that fail for some records: no type excludes a division by zero.
const SHOP: &str = r#"
[collections.orders]
states = { names = ["open", "paid", "due", "late"] }
fields.total = { type = "integer", required = true }
fields.parts = { type = "integer", required = true }
fields.share = { type = "integer", read_only = true }
[collections.orders.actions.split]
set = { share = "=record.total / record.parts" }
[collections.orders.actions.pay]
from = "open"
to = "paid"
[[collections.orders.actions.pay.rules]]
when = "record.total / record.parts > 100"
message = "Too much for each."
[[collections.orders.timed]]
from = "paid"
to = "due"
after = "20ms"
[[collections.orders.timed]]
from = "due"
to = "late"
after = "20ms"
set = { share = "=record.total % (record.parts - 1)" }
"#;

fn order(server: &Server, parts: i64) -> String {
    format!("/v1/orders/{}", server.make("/v1/orders", json!({"total": 10, "parts": parts})))
}

#[test]
fn a_rule_that_cannot_be_evaluated_refuses_with_a_server_error() {
    let server = Start::schema(SHOP).go();
    let path = order(&server, 0);
    let before = server.get(&path).expect(200);
    for (action, at) in [("pay", "13:9"), ("split", "8:19")] {
        let answer = server.post(&format!("{path}/{action}"), json!({}));
        let request = answer.header("request-id").unwrap().to_owned();
        let error = answer.error(500, "rule_failed");
        assert_eq!(error["type"], "api_error");
        let message = error["message"].as_str().unwrap();
        assert!(!message.contains("zero") && !message.contains(at), "no detail: {message}");
        eventually("the log says where to look", || {
            let log = server.log.lock().unwrap().clone();
            let mut lines = log.lines().filter(|line| line.contains(&request));
            lines.any(|line| line.contains(&format!("schema file:{at}: Division by zero")))
        });
    }
    assert_eq!(server.get(&path).expect(200), before, "nothing was changed");
    // The rule is evaluated again, and other records are served.
    server.patch(&path, json!({"parts": 2})).expect(200);
    assert_eq!(server.post(&format!("{path}/split"), json!({})).expect(200)["share"], 5);
    server.post(&format!("{path}/pay"), json!({})).expect(200);
    let page = server.ask("GET", "/errors").send().text;
    assert!(page.contains("rule_failed"), "it is explained");
}

#[test]
fn a_timed_transition_that_cannot_be_evaluated_does_not_stop_the_others() {
    let server = Start::schema(SHOP).go();
    let pay = |parts: i64| {
        let path = order(&server, parts);
        server.post(&format!("{path}/pay"), json!({})).expect(200);
        path
    };
    let (stuck, fine) = (pay(1), pay(4));
    let status = |path: &str| server.get(path).expect(200)["status"].clone();
    eventually("the other one fires", || status(&fine) == "late");
    assert_eq!(server.get(&fine).expect(200)["share"], 1);
    eventually("it is logged with its place", || {
        let log = server.log.lock().unwrap().clone();
        log.contains("schema file:23:19: Remainder by zero")
            && log.contains("a timed transition cannot fire: set aside")
    });
    assert_eq!(status(&stuck), "due");
    let metrics = server.ask("GET", "/metrics").send().text;
    assert!(metrics.contains("restive_timers_failed_total 1"), "{metrics}");
}

/// Every kind of type error, each with line and column.
#[test]
fn check_refuses_expressions_of_the_wrong_type_with_line_and_column() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("restive.toml");
    let check = |when: &str| {
        let rule = "[[collections.orders.actions.pay.rules]]\nmessage = 'No.'\n";
        let fields = "[collections.orders]\nfields.n = 'integer'\nfields.price = 'number'\n";
        std::fs::write(&file, format!("{fields}{rule}when = \"{when}\"\n")).unwrap();
        let (out, told, code) = run(folder.path(), &["check", "restive.toml"]);
        (code == 0, told + &out)
    };
    let (passes, told) = check("has(record.n) && record.n > 3 && client != '192.0.2.7'");
    assert!(passes, "{told}");
    for (when, place, part) in [
        ("record.m == 1", "6:15", "`record.m` names no field declared here"),
        ("nobody == 1", "6:9", "unknown name `nobody`"),
        ("1 + 1", "6:9", "must be true or false; it is an integer"),
        ("record.n > 3", "6:15", "`record.n` can be null here; ask first"),
        ("has(record.n) && record.n + 'a' == ''", "6:35", "`+` is not possible with an integer"),
        ("has(record.n) && record.n * 1.5 > 2.0", "6:35", "write `double(record.n)`"),
        ("client.startsWith(1)", "6:27", "startsWith() takes a string; this is an integer"),
        ("client.matches('[')", "6:24", "not a regular expression"),
        ("client.matches(now)", "6:24", "must be a literal string"),
    ] {
        let (passes, told) = check(when);
        assert!(!passes && told.contains(place) && told.contains(part), "{when}: {told}");
    }
}

/// A comparison that can never hold is a misspelling, wherever it is written.
#[test]
fn check_refuses_words_that_a_field_never_has() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("restive.toml");
    let check = |when: &str| {
        let fields = "[collections.orders]\nfields.size = { type = 'string', enum = ['s', 'xl'] }\n\
                      fields.the_size = { type = 'string', enum = ['s', 'xl'], required = true }\n\
                      states = { names = ['open', 'paid'] }\n\
                      [collections.orders.actions.pay]\nparams.by = { type = 'string', enum = \
                      ['card', 'cash'], required = true }\n\
                      [[collections.orders.actions.pay.rules]]\nmessage = 'No.'\n";
        std::fs::write(&file, format!("{fields}when = \"{when}\"\n")).unwrap();
        let (out, told, code) = run(folder.path(), &["check", "restive.toml"]);
        (code == 0, told + &out)
    };
    for when in [
        "record.status == 'paid' || record.size == 'xl' || 'cash' == request.by",
        "record.status in ['open', 'paid'] && 'size' in record && record.the_size != 's'",
        "record.size == null || record.size == record.the_size",
        "record.status.startsWith('pa') || record.the_size.contains('x')",
        "[record.status, 'x'] == ['paid', 'x'] || string(record.the_size) == 'xl'",
        "record.exists(name, name == 'size') && record.object == 'order'",
        "record.status + '!' == 'anything' && (record.size != null ? record.size : '-') == '-'",
    ] {
        let (passes, told) = check(when);
        assert!(passes, "{when}: {told}");
    }
    for (when, place, part) in [
        (
            "record.status == 'payd'",
            "9:26",
            "`payd` is no value of `status` (did you mean `paid`?)",
        ),
        ("'opne' != record.status", "9:9", "(did you mean `open`?); there are: open, paid"),
        ("record.size == 'XXXXL'", "9:24", "`XXXXL` is no value of `size`; there are: s, xl"),
        ("request.by == 'csh'", "9:23", "`csh` is no value of `by` (did you mean `cash`?)"),
        ("record.status in ['open', 'payd']", "9:35", "`payd` is no value of `status`"),
        ("record.size in ['m']", "9:25", "`m` is no value of `size`"),
        ("[record.status] == ['payd']", "9:29", "`payd` is no value of `status`"),
        ("[['x', 'opne']] != [['x', record.status]]", "9:16", "(did you mean `open`?)"),
        ("string(record.status) == 'payd'", "9:34", "`payd` is no value of `status`"),
        ("string(record.status) in ['payd']", "9:35", "`payd` is no value of `status`"),
        ("record.status == record.the_size", "9:23", "are never equal"),
        ("'szie' in record", "9:9", "`record.szie` names no field declared here (did you mean"),
        ("'bye' in request", "9:9", "`request.bye` names no parameter declared here (did you"),
        ("record.all(name, name != 'szie')", "9:34", "`szie` is no field (did you mean `size`?)"),
        ("record.status.startsWith('x')", "9:34", "startsWith('x') is true for no value of"),
        ("record.object == 'ordr'", "9:26", "`ordr` is no name of the object"),
    ] {
        let (passes, told) = check(when);
        assert!(!passes && told.contains(place) && told.contains(part), "{when}: {told}");
    }
}

#[test]
fn a_filter_on_a_type_or_value_that_no_event_has_is_refused_with_its_place() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let endpoint = |filter: &str| {
        server.post("/v1/webhook-endpoints", json!({"url": sink.url(), "filter": filter}))
    };
    for filter in [
        "event.type == 'book.created' || event.type in ['order.cancelled', 'order.created']",
        "event.type.startsWith('book.') || event.type.endsWith('.deleted')",
        "event.type != 'webhook_endpoint.disabled' && event.type != 'ping'",
        "event.type == 'payment_intent.created' && event.data.object.status == 'canceled'",
        "has(event.data.object.status) && event.data.object.status == 'of any object'",
    ] {
        let id = endpoint(filter).expect(201)["id"].as_str().unwrap().to_owned();
        server.delete(&format!("/v1/webhook-endpoints/{id}"));
    }
    for (filter, place, part) in [
        ("event.type == 'book.craeted'", "1:15", "is no event type (did you mean `book.created`?)"),
        ("'book.craeted' != event.type", "1:1", "is no event type (did you mean `book.created`?)"),
        ("event.type in ['book.created', 'order.canceled']", "1:32", "you mean `order.cancelled`?"),
        ("event.type.startsWith('bok.')", "1:23", "startsWith('bok.') is true for no event type"),
        ("event.object == 'book'", "1:17", "`book` is no name of the object; there are: event"),
        (
            "event.type == 'payment_intent.created' &&\n event.data.object.status == 'cancelled'",
            "2:30",
            "`cancelled` is no value of `status` (did you mean `canceled`?)",
        ),
        ("event.type == 'book.created' && 'titel' in event.data.object", "1:33", "mean `title`?"),
    ] {
        let error = endpoint(filter).error(422, "validation_failed");
        assert_eq!(error["param"], "filter", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(place) && message.contains(part), "{filter}: {message}");
    }
}

/// Types of older versions, of removed collections and of applications are known.
#[test]
fn a_filter_may_ask_for_every_type_that_some_version_has() {
    let schema = r#"
        [[versions]]
        date = "2026-01-01"
        [[versions.changes]]
        collection = "loans"
        collection_removed = true
        [[versions.changes]]
        collection = "books"
        enum_map = { field = "form", values = { paperback = "soft" } }
        [[versions]]
        date = "2025-01-01"
        [webhooks]
        development = true
        [events.types."import.done"]
        [collections.books]
        fields.form = { type = "string", enum = ["soft", "hard"], required = true }
        events = { created = "book.arrived" }
        actions.burn = { event = "book.burnt" }
        [collections.loans.fields]
        title = "string"
    "#;
    let server = Start::schema(schema).go();
    let sink = Sink::start();
    let endpoint = |version: Option<&str>, filter: &str| {
        let mut body = json!({"url": sink.url(), "filter": filter});
        if let Some(version) = version {
            body["api_version"] = json!(version);
        }
        server.post("/v1/webhook-endpoints", body)
    };
    let arrived =
        |form: &str| format!("event.type == 'book.arrived' && event.data.object.form == '{form}'");
    for (version, filter) in [
        (None, "event.type in ['book.arrived', 'book.burnt', 'import.done', 'loan.created']"),
        (Some("2025-01-01"), "event.type == 'loan.deleted'"),
        (Some("2026-01-01"), "event.type == 'loan.deleted'"),
        (Some("2025-01-01"), &arrived("paperback")),
        (Some("2026-01-01"), &arrived("soft")),
        (None, &arrived("paperback")),
        (None, &arrived("soft")),
    ] {
        let answer = endpoint(version, filter);
        assert_eq!(answer.status, 201, "{filter}: {}", answer.text);
    }
    for (version, filter, part) in [
        (None, "event.type == 'book.created'", "`book.created` is no event type"),
        (None, "event.type == 'import.doen'", "(did you mean `import.done`?)"),
        (Some("2026-01-01"), &*arrived("paperback"), "`paperback` is no value of `form`"),
        (Some("2025-01-01"), &*arrived("soft"), "`soft` is no value of `form`"),
        (None, &*arrived("harb"), "`harb` is no value of `form`"),
    ] {
        let error = endpoint(version, filter).error(422, "validation_failed");
        assert!(error["message"].as_str().unwrap().contains(part), "{filter}: {error}");
    }
}

#[test]
fn an_endpoint_filter_of_the_wrong_type_is_refused_with_its_position() {
    let server = Server::bookshop();
    let sink = Sink::start();
    let endpoint = |filter: &str| {
        let body = json!({
            "url": sink.url(), "enabled_events": ["payment_intent.*"], "filter": filter,
        });
        server.post("/v1/webhook-endpoints", body)
    };
    for (filter, place, part) in [
        ("event.data.object.amont > 1", "1:18", "names no field declared here (did you mean"),
        ("event.data.object.amount", "1:1", "must be true or false; it is an integer"),
        ("event.data.object.amount > 'x'", "1:26", "`>` is not possible with an integer and"),
        ("event.data.object.amount >\n  1 +", "2:6", "not a CEL expression"),
        ("record.amount > 1", "1:1", "unknown name `record`"),
        // Ten nested lists would be evaluated for minutes.
        ("[1, 2].all(a, [1, 2].all(b, a == b))", "1:25", "cannot stand inside another one"),
        ("event.id.matches('((a{99}){99}){99}')", "1:18", "is too large"),
        ("event.data.object.payment_method.size() > 1", "1:18", "can be null here"),
        ("true\n&& event.data.object.amount + 1.5 > 2.0", "2:29", "write `double(event.data"),
    ] {
        let error = endpoint(filter).error(422, "validation_failed");
        assert_eq!(error["param"], "filter", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(place) && message.contains(part), "{filter}: {message}");
    }
    let id = endpoint("event.data.object.amount > 1000").expect(201)["id"].clone();
    let path = format!("/v1/webhook-endpoints/{}", id.as_str().unwrap());
    // The subscribed types decide which fields a filter can use.
    let all = json!({"enabled_events": ["*"]});
    let error = server.patch(&path, all).error(422, "validation_failed");
    assert_eq!(error["param"], "filter", "{error}");
    server.patch(&path, json!({"enabled_events": ["*"], "filter": null})).expect(200);
    let asked = "event.type == 'payment_intent.created' && event.data.object.amount > 1000";
    let kept: Value = server.patch(&path, json!({ "filter": asked })).expect(200);
    assert_eq!(kept["filter"], asked);
}
