//! Schema edits on existing data: safe or declared edits apply without a flag, all others are
//! refused without changes unless they are accepted.

use crate::harness::{Server, Start};
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

const FIRST: &str = r#"
[collections.books.fields]
title = { type = "string", required = true }
price = "number"
genre = { type = "string", enum = ["novel", "poem"] }
shelf = "string"

[collections.orders]
states = { names = ["open", "closed"] }
fields = { book = { ref = "books" } }
"#;

/// A stopped server of the first schema with some records; returns their ids and the folder.
fn filled() -> (Vec<String>, Arc<TempDir>) {
    let server = Start::schema(FIRST).go();
    let ids = [("Dune", 3, "novel"), ("Howl", 1, "poem"), ("Emma", 2, "novel")].map(
        |(title, price, genre)| {
            let body = json!({"title": title, "price": price, "genre": genre, "shelf": "A"});
            server.make("/v1/books", body)
        },
    );
    server.make("/v1/orders", json!({"book": ids[0]}));
    (ids.to_vec(), server.stop().1)
}

fn titles(server: &Server, query: &str) -> Vec<String> {
    server.get(&format!("/v1/books?{query}")).titles()
}

#[test]
fn additions_to_a_schema_need_no_flag() {
    let (ids, folder) = filled();
    let schema = r#"
        [collections.books]
        indexes = [["price", "title"]]
        [collections.books.fields]
        title = { type = "string", required = true, filter = true, sort = true, search = true }
        price = { type = "number", filter = true, sort = true }
        genre = { type = "string", enum = ["novel", "poem", "play"], filter = true }
        shelf = "string"
        subtitle = { type = "string", filter = true }
        stock = { type = "integer", default = 0, filter = true }

        [collections.orders]
        states = { names = ["open", "closed", "lost"] }
        fields = { book = { ref = "books" } }
        actions.lose.to = "lost"

        [collections.reviews]
        parent = "books"
        fields = { text = "string" }
    "#;
    let server = Start::schema(schema).on(&folder).go();
    assert_eq!(titles(&server, "sort=price"), ["Howl", "Emma", "Dune"], "old rows sort");
    assert_eq!(titles(&server, "min_price=2&sort=title"), ["Dune", "Emma"], "old rows filter");
    assert_eq!(titles(&server, "q=howl"), ["Howl"], "old rows are found");
    assert_eq!(titles(&server, "genre=poem"), ["Howl"]);
    let path = format!("/v1/books/{}", ids[0]);
    let old = server.get(&path).expect(200);
    assert!(old.as_object().unwrap().contains_key("subtitle"), "a new field shows as null: {old}");
    assert_eq!(old["subtitle"], json!(null));
    assert_eq!(titles(&server, "subtitle=null&sort=title").len(), 3);
    server.patch(&path, json!({"subtitle": "Part 1", "genre": "play"})).expect(200);
    assert_eq!(titles(&server, "subtitle=Part+1"), ["Dune"]);
    server.make(&format!("{path}/reviews"), json!({"text": "good"}));
    let order = server.get("/v1/orders").column("id")[0].as_str().unwrap().to_owned();
    server.post(&format!("/v1/orders/{order}/lose"), json!({})).expect(200);
    let (_, folder) = server.stop();
    let again = Start::schema(schema).on(&folder).go();
    assert_eq!(titles(&again, "q=part").len(), 0, "the new field is not searched");
    assert_eq!(titles(&again, "subtitle=Part+1"), ["Dune"], "and again after a restart");
}

#[test]
fn a_refused_start_names_only_flags_that_help() {
    let (_, folder) = filled();
    let renamed = FIRST.replace("title = {", "name = {");
    let fewer = FIRST.replace("\"open\", \"closed\"", "\"closed\"");
    for (schema, why) in [
        (renamed, "the new field `name` is required, but records exist that lack it"),
        (fewer, "the value `open` was removed, but records still have it"),
    ] {
        let (_, told) = Start::schema(&schema).on(&folder).fails();
        assert!(told.contains(why), "{told}");
        assert!(!told.contains("start once with"), "{told}");
    }
}

#[test]
fn existing_records_get_the_initial_state_when_states_are_declared() {
    let plain = "[collections.books]\nfields = { title = 'string' }\n";
    let states = "states = { initial = 'open', names = ['closed', 'open'] }\n\
                  actions.close = { from = ['open'], to = 'closed' }\n";
    let past = "[[versions.changes]]\ncollection = 'books'\n\
                rename = { from = 'title', to = 'name' }\n[[versions]]\ndate = '2024-01-01'\n";
    let old = format!("{plain}[[versions]]\ndate = '2024-01-01'\n");
    let (fields, renamed) = (plain.replace("title", "name"), "[[versions]]\ndate = '2025-01-01'\n");
    // With unchanged rows, and with rows that are converted to another version.
    for new in [format!("{plain}{states}"), format!("{fields}{states}{renamed}{past}")] {
        let first = if new.contains("[[versions]]") { &old } else { plain };
        let server = Start::schema(first).go();
        let id = server.make("/v1/books", json!({"title": "Dune"}));
        let (_, folder) = server.stop();
        let server = Start::schema(&new).on(&folder).go();
        assert_eq!(server.get(&format!("/v1/books/{id}")).expect(200)["status"], "open");
        assert_eq!(server.get("/v1/books?status=open").column("id"), [id.as_str()]);
        let closed = server.post(&format!("/v1/books/{id}/close"), json!({})).expect(200);
        assert_eq!(closed["status"], "closed");
    }
}

