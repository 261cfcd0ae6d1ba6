//! The document of a small service that has every kind of collection, field and action.

use super::*;
use crate::error;
use model::problem::Code;
use model::schema::rule::{Expression, Rule};
use model::schema::{
    Action, Collection, ErrorShape, EventNames, EventType, Feed, Field, Handler, Kind, Operations,
    RateLimit, Service, States,
};
use model::webhook::pattern;
use std::time::Duration;

fn collection(name: &str, object: &str, fields: Vec<Field>) -> Collection {
    Collection {
        name: name.into(),
        object: object.into(),
        id_prefix: object.into(),
        description: None,
        parent: None,
        fields,
        states: None,
        actions: Vec::new(),
        timed: Vec::new(),
        events: EventNames {
            created: format!("{object}.created"),
            updated: format!("{object}.updated"),
            deleted: format!("{object}.deleted"),
        },
        feed: None,
        indexes: Vec::new(),
        operations: Operations::ALL,
        require_if_match: false,
        require_idempotency_key: false,
        cache_control: "private".into(),
        early_hints: Vec::new(),
        internal: false,
        removed: false,
        deprecated: None,
        builtin: None,
    }
}

fn field(name: &str, kind: Kind, change: impl FnOnce(&mut Field)) -> Field {
    let mut field = Field::new(name, kind);
    change(&mut field);
    field
}

fn books() -> Collection {
    let title = field("title", Kind::String, |f| {
        (f.required, f.search, f.sort, f.max_length) = (true, true, true, Some(200));
    });
    let price = field("price", Kind::Number, |f| {
        (f.min, f.filter, f.sort) = (Some(0.0), true, true);
    });
    let secret = field("secret", Kind::String, |f| f.write_only = true);
    let published = field("published", Kind::Date, |f| f.filter = true);
    let seen = field("seen", Kind::Timestamp, |f| f.filter = true);
    let extra = Field::new("extra", Kind::Object);
    let labels = Field::new("labels", Kind::Array(Box::new(Kind::String)));
    collection("books", "book", vec![title, price, secret, published, seen, extra, labels])
}

fn reviews() -> Collection {
    let parent = field("book", Kind::String, |f| (f.read_only, f.reference) = (true, Some(0)));
    let rating = field("rating", Kind::Integer, |f| {
        (f.min, f.max, f.required, f.filter) = (Some(1.0), Some(5.0), true, true);
    });
    let mut reviews = collection("reviews", "review", vec![parent, rating]);
    reviews.parent = Some(0);
    reviews.require_if_match = true;
    reviews
}

fn payments() -> Collection {
    let status = field("status", Kind::String, |f| {
        f.choices = vec!["open".into(), "paid".into()];
        (f.read_only, f.filter) = (true, true);
    });
    let book = field("book", Kind::String, |f| f.reference = Some(0));
    let gift = field("gift", Kind::Boolean, |f| {
        (f.filter, f.default) = (true, Some(Value::Bool(false)));
    });
    let mut payments = collection("card-payments", "card_payment", vec![book, status, gift]);
    payments.states = Some(States {
        field: "status".into(),
        initial: "open".into(),
        names: vec!["open".into(), "paid".into()],
    });
    payments.require_idempotency_key = true;
    let declined = Rule {
        when: Expression::compile("request.card == 'declined'").unwrap(),
        status: 402,
        kind: "card_error".into(),
        code: "card_declined".into(),
        message: "The card was declined.".into(),
        param: None,
        extra: Map::new(),
        set: Vec::new(),
        to: None,
        event: None,
    };
    let confirm = Action {
        native: None,
        name: "confirm".into(),
        description: None,
        from: vec!["open".into()],
        to: Some("paid".into()),
        params: vec![field("card", Kind::String, |f| f.required = true)],
        rules: vec![declined],
        set: Vec::new(),
        event: "card_payment.confirm".into(),
        handler: None,
    };
    let url = "http://127.0.0.1/".into();
    let handler =
        Some(Handler { url, timeout: Duration::from_secs(1), secret: None, headers: Vec::new() });
    let mark = Action { name: "update".into(), params: Vec::new(), handler, ..confirm.clone() };
    payments.actions = vec![confirm, mark];
    payments
}

