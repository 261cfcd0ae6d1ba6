//! The everyday life of a record: create, read, list, replace, update, delete.

use crate::harness::Server;
use serde_json::json;

#[test]
fn a_record_can_be_created_read_replaced_updated_and_deleted() {
    let server = Server::bookshop();
    let made = server.post(
        "/v1/books",
        json!({"title": "Dune", "author": "Frank Herbert", "price": 9.99, "isbn": "0-441-17271-7"}),
    );
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.id();
    let path = format!("/v1/books/{id}");
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert!(id.starts_with("book_"));
    assert_eq!(made.json["title"], "Dune");
    assert_eq!(made.json["price"], 9.99);
    assert_eq!(made.json["created_at"], made.json["updated_at"]);

    let read = server.get(&path);
    assert_eq!(read.text, made.text);
    assert_eq!(read.header("etag"), made.header("etag"));

    let replaced = server.put(&path, json!({"title": "Dune 2", "author": "F. H."})).expect(200);
    assert_eq!(replaced["isbn"], json!(null), "PUT erases what is omitted");
    assert_eq!(replaced["id"], id);

    let updated = server.patch(&path, json!({"price": 3})).expect(200);
    assert_eq!((&updated["price"], &updated["title"]), (&json!(3), &json!("Dune 2")));

    let deleted = server.delete(&path).expect(200);
    assert_eq!(deleted, json!({"id": id, "object": "book", "deleted": true}));
    assert_eq!(server.delete(&path).expect(200), deleted, "repeating is safe");
    server.get(&path).error(404, "not_found");
    server.delete("/v1/books/book_never").error(404, "not_found");
}
