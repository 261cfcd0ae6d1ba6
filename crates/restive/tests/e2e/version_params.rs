//! Parameters of actions with other names, values and defaults in older versions.

use crate::harness::{Start, run};
use serde_json::{Value, json};

const PAYING: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions.changes]]
collection = "orders"
action = "pay"
enum_map = { field = "way", values = { card = "credit_card" } }
[[versions.changes]]
collection = "orders"
action = "pay"
required = { field = "currency", fill = "eur" }
[[versions.changes]]
collection = "orders"
action = "pay"
removed = { field = { name = "note", type = "string" } }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
paid = "string"
[collections.orders.actions.pay]
[collections.orders.actions.pay.set]
paid = """=string(request.amount) + ' ' + (has(request.currency) ? request.currency : '?')
+ ' by ' + (has(request.way) ? request.way : '?')"""
[collections.orders.actions.pay.params]
amount = { type = "integer", required = true, max = 100 }
way = { type = "string", enum = ["credit_card", "cash"], default = "cash" }
currency = { type = "string", required = true }
"#;

#[test]
fn action_parameters_have_the_names_of_the_version() {
    let server = Start::schema(PAYING).go();
    let order = server.make("/v1/orders", json!({}));
    let pay = |version: &str, params: Value| {
        let ask = server.ask("POST", &format!("/v1/orders/{order}/pay"));
        ask.version(version).json(&params).send()
    };
    let (old, new) = ("2025-01-01", "2026-01-01");
    for (version, params, paid) in [
        (old, json!({"sum": 5, "way": "card", "note": "thanks"}), "5 eur by credit_card"),
        (old, json!({"sum": 6, "currency": "usd"}), "6 usd by cash"),
        (
            new,
            json!({"amount": 7, "way": "credit_card", "currency": "eur"}),
            "7 eur by credit_card",
        ),
    ] {
        assert_eq!(pay(version, params).expect(200)["paid"], paid);
    }
    for (version, params, wrong) in [
        (old, json!({"amount": 5}), vec!["amount", "sum"]),
        (old, json!({"sum": 101}), vec!["sum"]),
        (old, json!({"sum": 5, "way": "credit_card"}), vec!["way"]),
        (new, json!({"sum": 5, "currency": "eur"}), vec!["sum", "amount"]),
        (new, json!({"amount": 5, "way": "card"}), vec!["way", "currency"]),
    ] {
        let error = pay(version, params).error(422, "validation_failed");
        let fields = error["errors"].as_array().unwrap().iter().map(|one| &one["field"]);
        let mut fields: Vec<&str> = fields.map(|field| field.as_str().unwrap()).collect();
        let mut wrong = wrong;
        fields.sort_unstable();
        wrong.sort_unstable();
        assert_eq!(fields, wrong, "{version}: {error}");
    }
    let contract = |version: &str| server.get(&format!("/openapi.json?version={version}")).text;
    assert!(contract(old).contains("\"sum\"") && !contract(old).contains("\"amount\""));
    assert!(contract(new).contains("\"amount\"") && !contract(new).contains("\"sum\""));
    let changes = server.get("/changelog").text;
    assert!(changes.contains("- `orders`, parameters of `pay`: "), "{changes}");
}

/// Orders had no payment method by default, then `coins`. Another change makes the parameters
/// differ: they are converted, with or without defaults.
const DEFAULTED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
action = "pay"
default = { field = "way", was = "coins" }
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions]]
date = "2025-06-01"
[[versions.changes]]
collection = "orders"
action = "pay"
default = { field = "way" }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
paid = "string"
[collections.orders.actions.pay]
params = { way = { type = "string", default = "card" }, amount = "integer" }
set = { paid = "=request.way != null ? request.way : 'somehow'" }
"#;

