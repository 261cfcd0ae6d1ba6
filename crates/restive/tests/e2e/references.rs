//! References: what a delete refuses, deletes and clears. No reference ever names a deleted record.

use crate::harness::{Server, Start};
use crate::version_doors::restricted;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

const OLD: &str = "2026-01-01";

const SCHEMA: &str = "
[service]
rate_limit = { requests = 1000000, window = '1s' }
[[versions]]
date = '2026-09-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'writer', to = 'author' }
[[versions.changes]]
collection = 'books'
rename = { from = 'corrector', to = 'editor' }
[[versions]]
date = '2026-01-01'
[collections.authors.fields]
name = 'string'
mentor = { ref = 'authors', on_delete = 'cascade' }
[collections.shelves.fields]
name = 'string'
[collections.books.fields]
title = 'string'
author = { ref = 'authors', required = true }
editor = { ref = 'authors' }
shelf = { ref = 'shelves', on_delete = 'cascade' }
sequel = { ref = 'books', on_delete = 'restrict' }
[collections.reviews]
parent = 'books'
fields = { text = 'string', by = { ref = 'authors' } }
[collections.chats]
feed = true
fields = { text = 'string', book = { ref = 'books' } }
";

fn server() -> Server {
    Start::schema(SCHEMA).go()
}

fn author(server: &Server) -> String {
    server.make("/v1/authors", json!({ "name": "A" }))
}

fn book(server: &Server, author: &str, more: Value) -> String {
    let mut fields = json!({ "title": "B", "author": author });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.make("/v1/books", fields)
}

/// The types of the newest events about these records, oldest first.
fn told(server: &Server, about: &[&str]) -> Vec<String> {
    let events = server.get("/v1/events?limit=50").expect(200);
    let events = events["data"].as_array().unwrap().iter().rev();
    let about = events.filter(|event| {
        let id = event["data"]["object"]["id"].as_str();
        id.is_some_and(|id| about.contains(&id))
    });
    about.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_delete_of_a_referenced_record_is_refused_and_names_the_referrers() {
    let server = server();
    let needed = author(&server);
    let first = book(&server, &needed, json!({}));
    let path = format!("/v1/authors/{needed}");
    let refused = server.delete(&path).error(409, "still_referenced");
    let referrer = json!({ "object": "book", "id": first, "field": "author" });
    assert_eq!(refused["referrers"], json!([referrer]));
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains(&first) && message.contains("`author`"), "{message}");
    server.get(&path).expect(200);
    for _ in 0..4 {
        book(&server, &needed, json!({}));
    }
    let refused = server.delete(&path).error(409, "still_referenced");
    assert_eq!(refused["referrers"].as_array().unwrap().len(), 3);
    // Prevented by a book that refers to another book.
    let sequel = book(&server, &author(&server), json!({}));
    let before = book(&server, &author(&server), json!({ "sequel": sequel }));
    let refused = server.delete(&format!("/v1/books/{sequel}")).error(409, "still_referenced");
    assert_eq!(refused["referrers"][0]["field"], "sequel");
    server.patch(&format!("/v1/books/{before}"), json!({ "sequel": before })).expect(200);
    server.delete(&format!("/v1/books/{sequel}")).expect(200);
    // A reference to itself does not prevent a delete.
    server.delete(&format!("/v1/books/{before}")).expect(200);
}