#[test]
fn an_edit_that_would_lose_or_change_data_is_refused_without_touching_it() {
    let (ids, folder) = filled();
    let swap = |from: &str, to: &str| {
        assert!(FIRST.contains(from), "{from}");
        FIRST.replace(from, to)
    };
    for (schema, hint) in [
        (swap("shelf = \"string\"\n", ""), "field `shelf` was removed"),
        (
            swap("price = \"number\"", "price = \"string\""),
            "the type changed from number to string",
        ),
        (
            swap("shelf = \"string\"", "shelf = { type = \"string\", write_only = true }"),
            "write_only",
        ),
        (swap("\"novel\", \"poem\"", "\"novel\""), "`poem` was removed"),
        (
            swap("shelf = \"string\"", "shelf = { type = \"string\", unique = true }"),
            "became unique",
        ),
        (
            swap(
                "shelf = \"string\"",
                "shelf = \"string\"\nisbn = { type = \"string\", required = true }",
            ),
            "required",
        ),
        (swap("\"open\", \"closed\"", "\"closed\""), "`open` was removed"),
        (
            swap("[collections.orders]\n", "[collections.orders]\nparent = \"books\"\n")
                .replace("book = { ref = \"books\" }", "note = \"string\""),
            "parent changed",
        ),
        (
            FIRST.split("[collections.orders]").next().unwrap().to_owned(),
            "collection `orders` was removed",
        ),
        ("[collections.books.fields]\ntitle = \"integer\"\n".to_owned(), "orders"),
    ] {
        let (code, error) = Start::schema(&schema).on(&folder).arg("--accept-changes").fails();
        assert_eq!(code, 1, "{hint}: {error}");
        assert!(error.contains(hint), "{hint}: {error}");
        assert!(error.contains("nothing was changed"), "{error}");
    }
    let server = Start::schema(FIRST).on(&folder).go();
    let book = server.get(&format!("/v1/books/{}", ids[1])).expect(200);
    assert_eq!(
        (&book["price"], &book["shelf"], &book["genre"]),
        (&json!(1), &json!("A"), &json!("poem"))
    );
    assert_eq!(server.get("/v1/orders").column("status"), ["open"]);
}

#[test]
fn a_refused_start_reports_all_reasons_at_once() {
    let (_, folder) = filled();
    let schema = "[collections.books.fields]\ntitle = { type = \"string\", required = true }\n\
                  price = \"string\"\n";
    let (code, error) = Start::schema(schema).on(&folder).fails();
    assert_eq!(code, 1);
    for hint in [
        "`orders` was removed",
        "`shelf` was removed",
        "`genre` was removed",
        "from number to string",
    ] {
        assert!(error.contains(hint), "{hint}: {error}");
    }
}

#[test]
fn a_restriction_that_all_records_satisfy_is_accepted() {
    let (ids, folder) = filled();
    let schema = FIRST.replace(
        "price = \"number\"",
        "price = { type = \"number\", required = true, unique = true }",
    );
    let server = Start::schema(&schema).on(&folder).arg("--accept-changes").go();
    server.post("/v1/books", json!({"title": "x"})).error(422, "validation_failed");
    let error = server.post("/v1/books", json!({"title": "x", "price": 3}));
    assert_eq!(error.error(422, "validation_failed")["errors"][0]["code"], "not_unique");
    server.get(&format!("/v1/books/{}", ids[0])).expect(200);
}

const DATED: &str = r#"
[service]
version = "2025-06-01"
[collections.books.fields]
name = { type = "string", required = true, search = true }
price = { type = "number", filter = true, sort = true }
"#;

/// A stopped server of the dated schema with one book.
fn dated() -> Arc<TempDir> {
    let server = Start::schema(DATED).go();
    server.make("/v1/books", json!({"name": "Dune", "price": 9.5}));
    server.stop().1
}

#[track_caller]
fn refused(folder: &Arc<TempDir>, schema: &str, hints: &[&str]) {
    let (code, error) = Start::schema(schema).on(folder).fails();
    assert_eq!(code, 1, "{error}");
    for hint in hints {
        assert!(error.contains(hint), "{hint}\n{error}");
    }
}