fn messages() -> Collection {
    let mut messages = collection("messages", "message", vec![Field::new("text", Kind::String)]);
    messages.feed = Some(Feed { live_name: "message".into(), author: None });
    messages.operations = Operations { replace: false, update: false, ..Operations::ALL };
    messages
}

/// A collection whose object has the name of a fixed component.
fn awkward() -> [Collection; 1] {
    [collection("errors", "error", Vec::new())]
}

fn shop() -> Schema {
    let mut collections = vec![books(), reviews(), payments(), messages()];
    collections.extend(awkward());
    let service = Service {
        early_hints: Vec::new(),
        name: "shop".into(),
        description: None,
        version: "2026-01-01".into(),
        mount: "/v1".into(),
        errors: ErrorShape::Structured,
        rate_limit: RateLimit { requests: 10, window: Duration::from_secs(1) },
        max_page: 100,
        max_body_bytes: 1 << 20,
        origins: Vec::new(),
    };
    Schema::new(service, collections)
}

/// Every operation with its path and method.
fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let methods = ["get", "post", "put", "patch", "delete"];
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in methods.into_iter().filter(|method| item.get(method).is_some()) {
            all.push((path.clone(), method.to_owned(), &item[method]));
        }
    }
    all
}

/// What a reference refers to; another value is returned as it is.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let pointer = value["$ref"].as_str().map(|pointer| &pointer[1..]);
    pointer.map_or(value, |pointer| document.pointer(pointer).unwrap())
}

#[test]
fn every_route_of_every_public_collection_is_described() {
    let document = document(&shop(), None);
    let found: Vec<String> =
        operations(&document).iter().map(|(path, method, _)| format!("{method} {path}")).collect();
    let expected = |path: &str, methods: &[&str]| {
        for method in methods {
            assert!(found.contains(&format!("{method} {path}")), "{method} {path} in {found:#?}");
        }
        let count = found.iter().filter(|route| route.ends_with(&format!(" {path}"))).count();
        assert_eq!(count, methods.len(), "{path}");
    };
    expected("/v1/books", &["get", "post"]);
    expected("/v1/books/{book_id}", &["get", "put", "patch", "delete"]);
    expected("/v1/books/{book_id}/reviews", &["get", "post"]);
    expected("/v1/books/{book_id}/reviews/{review_id}", &["get", "put", "patch", "delete"]);
    expected("/v1/card-payments/{card_payment_id}/confirm", &["post"]);
    expected("/v1/messages/{message_id}", &["get", "delete"]);
    expected("/v1/errors", &["get", "post"]);
    expected("/v1/keys", &["get", "post"]);
    expected("/v1/keys/{key_id}", &["get", "patch", "delete"]);
    expected("/v1/accounts/{account_id}", &["get", "patch", "delete"]);
    for path in ["/health", "/metrics", "/errors", "/openapi.json", "/asyncapi.json"] {
        expected(path, &["get"]);
        assert_eq!(document["paths"][path]["get"]["security"], json!([]));
    }
}