#[test]
fn a_delete_clears_references_and_deletes_referrers_with_an_event_each() {
    let server = server();
    let (keeps, gone) = (author(&server), author(&server));
    let edited = book(&server, &keeps, json!({ "editor": gone }));
    let path = format!("/v1/books/{edited}/reviews");
    let review = server.make(&path, json!({ "text": "good", "by": gone }));
    let pupil = server.make("/v1/authors", json!({ "name": "P", "mentor": gone }));
    let circle = server.make("/v1/authors", json!({ "name": "Q", "mentor": pupil }));
    server.patch(&format!("/v1/authors/{gone}"), json!({ "mentor": circle })).expect(200);
    let tag = server.get(&format!("/v1/books/{edited}")).header("etag").unwrap().to_owned();
    server.delete(&format!("/v1/authors/{gone}")).expect(200);
    let now = server.get(&format!("/v1/books/{edited}"));
    assert_ne!(now.header("etag").unwrap(), tag);
    assert_eq!((&now.json["editor"], &now.json["author"]), (&json!(null), &json!(keeps)));
    let review_now = server.get(&format!("{path}/{review}")).expect(200);
    assert_eq!(review_now["by"], json!(null));
    for id in [&gone, &pupil, &circle] {
        server.get(&format!("/v1/authors/{id}")).error(404, "not_found");
    }
    let kinds = told(&server, &[&edited, &review, &gone, &pupil, &circle]);
    let last = &kinds[kinds.len() - 5..];
    let expected =
        ["book.updated", "review.updated", "author.deleted", "author.deleted", "author.deleted"];
    assert_eq!(last, expected);
    // A delete of a shelf also deletes its books and their children; a feed keeps its messages.
    let shelf = server.make("/v1/shelves", json!({ "name": "S" }));
    let shelved = book(&server, &keeps, json!({ "shelf": shelf }));
    let below = format!("/v1/books/{shelved}/reviews");
    server.make(&below, json!({ "text": "gone" }));
    let said = server.post("/v1/chats", json!({ "text": "hi", "book": shelved })).expect(201);
    server.delete(&format!("/v1/shelves/{shelf}")).expect(200);
    server.get(&format!("/v1/books/{shelved}")).error(404, "not_found");
    let said = server.get(&format!("/v1/chats/{}", said["id"])).expect(200);
    assert_eq!((&said["book"], &said["text"]), (&json!(null), &json!("hi")));
}

#[test]
fn an_older_version_sees_cleared_references_under_their_old_names() {
    let server = server();
    let (keeps, gone) = (author(&server), author(&server));
    let edited = book(&server, &keeps, json!({ "editor": gone }));
    server.delete(&format!("/v1/authors/{gone}")).expect(200);
    let path = format!("/v1/books/{edited}");
    let old = server.ask("GET", &path).header("restive-version", OLD).send().expect(200);
    assert_eq!((&old["corrector"], &old["writer"]), (&json!(null), &json!(keeps)));
    let ask = server.ask("GET", "/v1/events?type=book.updated").header("restive-version", OLD);
    let event = ask.send().expect(200)["data"][0].clone();
    assert_eq!(event["data"]["object"]["corrector"], json!(null));
    assert_eq!(event["data"]["previous_attributes"], json!({ "corrector": gone }));
    // References of old clients are protected too.
    let create = json!({ "title": "old", "writer": keeps, "corrector": keeps });
    let ask = server.ask("POST", "/v1/books").header("restive-version", OLD).json(&create);
    ask.send().expect(201);
    let path = format!("/v1/authors/{keeps}");
    let ask = server.ask("DELETE", &path).header("restive-version", OLD);
    let refused = ask.send().error(409, "still_referenced");
    assert_eq!(refused["referrers"][0]["field"], "writer");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("`writer`") && !message.contains("`author`"), "{message}");
}

#[test]
fn references_made_while_their_target_is_deleted_never_dangle() {
    let server = server();
    let deleted = AtomicUsize::new(0);
    for _ in 0..12 {
        let (keeps, target) = (author(&server), author(&server));
        let edited = book(&server, &keeps, json!({}));
        std::thread::scope(|scope| {
            for n in 0..6 {
                let (server, keeps, target, edited) = (&server, &keeps, &target, &edited);
                let deleted = &deleted;
                scope.spawn(move || {
                    let made = json!({ "title": "T", "author": keeps, "editor": target });
                    let needs = json!({ "title": "T", "author": target });
                    let answer = match n {
                        0 | 1 => server.post("/v1/books", made),
                        2 => server.post("/v1/books", needs),
                        3 => server
                            .patch(&format!("/v1/books/{edited}"), json!({ "editor": target })),
                        4 => server.post(
                            &format!("/v1/books/{edited}/reviews"),
                            json!({ "text": "x", "by": target }),
                        ),
                        _ => {
                            let answer = server.delete(&format!("/v1/authors/{target}"));
                            deleted.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
                            answer
                        }
                    };
                    let known = [200, 201, 409, 422];
                    assert!(known.contains(&answer.status), "{}", answer.text);
                });
            }
        });
    }
    assert!(deleted.load(Ordering::SeqCst) > 0, "no delete came first");
    let authors: HashSet<Value> =
        server.get("/v1/authors?limit=100").column("id").into_iter().collect();
    let books = server.get("/v1/books?limit=100&include=reviews").expect(200);
    for book in books["data"].as_array().unwrap() {
        for name in ["author", "editor"] {
            assert!(book[name].is_null() || authors.contains(&book[name]), "{book}");
        }
        let reviews = format!("/v1/books/{}/reviews", book["id"].as_str().unwrap());
        for by in server.get(&reviews).column("by") {
            assert!(by.is_null() || authors.contains(&by), "{by}");
        }
    }
}

