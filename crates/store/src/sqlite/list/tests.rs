//! Whether the lists that are run on the calling thread are short, by the number of steps that the
//! database takes for them: a table of every kind of filter, sort and page.

use super::super::connection;
use super::super::testbed::{Bed, HERE, THERE};
use super::*;
use crate::Records;
use model::query::{Filter, Page as Asked, SortKey, Test};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: usize = 800;
/// Far more than a page takes, far less than looking at every row.
const STEPS: u64 = 1_600;

const SCHEMA: &str = "
[collections.books]
indexes = [['stock', 'price'], ['stock', 'price', 'title']]
[collections.books.fields]
title = { type = 'string', sort = true, search = true }
author = { type = 'string', filter = true }
price = { type = 'number', filter = true, sort = true }
stock = { type = 'integer', filter = true, sort = true }
isbn = { type = 'string', unique = true }
code = { type = 'string', unique = true, sort = true }
[collections.reviews]
parent = 'books'
[collections.reviews.fields]
rating = { type = 'integer', filter = true, sort = true }
[collections.messages]
feed = true
[collections.messages.fields]
text = 'string'
room = { type = 'string', filter = true }
";

/// What is looked for stands at the far end of every order.
async fn filled() -> (Bed, String) {
    let bed = Bed::new(SCHEMA);
    let mut parent = String::new();
    for scope in [HERE, THERE] {
        let book = |n: usize| {
            let first = n == 0;
            let mut book = json!({
                "title": format!("T{:05}", ROWS - n), "author": if first { "rare" } else { "many" },
                "stock": 7, "isbn": format!("{}-{n}", scope.0),
            });
            if first {
                book["isbn"] = Value::Null;
                book["price"] = json!(1.5);
                book["code"] = json!(format!("{}", scope.0));
            }
            bed.create(scope, "books", book)
        };
        parent = bed.put(book(0)).await.id;
        let mut writes: Vec<_> = (1..ROWS).map(book).collect();
        for n in 0..ROWS {
            let mut review =
                bed.create(scope, "reviews", json!({"rating": if n == 0 { 1 } else { 5 }}));
            review.parent = Some(parent.clone());
            writes.push(review);
            let room = if n == 0 { "rare" } else { "many" };
            writes.push(bed.create(scope, "messages", json!({"text": "x", "room": room})));
        }
        for task in bed.spawn(writes) {
            task.await.unwrap().unwrap().unwrap();
        }
    }
    (bed, parent)
}

fn text(value: &str) -> Scalar {
    Scalar::Text(value.to_owned())
}

/// Filters of each kind, by collection.
fn filters(collection: &str, parent: &str) -> Vec<Vec<Filter>> {
    let one = |field: &str, test: Test| vec![Filter { field: field.to_owned(), test }];
    let any = |field: &str, values: Vec<Scalar>| one(field, Test::AnyOf(values));
    let (null, n) = (|| Scalar::Null, Scalar::Integer);
    let mut all = vec![Vec::new(), any("id", vec![text("none")]), any("id", vec![null()])];
    for field in ["created_at", "updated_at"] {
        all.push(any(field, vec![n(1_700_000_000_000)]));
        all.push(any(field, vec![n(1)]));
        all.push(one(field, Test::Min(n(i64::MAX))));
        all.push(one(field, Test::Max(n(1))));
    }
    match collection {
        "books" => {
            for (field, value) in [
                ("author", text("rare")),
                ("author", text("none")),
                ("price", Scalar::Number(1.5)),
                ("stock", n(7)),
                ("stock", n(8)),
                ("isbn", text("20-3")),
                ("code", text("20")),
            ] {
                all.push(any(field, vec![value.clone()]));
                all.push(any(field, vec![value.clone(), null()]));
                all.push(any(field, vec![value.clone(), text("z")]));
                all.push(any(field, vec![null()]));
                all.push(one(field, Test::Min(value.clone())));
                all.push(one(field, Test::Max(value.clone())));
                let by = query::Shown { words: Vec::new(), fill: Some(value.clone()) };
                let test = Box::new(Test::Min(value.clone()));
                all.push(one(field, Test::Shown { by, test }));
                all.push(one(field, Test::Like(vec!["r*".into()])));
                all.push([any(field, vec![value]), any("author", vec![text("rare")])].concat());
            }
        }
        "reviews" => {
            for (field, value) in [("rating", n(1)), ("rating", n(9)), ("book", text("none"))] {
                all.push(any(field, vec![value.clone()]));
                all.push(any(field, vec![null()]));
                all.push(one(field, Test::Max(value)));
            }
            all.push(any("book", vec![text(parent)]));
        }
        _ => {
            for value in ["rare", "none"] {
                all.push(any("room", vec![text(value)]));
            }
            all.push(any("room", vec![null()]));
            all.push(any("id", vec![n(1), n(2)]));
            all.push(any("id", vec![n(1), null()]));
            for id in [1, 3, i64::MAX] {
                all.push(one("id", Test::Min(n(id))));
                all.push(one("id", Test::Max(n(id))));
            }
        }
    }
    all
}

