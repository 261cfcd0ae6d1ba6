//! Schema changes over existing data: what happens by itself, and what is refused with nothing
//! touched.

use crate::files::open;
use crate::support::*;
use model::record::Scalar;
use model::schema::Kind;
use model::{Change, Schema};
use serde_json::json;
use std::path::Path;
use store::Error;
use store::sqlite::Role;

struct Shelf {
    directory: tempfile::TempDir,
}

impl Shelf {
    /// A database with two books and an order, closed again.
    async fn new() -> Shelf {
        let shelf = Shelf { directory: tempfile::tempdir().unwrap() };
        let bed = open(&shelf.path(), schema(), Role::Server).unwrap();
        for (title, price) in [("Dune", json!(5)), ("Emma", json!(null))] {
            let book = json!({"title": title, "author": "Same", "price": price, "note": title});
            bed.put(create(BOOKS, book)).await;
        }
        bed.put(create(ORDERS, json!({"quantity": 2}))).await;
        shelf
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("data.db")
    }

    fn reopen(&self, edit: impl FnOnce(&mut Schema)) -> Result<Bed, Error> {
        let mut schema = schema();
        edit(&mut schema);
        open(Path::new(&self.path()), schema, Role::Server)
    }

    /// The edit is refused, for a reason that says so, and the old schema still opens.
    async fn refuses(&self, reason: &str, edit: impl FnOnce(&mut Schema)) {
        match self.reopen(edit) {
            Err(Error::Refused(reasons)) => {
                let told = reasons.join("\n");
                assert!(told.contains(reason), "{told}");
            }
            Err(other) => panic!("{reason}: {other}"),
            Ok(_) => panic!("{reason}: was accepted"),
        }
        let bed = self.reopen(|_| {}).unwrap();
        assert_eq!(bed.list(&query("title", 10)).await.records.len(), 2);
        assert_eq!(bed.store.shape(BOOKS), 1);
    }
}

fn of<'a>(schema: &'a mut Schema, collection: usize, name: &str) -> &'a mut model::Field {
    let fields = &mut schema.collections[collection].fields;
    fields.iter_mut().find(|field| field.name == name).unwrap()
}