#[test]
fn references_of_one_account_do_not_affect_deletes_of_another() {
    let server = server();
    let (text, error, code) = server.tool(&["accounts", "create", "other"]);
    assert_eq!(code, 0, "{error}");
    let key = text.split_whitespace().find(|word| word.starts_with("sk_test_")).unwrap();
    let ours = author(&server);
    let made = json!({ "title": "T", "author": ours });
    let refused = server.ask("POST", "/v1/books").key(key).json(&made).send();
    refused.error(422, "validation_failed");
    let theirs = server.ask("POST", "/v1/authors").key(key).json(&json!({ "name": "B" })).send();
    let theirs = theirs.id();
    let made = json!({ "title": "T", "author": theirs });
    server.ask("POST", "/v1/books").key(key).json(&made).send().expect(201);
    server.delete(&format!("/v1/authors/{ours}")).expect(200);
    let path = format!("/v1/authors/{theirs}");
    server.delete(&path).error(404, "not_found");
    server.ask("DELETE", &path).key(key).send().error(409, "still_referenced");
}

#[test]
fn a_refused_delete_names_no_record_that_the_key_may_not_read() {
    let server = server();
    let needed = author(&server);
    let hidden = book(&server, &needed, json!({}));
    let path = format!("/v1/authors/{needed}");
    let key = restricted(&server, "authors:write");
    let refused = server.ask("DELETE", &path).key(&key).send();
    assert!(!refused.text.contains(&hidden), "{}", refused.text);
    let refused = refused.error(409, "still_referenced");
    let expected = json!([{ "object": "book", "id": null, "field": "author" }]);
    assert_eq!(refused["referrers"], expected);
    assert!(refused["message"].as_str().unwrap().contains("`books`"));
}

#[test]
fn a_schema_edit_can_change_on_delete_of_existing_references() {
    let schema = |on_delete: &str| {
        format!(
            "[collections.authors.fields]\nname = 'string'\n[collections.books.fields]\n\
             author = {{ ref = 'authors', required = true{on_delete} }}"
        )
    };
    let server = Start::schema(&schema("")).go();
    let needed = server.make("/v1/authors", json!({ "name": "A" }));
    let book = server.make("/v1/books", json!({ "author": needed }));
    server.delete(&format!("/v1/authors/{needed}")).error(409, "still_referenced");
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let server = Start::schema(&schema(", on_delete = 'cascade'")).on(&folder).go();
    server.delete(&format!("/v1/authors/{needed}")).expect(200);
    server.get(&format!("/v1/books/{book}")).error(404, "not_found");
}

#[test]
fn the_openapi_document_describes_the_effect_of_a_delete_on_references() {
    let server = server();
    let document = server.get("/openapi.json").expect(200);
    let delete = &document["paths"]["/v1/authors/{author_id}"]["delete"];
    let text = delete["description"].as_str().unwrap();
    for part in [
        "Records of `books` that refer to it by `author` prevent it with 409 `still_referenced`.",
        "Records of `books` that refer to it by `editor` get null instead.",
        "Records of `authors` that refer to it by `mentor` are deleted with it.",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let conflict = delete["responses"]["409"]["description"].as_str().unwrap();
    assert!(conflict.contains("`still_referenced`") && conflict.contains("`too_many_children`"));
}
