//! In which version an endpoint is told: its own, or its account's, or the newest.

use crate::bed::{Bed, HERE, until};
use crate::sink::{Request, Sink};
use model::parse;
use model::record::Fields;
use model::schema::{BOOKSHOP, Builtin, Kind, Schema};
use model::{Change, Field};
use serde_json::{Value, json};

const OLD: &str = "2025-06-01";
const NEW: &str = "2026-11-01";

/// Books were named once.
fn schema() -> Schema {
    let versions = "
[[versions]]
date = '2026-11-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'name', to = 'title' }
[[versions]]
date = '2025-06-01'
";
    let mut schema = parse::parse(&format!("{BOOKSHOP}{versions}")).unwrap();
    let accounts = schema.own(Builtin::Account);
    let fields = &mut schema.collections[accounts].fields;
    if fields.iter().all(|field| field.name != "api_version") {
        fields.push(Field::new("api_version", Kind::String));
    }
    schema
}

fn pinned(version: &str) -> Fields {
    std::iter::once(("api_version".to_owned(), Value::from(version))).collect()
}

fn told(request: &Request) -> (&str, &str) {
    let version = request.body["api_version"].as_str().unwrap();
    let shown = request.body["data"]["object"].as_object().unwrap();
    let name = shown.keys().find(|name| matches!(name.as_str(), "name" | "title")).unwrap();
    (version, name)
}

#[tokio::test]
async fn an_endpoint_follows_its_account_unless_it_has_a_version_of_its_own() {
    let bed = Bed::of(schema());
    let (follows, old, new) = (Sink::willing().await, Sink::willing().await, Sink::willing().await);
    let engine = bed.start();
    bed.endpoint(&follows, json!({})).await;
    bed.endpoint(&old, json!({ "api_version": OLD })).await;
    bed.endpoint(&new, json!({ "api_version": NEW })).await;
    let found = |sink: &Sink, record: &str| {
        sink.events().into_iter().find(|request| request.record() == record)
    };
    let all = |record: &str| [&follows, &old, &new].map(|sink| found(sink, record));
    let arrived = |record: &str| all(record).iter().all(Option::is_some);
    let versions = |record: &str| {
        all(record).map(|request| {
            let request = request.unwrap();
            let (version, name) = told(&request);
            (version.to_owned(), name.to_owned())
        })
    };
    let pair = |version: &str, name: &str| (version.to_owned(), name.to_owned());
    let (named, titled) = (pair(OLD, "name"), pair(NEW, "title"));
    bed.tell(&["a", "b", "c"]);
    until("all were told", || arrived("c")).await;
    assert_eq!(versions("c"), [titled.clone(), named.clone(), titled.clone()]);
    // The number of an account's record is the account's.
    let account = Change::Create { fields: pinned(OLD) };
    let account = bed.write(Builtin::Account, None, account).await;
    assert_eq!(account.number, HERE.account_number());
    bed.tell(&["d"]);
    until("all were told", || arrived("d")).await;
    assert_eq!(versions("d"), [named.clone(), named.clone(), titled.clone()]);
    let newer = Change::Assign { fields: pinned(NEW), event: None };
    bed.write(Builtin::Account, Some(&account.id), newer).await;
    bed.tell(&["e"]);
    until("all were told", || arrived("e")).await;
    assert_eq!(versions("e"), [titled.clone(), named.clone(), titled.clone()]);
    let spoken = |version: &str, endpoints: usize| {
        let name = "restive_webhook_version_endpoints";
        bed.figures().contains(&format!("{name}{{version=\"{version}\"}} {endpoints}\n"))
    };
    until("it is told who is sent which", || spoken(OLD, 1) && spoken(NEW, 2)).await;
    // Known from the start, too.
    let older = Change::Assign { fields: pinned(OLD), event: None };
    bed.write(Builtin::Account, Some(&account.id), older).await;
    engine.stop().await;
    let engine = bed.start();
    bed.tell(&["f"]);
    until("all were told", || arrived("f")).await;
    assert_eq!(versions("f"), [named.clone(), named, titled]);
    engine.stop().await;
}