#[test]
fn a_breaking_edit_is_refused_with_the_output_of_plan() {
    let folder = dated();
    let renamed = DATED.replace("name =", "title =");
    refused(
        &folder,
        &renamed,
        &[
            "nothing was changed",
            "needs a version change: books.name: gone, and `title` of the same type is new",
            "rename = { from = \"name\", to = \"title\" }",
            "1 in need of a version change",
            "Clients of 2025-06-01 go on as before",
            "or start with --accept-data-loss to delete it",
            "the new field `title` is required, but records exist that lack it",
        ],
    );
    let retyped = DATED.replace("price = { type = \"number\"", "price = { type = \"string\"");
    refused(&folder, &retyped, &["number became string", "convert = ", "--accept-data-loss"]);
    let limited = DATED.replace("type = \"number\",", "type = \"number\", min = 1,");
    refused(&folder, &limited, &["`min` is 1 (values", "start once with --accept-changes."]);
    let other = "[service]\nversion = \"2025-06-01\"\n[collections.pens]\n";
    refused(&folder, other, &["destructive: books: the collection is gone", "--accept-data-loss"]);
    // The next start does not compare with a refused schema.
    refused(&folder, &renamed, &["books.name: gone"]);
    let same = Start::schema(DATED).on(&folder).go();
    assert_eq!(same.get("/v1/books").column("name"), ["Dune"]);
    let (_, folder) = same.stop();
    let more = DATED.replace("price =", "pages = \"integer\"\nprice =");
    Start::schema(&more).on(&folder).go();
}

#[test]
fn a_declared_edit_is_served() {
    let folder = dated();
    let entry = r#"
        [[versions]]
        date = "2026-01-01"
        [[versions.changes]]
        collection = "books"
        rename = { from = "name", to = "title" }
        [[versions]]
        date = "2025-06-01"
    "#;
    let renamed = DATED.replace("name =", "title =");
    let declared = renamed.replace("2025-06-01", "2026-01-01") + entry;
    let server = Start::schema(&declared).on(&folder).go();
    let newest = server.ask("GET", "/v1/books").header("Restive-Version", "2026-01-01").send();
    assert_eq!(newest.column("title"), ["Dune"]);
    let (_, folder) = server.stop();
    Start::schema(&declared).on(&folder).go();
}

#[test]
fn an_accepted_edit_is_served_and_needs_no_flag_again() {
    let folder = dated();
    let limited = DATED.replace("type = \"number\",", "type = \"number\", min = 1,");
    let server = Start::schema(&limited).on(&folder).arg("--accept-changes").go();
    server.post("/v1/books", json!({"name": "x", "price": 0})).error(422, "validation_failed");
    let (_, folder) = server.stop();
    let server = Start::schema(&limited).on(&folder).go();
    server.get("/v1/books").expect(200);
    // The reverse edit needs a flag of its own: an earlier flag accepts nothing now.
    let (_, folder) = server.stop();
    refused(&folder, &DATED.replace("filter = true, ", ""), &["filtering by it is gone"]);
}

#[test]
fn accepted_data_loss_deletes_removed_collections_and_values_that_do_not_fit() {
    let (ids, folder) = filled();
    let schema = r#"
        [collections.books.fields]
        title = { type = "string", required = true, filter = true }
        price = { type = "string", filter = true, sort = true }
        genre = { type = "string", enum = ["novel", "poem"], write_only = true }
        [collections.pens]
    "#;
    refused(&folder, schema, &["`orders` was removed", "start once with --accept-data-loss"]);
    let (code, error) = Start::schema(schema).on(&folder).arg("--accept-changes").fails();
    assert_eq!(code, 1);
    assert!(error.contains("--accept-data-loss to delete it"), "{error}");
    let server = Start::schema(schema).on(&folder).arg("--accept-data-loss").go();
    server.get("/v1/orders").error(404, "route_not_found");
    let path = format!("/v1/books/{}", ids[0]);
    let book = server.get(&path).expect(200);
    assert_eq!((&book["title"], &book["price"]), (&json!("Dune"), &json!(null)), "{book}");
    assert_eq!((book.get("shelf"), book.get("genre")), (None, None), "{book}");
    server.patch(&path, json!({"price": "9 euros"})).expect(200);
    assert_eq!(titles(&server, "price=9+euros&sort=price"), ["Dune"]);
    let (_, folder) = server.stop();
    // Deleted data does not come back with the old schema.
    let server = Start::schema(FIRST).on(&folder).arg("--accept-data-loss").go();
    let book = server.get(&format!("/v1/books/{}", ids[1])).expect(200);
    assert_eq!((&book["price"], &book["shelf"]), (&json!(null), &json!(null)), "{book}");
    assert!(server.get("/v1/orders").column("id").is_empty());
}

#[test]
fn a_renamed_object_changes_the_object_name_of_stored_records() {
    let folder = dated();
    let named = DATED.replace(
        "[collections.books.fields]",
        "[collections.books]\nobject = \"tome\"\nid_prefix = \"book\"\n[collections.books.fields]",
    );
    assert_ne!(named, DATED);
    refused(&folder, &named, &["breaks = \"books.object: `book` became `tome`\""]);
    let server = Start::schema(&named).on(&folder).arg("--accept-changes").go();
    let list = server.get("/v1/books");
    assert_eq!(list.column("object"), ["tome"]);
}