#[test]
fn operation_ids_are_unique_even_for_colliding_names() {
    let document = document(&shop(), None);
    let ids: Vec<_> = operations(&document)
        .iter()
        .map(|(.., operation)| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    let schemas = &document["components"]["schemas"];
    assert!(schemas["Error"]["properties"].get("error").is_some());
    assert_eq!(schemas["ErrorRecord"]["properties"]["object"]["const"], "error");
}

#[test]
fn some_operation_documents_the_status_of_every_error_code() {
    let document = document(&shop(), None);
    let answered: BTreeSet<String> = operations(&document)
        .iter()
        .flat_map(|(.., operation)| operation["responses"].as_object().unwrap().keys().cloned())
        .collect();
    for (.., operation) in operations(&document) {
        for class in ["4XX", "5XX"] {
            assert!(operation["responses"].get(class).is_some(), "{operation}");
        }
    }
    for code in Code::ALL {
        let status = error::classify(*code).0;
        assert!(status.is_client_error() || status.is_server_error(), "{}", code.name());
    }
    for status in ["402", "409", "428", "200", "201", "304"] {
        assert!(answered.contains(status), "{status}");
    }
    let confirm = &document["paths"]["/v1/card-payments/{card_payment_id}/confirm"]["post"];
    let refusal = confirm["responses"]["402"]["description"].as_str().unwrap();
    assert!(refusal.contains("`card_declined`"), "{refusal}");
    assert_eq!(confirm["requestBody"]["required"], true);
    let component = &document["components"]["responses"]["ClientError"];
    let listed = component["description"].as_str().unwrap();
    assert!(listed.contains("- `card_declined`: The card was declined."), "{listed}");
    let codes = &document["components"]["schemas"]["ErrorCode"]["anyOf"][0]["enum"];
    assert!(codes.as_array().unwrap().contains(&json!("card_declined")), "{codes}");
}

#[test]
fn lists_are_named_in_the_plural_of_their_collection() {
    let mut collections = vec![books(), collection("categories", "category", Vec::new())];
    collections.extend(awkward());
    let document = document(&Schema::new(shop().service, collections), None);
    let ids: BTreeSet<String> = operations(&document)
        .iter()
        .map(|(.., operation)| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    for id in ["listBooks", "listCategories", "getCategory", "listDeliveries", "listErrorRecords"] {
        assert!(ids.contains(id), "{id} in {ids:?}");
    }
}

#[test]
fn every_reference_resolves_and_every_component_is_used() {
    for errors in [ErrorShape::Structured, ErrorShape::Flat] {
        let mut schema = shop();
        schema.service.errors = errors;
        let document = document(&schema, Some("https://api.shop.test/"));
        let mut references = BTreeSet::new();
        collect(&document, &mut references);
        for pointer in &references {
            assert!(document.pointer(pointer).is_some(), "dangling: {pointer}");
        }
        for (section, entries) in document["components"].as_object().unwrap() {
            for name in entries.as_object().unwrap().keys() {
                let pointer = format!("/components/{section}/{name}");
                let used = section == "securitySchemes" || references.contains(&pointer);
                assert!(used, "unused: {pointer}");
            }
        }
        assert_eq!(document["servers"][0]["url"], "https://api.shop.test");
    }
}

#[test]
fn headers_that_a_collection_requires_are_required_in_the_document() {
    let document = document(&shop(), None);
    let names = |path: &str, method: &str| -> Vec<String> {
        let parameters = document["paths"][path][method]["parameters"].as_array().unwrap();
        let resolve = |parameter: &Value| match parameter["$ref"].as_str() {
            Some(pointer) => document.pointer(&pointer[1..]).unwrap().clone(),
            None => parameter.clone(),
        };
        parameters
            .iter()
            .map(resolve)
            .map(|parameter| {
                let name = parameter["name"].as_str().unwrap();
                let mark = if parameter["required"] == true { "!" } else { "" };
                format!("{name}{mark}")
            })
            .collect()
    };
    let create = names("/v1/card-payments", "post");
    assert_eq!(create, ["Idempotency-Key!"]);
    let replace = names("/v1/books/{book_id}/reviews/{review_id}", "put");
    assert_eq!(replace, ["If-Match!"]);
    assert_eq!(names("/v1/books/{book_id}", "put"), ["If-Match"]);
    for (path, item) in document["paths"].as_object().unwrap() {
        let shared = json!({ "$ref": "#/components/parameters/RestiveVersion" });
        let mut places = vec![&item["parameters"]];
        places.extend(item.as_object().unwrap().values().map(|one| &one["parameters"]));
        let named =
            places.iter().any(|list| list.as_array().is_some_and(|list| list.contains(&shared)));
        assert_eq!(named, path.starts_with("/v1") || path.starts_with("/api") || path == "/ws");
    }
    let list = names("/v1/books", "get");
    for name in ["page", "limit", "after", "sort", "q", "expand", "fields", "price", "min_price"] {
        assert!(list.iter().any(|found| found == name), "{name} in {list:?}");
    }
    assert!(!list.iter().any(|name| name == "secret" || name == "title"), "{list:?}");
    assert!(!names("/v1/messages", "get").iter().any(|name| name == "q" || name == "expand"));
}

#[test]
fn bodies_have_the_writable_fields_and_records_the_readable_ones() {
    let document = document(&shop(), None);
    let schemas = &document["components"]["schemas"];
    let members = |name: &str| -> Vec<String> {
        schemas[name]["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let whole = ["id", "object", "book", "rating", "created_at", "updated_at"];
    assert_eq!(schemas["Review"]["required"], json!(whole), "every member is always there");
    assert_eq!(members("ReviewCreate"), ["rating"]);
    assert_eq!(schemas["ReviewCreate"]["required"], json!(["rating"]));
    assert!(schemas["ReviewUpdate"].get("required").is_none());
    assert!(members("BookCreate").contains(&"secret".to_owned()));
    assert!(!members("Book").contains(&"secret".to_owned()));
    assert_eq!(schemas["Book"]["properties"]["reviews"]["$ref"], "#/components/schemas/ReviewList");
    assert_eq!(schemas["Message"]["properties"]["id"]["type"], "integer");
    let event = schemas["Event"]["required"].as_array().unwrap();
    assert!(!event.contains(&json!("actor")), "earlier events have none: {event:?}");
    assert!(members("Event").contains(&"actor".to_owned()));
    assert_eq!(schemas["CardPaymentCreate"]["properties"]["gift"]["default"], false);
}

#[test]
fn a_ping_returns_its_delivery_and_other_actions_return_the_record() {
    let document = document(&shop(), None);
    let answered = |action: &str| {
        let path = format!("/v1/webhook-endpoints/{{webhook_endpoint_id}}/{action}");
        let success = &document["paths"][path]["post"]["responses"]["200"];
        let success = resolved(&document, success);
        let headers: Vec<&str> =
            success["headers"].as_object().unwrap().keys().map(String::as_str).collect();
        let schema = &success["content"]["application/json"]["schema"]["$ref"];
        (schema.as_str().unwrap().to_owned(), headers.contains(&"ETag"))
    };
    assert_eq!(answered("ping"), ("#/components/schemas/PingOutcome".to_owned(), false));
    assert_eq!(answered("enable"), ("#/components/schemas/WebhookEndpoint".to_owned(), true));
    let outcome = &document["components"]["schemas"]["PingOutcome"];
    assert!(outcome["properties"].get("next_attempt_at").is_some(), "as in a delivery");
    assert_eq!(outcome["properties"]["attempt"]["$ref"], "#/components/schemas/Attempt");
    assert_eq!(outcome["required"], json!(["object", "event", "endpoint", "status"]));
}

#[test]
fn every_type_of_event_is_a_webhook_with_its_payload() {
    let mut schema = shop();
    let description = Some("A report was made.".to_owned());
    schema.events.published.push(EventType { name: "report.ready".into(), description });
    let document = document(&schema, None);
    let webhooks = document["webhooks"].as_object().unwrap();
    let mut kinds: Vec<&str> = webhooks.keys().map(String::as_str).collect();
    kinds.retain(|kind| *kind != "ping");
    assert_eq!(kinds, pattern::catalogue(&schema).into_iter().collect::<Vec<_>>());
    let payload = |kind: &str| {
        let post = &resolved(&document, &webhooks[kind])["post"];
        assert_eq!(post["security"], json!([]), "{kind}");
        assert_eq!(post["parameters"].as_array().unwrap().len(), 5, "{kind}");
        let schema = &post["requestBody"]["content"]["application/json"]["schema"];
        document.pointer(&schema["$ref"].as_str().unwrap()[1..]).unwrap()
    };
    for (kind, snapshot) in [
        ("book.created", Some("BookSnapshot")),
        ("book.updated", Some("BookSnapshot")),
        ("card_payment.confirm", Some("CardPaymentSnapshot")),
        ("ping", Some("WebhookEndpointSnapshot")),
        ("report.ready", None),
    ] {
        let properties = &payload(kind)["properties"];
        let named = &properties["type"];
        let kinds = named["enum"].as_array().cloned().unwrap_or(vec![named["const"].clone()]);
        assert!(kinds.contains(&json!(kind)), "{kind} in {kinds:?}");
        let data = &properties["data"]["properties"];
        let name = |value: &Value| value["$ref"].as_str().map(|text| text[21..].to_owned());
        assert_eq!(name(&data["object"]["anyOf"][0]).as_deref(), snapshot, "{kind}");
    }
    assert_eq!(payload("report.ready")["description"], "A report was made.");
    let snapshot = &document["components"]["schemas"]["BookSnapshot"];
    assert!(snapshot["properties"].get("secret").is_none(), "write-only fields stay inside");
    assert!(snapshot["properties"].get("reviews").is_none(), "events embed nothing");
    assert_eq!(snapshot["required"], json!(["id", "object", "created_at", "updated_at"]));
}

#[test]
fn channels_have_the_paths_of_the_schema_and_accept_tokens() {
    let mut schema = shop();
    schema.live.mount = "/live".into();
    schema.live.socket = "/v1/socket".into();
    let document = document(&schema, None);
    let get = |path: &str| &document["paths"][path]["get"];
    for path in ["/live/messages", "/live/events", "/v1/socket"] {
        assert_eq!(get(path)["security"][1], json!({ "channelToken": [] }), "{path}");
        assert!(get(path)["responses"].get("4XX").is_some(), "{path}");
    }
    let success = &get("/live/messages")["responses"]["200"];
    assert_eq!(
        success["content"]["application/json"]["schema"]["items"]["$ref"],
        "#/components/schemas/Message"
    );
    assert!(success["headers"].get("X-Stream-Gap").is_some());
    let stream = &get("/live/events")["responses"]["200"]["content"];
    assert!(stream.get("text/event-stream").is_some());
    assert!(get("/v1/socket")["responses"].get("101").is_some());
    assert!(get("/v1/presence").get("security").is_none());
    let tokens = &document["paths"]["/v1/channel-tokens"]["post"];
    assert_eq!(tokens["requestBody"]["required"], false);
    for path in ["/v1/books", "/v1/presence", "/live/messages"] {
        let headers = &resolved(&document, &get(path)["responses"]["200"])["headers"];
        assert!(headers.get("X-Stream-Position").is_some(), "{path}");
    }
}

/// A schema without feeds has nothing to poll, and no token can publish.
#[test]
fn a_schema_without_feeds_has_no_polls_and_no_publish_permission() {
    let document = document(&Schema::new(shop().service, vec![books()]), None);
    assert!(document["paths"].get("/api/messages").is_none());
    let publish =
        &document["components"]["schemas"]["ChannelTokenRequest"]["properties"]["publish"];
    assert_eq!(publish["maxItems"], 0);
}

#[test]
fn docs_errors_md_equals_the_generated_catalogue() {
    let written = include_str!("../../../../docs/errors.md");
    let expected = errors_markdown(None);
    assert!(written == expected, "docs/errors.md is out of date; it must read:\n\n{expected}");
}