fn sorts(collection: &str) -> Vec<Vec<SortKey>> {
    let names: &[&str] = match collection {
        "books" => &["title", "price", "stock", "code"],
        "reviews" => &["rating", "book"],
        _ => &[],
    };
    let mut all = Vec::new();
    for name in names.iter().chain(&["created_at", "updated_at"]) {
        all.push(vec![SortKey::new(name, false)]);
        all.push(vec![SortKey::new(name, true)]);
    }
    if collection == "books" {
        for (first, second) in [(false, false), (true, true), (true, false)] {
            let pair = [SortKey::new("stock", first), SortKey::new("price", second)];
            all.push(pair.to_vec());
            all.push([&pair[..], &[SortKey::new("title", second)]].concat());
            all.push(vec![SortKey::new("price", first), SortKey::new("stock", second)]);
            all.push(vec![SortKey::new("title", first), SortKey::new("stock", second)]);
        }
    }
    all
}

/// How many steps the database takes for a list.
fn steps(connection: &mut Connection, bed: &Bed, ix: usize, query: &Query) -> (u64, Page) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = count.clone();
    let look = move || counter.fetch_add(1, Ordering::Relaxed) == u64::MAX;
    connection.progress_handler(1, Some(look)).unwrap();
    let page = list::<Record>(connection, &bed.store.shared, HERE, ix, query, Room::Page).unwrap();
    connection.progress_handler(0, None::<fn() -> bool>).unwrap();
    (count.load(Ordering::Relaxed), page.unwrap())
}

#[tokio::test]
async fn reads_on_the_calling_thread_touch_only_the_rows_they_return() {
    let (bed, parent) = filled().await;
    let shared = &bed.store.shared;
    let mut connection = connection::reader(&shared.path).unwrap();
    let (mut short, mut long) = (0, 0);
    let mut check = |ix: usize, query: &Query| -> Option<Position> {
        let is_short = is_short(shared, HERE, ix, query);
        let (steps, page) = steps(&mut connection, &bed, ix, query);
        assert!(!is_short || steps <= STEPS, "{steps} steps: {query:?}");
        if is_short {
            short += 1;
        } else {
            long += 1;
        }
        page.position
    };
    // The parent that the account here has.
    let of_here = {
        let first = Query { ..plain("title", true) };
        let page = bed.store.list(HERE, bed.ix("books"), &first).await.unwrap();
        page.records[0].id.clone()
    };
    assert_ne!(of_here, parent);
    for collection in ["books", "reviews", "messages"] {
        let ix = bed.ix(collection);
        for filters in filters(collection, &of_here) {
            for sort in sorts(collection) {
                let mut query = Query { sort, filters: filters.clone(), ..plain("title", true) };
                query.parent = (collection == "reviews").then(|| of_here.clone());
                if let Some(position) = check(ix, &query) {
                    check(ix, &Query { page: Asked::After(position), ..query.clone() });
                }
                check(ix, &Query { page: Asked::Offset(100), ..query });
            }
        }
    }
    assert!(short > 60 && long > 60, "{short} short, {long} long");
}

fn plain(sort: &str, descending: bool) -> Query {
    Query {
        parent: None,
        filters: Vec::new(),
        sort: vec![SortKey::new(sort, descending)],
        words: Vec::new(),
        revealed: Vec::new(),
        page: Asked::First,
        limit: 5,
    }
}

#[tokio::test]
async fn common_lists_stay_on_the_calling_thread_and_scans_do_not() {
    let bed = Bed::new(SCHEMA);
    let one = |field: &str, test: Test| Filter { field: field.to_owned(), test };
    let any = |field: &str, value: Scalar| one(field, Test::AnyOf(vec![value]));
    let number = Scalar::Integer;
    for (collection, sort, filter, expected) in [
        ("books", "created_at", None, true),
        ("books", "title", None, true),
        ("books", "code", None, true),
        ("books", "created_at", Some(any("author", text("x"))), true),
        ("books", "created_at", Some(any("isbn", text("x"))), true),
        ("books", "title", Some(any("id", text("x"))), true),
        ("books", "created_at", Some(any("author", Scalar::Null)), true),
        ("books", "created_at", Some(any("code", Scalar::Null)), true),
        ("books", "created_at", Some(any("isbn", Scalar::Null)), false),
        ("books", "title", Some(any("author", text("x"))), false),
        ("books", "created_at", Some(one("price", Test::Min(number(1)))), false),
        ("messages", "created_at", None, true),
        ("messages", "created_at", Some(any("id", number(7))), true),
        ("messages", "created_at", Some(one("id", Test::Max(number(7)))), false),
        ("messages", "created_at", Some(one("id", Test::Min(number(7)))), false),
    ] {
        let query = Query { filters: filter.into_iter().collect(), ..plain(sort, true) };
        let found = is_short(&bed.store.shared, HERE, bed.ix(collection), &query);
        assert_eq!(found, expected, "{collection} {query:?}");
    }
}