#[test]
fn an_omitted_parameter_gets_the_default_of_the_version() {
    let server = Start::schema(DEFAULTED).go();
    let order = server.make("/v1/orders", json!({}));
    for (version, default) in
        [("2025-01-01", "somehow"), ("2025-06-01", "coins"), ("2026-01-01", "card")]
    {
        for (params, paid) in [(json!({}), default), (json!({"way": "cheque"}), "cheque")] {
            let ask = server.ask("POST", &format!("/v1/orders/{order}/pay")).version(version);
            assert_eq!(ask.json(&params).send().expect(200)["paid"], paid, "{version} {params}");
        }
    }
}

/// A parameter has the name that a field had, and the rule uses both.
const JUDGED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions.changes]]
collection = "orders"
rename = { from = "bound", to = "amount" }
[[versions.changes]]
collection = "orders"
rename = { from = "due", to = "total" }
[[versions.changes]]
collection = "orders"
rename = { from = "extra", to = "way" }
[[versions]]
date = "2025-01-01"

[collections.orders.fields]
amount = "integer"
total = "integer"
way = "object"
[collections.orders.actions.pay]
params = { amount = "integer", way = "string" }
[[collections.orders.actions.pay.rules]]
when = "has(request.amount) && has(record.total) && request.amount > record.total"
code = "too_much"
param = "amount"
message = "The `amount` is more than the `total`; choose another `way` than `way.last`."
"#;

#[test]
fn errors_of_rules_use_the_parameter_names_of_the_version() {
    let server = Start::schema(JUDGED).go();
    let order = server.make("/v1/orders", json!({"amount": 1, "total": 5}));
    let refused = |version: &str, params: Value| {
        let ask = server.ask("POST", &format!("/v1/orders/{order}/pay"));
        ask.version(version).json(&params).send().error(422, "too_much")
    };
    for (version, sent, due, last) in
        [("2025-01-01", "sum", "due", "extra.last"), ("2026-01-01", "amount", "total", "way.last")]
    {
        let error = refused(version, json!({ sent: 6 }));
        assert_eq!(error["param"], sent, "{error}");
        // A string has no members.
        let message =
            format!("The `{sent}` is more than the `{due}`; choose another `way` than `{last}`.");
        assert_eq!(error["message"], message);
    }
}

#[test]
fn check_and_plan_cover_changes_of_parameters() {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let told = |edit: (&str, &str)| {
        assert!(PAYING.contains(edit.0), "{}", edit.0);
        write("wrong.toml", &PAYING.replacen(edit.0, edit.1, 1));
        let (_, told, code) = run(folder.path(), &["check", "wrong.toml"]);
        assert_eq!(code, 1, "{edit:?}");
        told
    };
    let missing = told(("action = \"pay\"", "action = \"pya\""));
    assert!(missing.contains(":6:10: `pya` is no action of `orders` (did you mean"), "{missing}");
    let unknown = told(("to = \"amount\"", "to = \"amuont\""));
    assert!(unknown.contains(":7:1: `amuont` is no field of `orders.pay`"), "{unknown}");
    let unfit = told(("to = \"amount\"", "to = \"amount\", beside = true"));
    assert!(unfit.contains(":6:10: `beside` is for fields"), "{unfit}");
    let (params, first) =
        (PAYING.split("[collections.orders.fields]").nth(1).unwrap(), "first.toml");
    let params = params.replace("amount", "sum").replace("credit_card", "card");
    let params = params
        .replace("currency = { type = \"string\", required = true }", "currency = \"string\"");
    let params = format!("{params}note = \"string\"\n");
    let params = format!("service.version = \"2025-01-01\"\n[collections.orders.fields]{params}");
    write(first, &params);
    write("second.toml", PAYING);
    // Values stored as `card` are now stored as `credit_card`, and nothing converts them back.
    let (said, _, code) = run(folder.path(), &["plan", first, "second.toml"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("`paid` looks at `way`, whose values are others now"), "{said}");
    let without =
        |text: &str| text.replace("\n+ ' by ' + (has(request.way) ? request.way : '?')", "");
    write(first, &without(&params));
    write("second.toml", &without(PAYING));
    let (said, failed, code) = run(folder.path(), &["plan", first, "second.toml"]);
    assert_eq!(code, 0, "{said}{failed}");
}