#[tokio::test]
async fn an_added_field_shows_as_null_and_can_be_used() {
    let shelf = Shelf::new().await;
    let bed = shelf
        .reopen(|schema| {
            let extra = field("pages", Kind::Integer, |f| (f.filter, f.sort) = (true, true));
            schema.collections[BOOKS].fields.insert(1, extra);
        })
        .unwrap();
    assert_eq!(bed.store.shape(BOOKS), 2);
    assert_eq!(bed.store.shape(ORDERS), 1);
    let books = bed.list(&query("title", 10)).await.records;
    assert!(books[0].body.contains(r#""title":"Dune","pages":null,"author""#));
    let changed = bed.put(merge(BOOKS, &books[0].id, json!({"pages": 9}))).await;
    assert_eq!(value(&changed, "note"), json!("Dune"), "hidden fields survive");
    assert_eq!(titles(&bed.list(&query("-pages", 10)).await.records), ["Dune", "Emma"]);
    let same = fields(json!({"title": "Emma", "author": "Same"}));
    bed.put(write(BOOKS, Some(&books[1].id), Change::Replace { fields: same })).await;
}

#[tokio::test]
async fn a_required_field_with_a_default_fills_the_gaps() {
    let shelf = Shelf::new().await;
    let bed = shelf
        .reopen(|schema| {
            schema.collections[BOOKS].fields.push(field("format", Kind::String, |f| {
                (f.required, f.filter, f.default) = (true, true, Some(json!("paper")));
            }));
        })
        .unwrap();
    let mut paper = query("title", 10);
    paper.filters = vec![any_of("format", vec![Scalar::Text("paper".into())])];
    let books = bed.list(&paper).await.records;
    assert_eq!(books.len(), 2);
    assert_eq!(value(&books[0], "format"), json!("paper"));
}

#[tokio::test]
async fn new_filters_sorts_searches_and_unique_fields_know_the_old_rows() {
    let shelf = Shelf::new().await;
    let bed = shelf
        .reopen(|schema| {
            of(schema, BOOKS, "title").unique = true;
            of(schema, BOOKS, "note").filter = true;
            of(schema, ORDERS, "quantity").sort = true;
            of(schema, BOOKS, "author").search = false;
            of(schema, BOOKS, "price").filter = false;
            of(schema, BOOKS, "price").sort = false;
            schema.collections[BOOKS].indexes.clear();
        })
        .unwrap();
    let twin = bed.refused(book("Dune", json!(1))).await;
    assert_eq!(twin.violations[0].field, "title");
    let mut noted = query("title", 10);
    noted.filters = vec![any_of("note", vec![Scalar::Text("Emma".into())])];
    assert_eq!(titles(&bed.list(&noted).await.records), ["Emma"]);
    assert_eq!(bed.store.list(HERE, ORDERS, &query("quantity", 5)).await.unwrap().records.len(), 1);
    assert!(bed.list(&search(&["same"])).await.records.is_empty());
    assert_eq!(bed.list(&search(&["emma"])).await.records.len(), 1);
    assert!(bed.store.list(HERE, BOOKS, &query("price", 5)).await.is_err());
    drop(bed);
    // And back: the dropped column is filled anew.
    let bed = shelf.reopen(|_| {}).unwrap();
    assert_eq!(titles(&bed.list(&query("-price", 5)).await.records), ["Dune", "Emma"]);
    assert_eq!(bed.list(&search(&["same"])).await.records.len(), 2);
}

/// Where nothing was searched the log was not read either: what is in the index must not be put
/// there once more when it is.
#[tokio::test]
async fn rows_are_indexed_once_when_fields_are_searched_for_the_first_time() {
    let shelf = Shelf::new().await;
    let unsearched = |schema: &mut Schema| {
        for collection in &mut schema.collections {
            collection.fields.iter_mut().for_each(|field| field.search = false);
        }
    };
    let bed = shelf.reopen(unsearched).unwrap();
    let made = bed.put(book("Persuasion", json!(3))).await;
    drop(bed);
    let bed = shelf.reopen(|_| {}).unwrap();
    let found = |word: &'static str| async {
        let records = bed.list(&search(&[word])).await.records;
        titles(&records)
    };
    assert_eq!(found("persuasion").await, ["Persuasion"]);
    assert_eq!(found("emma").await, ["Emma"]);
    bed.put(merge(BOOKS, &made.id, json!({ "title": "Sanditon" }))).await;
    assert_eq!(found("sanditon").await, ["Sanditon"]);
    assert!(found("persuasion").await.is_empty(), "the old words are gone with the old title");
}

#[tokio::test]
async fn harmless_edits_are_taken() {
    let shelf = Shelf::new().await;
    let bed = shelf
        .reopen(|schema| {
            schema.collections[BOOKS].id_prefix = "bk".into();
            of(schema, BOOKS, "title").max_length = Some(3);
            of(schema, ORDERS, "status").choices.push("lost".into());
            schema.collections[ORDERS].states.as_mut().unwrap().names.push("lost".into());
            schema.collections.insert(
                5,
                collection(
                    "pens",
                    "pen",
                    None,
                    vec![field("colour", Kind::String, |f| f.search = true)],
                ),
            );
            // Removed, but no record has it.
            of(schema, ORDERS, "status").choices.retain(|state| state != "shipped");
        })
        .unwrap();
    assert_eq!(bed.store.shape(BOOKS), 1);
    bed.put(create(5, json!({"colour": "red"}))).await;
    let found = bed.store.list(HERE, 5, &search(&["red"])).await.unwrap();
    assert_eq!(found.records.len(), 1);
    let old = bed.list(&query("title", 1)).await.records.remove(0);
    assert_eq!(bed.record(BOOKS, &old.id).await, Some(old), "old ids stay valid");
}

#[tokio::test]
async fn edits_that_would_lose_or_contradict_data_are_refused() {
    let shelf = Shelf::new().await;
    shelf
        .refuses("field `isbn` was removed", |s| {
            s.collections[BOOKS].fields.retain(|field| field.name != "isbn");
        })
        .await;
    shelf
        .refuses("`messages` was removed", |s| {
            s.collections.remove(MESSAGES);
        })
        .await;
    shelf.refuses("from number to string", |s| of(s, BOOKS, "price").kind = Kind::String).await;
    shelf.refuses("`write_only` was switched", |s| of(s, BOOKS, "isbn").write_only = true).await;
    shelf.refuses("`feed` was switched off", |s| s.collections[MESSAGES].feed = None).await;
    shelf.refuses("the parent changed", |s| s.collections[REVIEWS].parent = None).await;
    shelf
        .refuses("is required, but records exist", |s| {
            s.collections[BOOKS].fields.push(field("x", Kind::String, |f| f.required = true));
        })
        .await;
    shelf.refuses("became required", |s| of(s, BOOKS, "price").required = true).await;
    shelf.refuses("\"Same\"", |s| of(s, BOOKS, "author").unique = true).await;
    shelf
        .refuses("`created` was removed", |s| {
            of(s, ORDERS, "status").choices.retain(|state| state != "created");
        })
        .await;
    shelf.refuses("names none", |s| of(s, BOOKS, "author").reference = Some(ORDERS)).await;
}

#[tokio::test]
async fn all_reasons_are_reported_at_once() {
    let shelf = Shelf::new().await;
    let edited = shelf.reopen(|schema| {
        schema.collections[BOOKS].fields.retain(|field| field.name != "isbn");
        of(schema, BOOKS, "price").kind = Kind::String;
    });
    let Err(Error::Refused(reasons)) = edited else { panic!("was accepted") };
    assert_eq!(reasons.len(), 2);
}
