//! Lists: what is selected, in which order, and that a walk by cursor sees every row that was there
//! throughout exactly once, whatever is written meanwhile.

use crate::support::*;
use model::query::{Filter, Page, Query, Test};
use model::record::Scalar;
use model::{Change, Record};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A small source of numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

async fn shelf(bed: &Bed) -> Vec<Record> {
    let mut made = Vec::new();
    for (n, price) in [json!(5), json!(null), json!(1.5), json!(5), json!(null), json!(-2)]
        .into_iter()
        .enumerate()
    {
        bed.pass(10);
        let author = if n % 2 == 0 { "Even" } else { "Odd" };
        let book = json!({"title": format!("T{n}"), "author": author, "price": price,
            "stock": n / 2});
        made.push(bed.put(create(BOOKS, book)).await);
    }
    made
}

pub async fn filters_select(bed: Bed) {
    let made = shelf(&bed).await;
    let number = Scalar::Number;
    let text = |text: &str| Scalar::Text(text.into());
    let test = |field: &str, test| Filter { field: field.into(), test };
    let cases: Vec<(Vec<Filter>, &str)> = vec![
        (vec![any_of("author", vec![text("Even")])], "T4 T2 T0"),
        (vec![any_of("author", vec![text("even")])], ""),
        (vec![any_of("price", vec![number(5.0)])], "T3 T0"),
        (vec![any_of("price", vec![number(5.0), number(-2.0)])], "T5 T3 T0"),
        (vec![any_of("price", vec![Scalar::Null])], "T4 T1"),
        (vec![any_of("price", vec![Scalar::Null, number(1.5)])], "T4 T2 T1"),
        (vec![any_of("price", vec![])], ""),
        (vec![test("price", Test::Min(number(1.5)))], "T3 T2 T0"),
        (vec![test("price", Test::Min(number(0.0))), test("price", Test::Max(number(2.0)))], "T2"),
        (vec![any_of("id", vec![text(&made[2].id), text("none")])], "T2"),
        (vec![any_of("author", vec![text("Odd")]), any_of("price", vec![Scalar::Null])], "T1"),
        (vec![test("created_at", Test::Min(Scalar::Integer(START + 50)))], "T5 T4"),
        (vec![any_of("author", vec![text("' OR 1=1 --")])], ""),
    ];
    for (filters, expected) in cases {
        let shown = format!("{filters:?}");
        let query = Query { filters, ..query("-created_at", 10) };
        assert_eq!(titles(&bed.list(&query).await.records).join(" "), expected, "{shown}");
        let paged = Query { limit: 1, ..query };
        assert_eq!(titles(&bed.walk(BOOKS, &paged).await).join(" "), expected, "{shown}");
    }
    let unknown = Query { filters: vec![any_of("x\" OR 1", vec![])], ..query("title", 5) };
    assert!(bed.store.list(HERE, BOOKS, &unknown).await.is_err());
}

pub async fn sorts_order_with_nulls_smallest(bed: Bed) {
    shelf(&bed).await;
    let cases = [
        ("created_at", "T0 T1 T2 T3 T4 T5"),
        ("-created_at", "T5 T4 T3 T2 T1 T0"),
        ("price", "T1 T4 T5 T2 T0 T3"),
        ("-price", "T3 T0 T2 T5 T4 T1"),
        ("price,-title", "T4 T1 T5 T2 T3 T0"),
        ("-price,title", "T0 T3 T2 T5 T1 T4"),
        ("stock,price", "T1 T0 T2 T3 T4 T5"),
        ("-stock,-price", "T5 T4 T3 T2 T0 T1"),
        ("-stock,price", "T4 T5 T2 T3 T1 T0"),
        ("updated_at", "T0 T1 T2 T3 T4 T5"),
    ];
    for (sort, expected) in cases {
        let whole = bed.list(&query(sort, 10)).await;
        assert_eq!(titles(&whole.records).join(" "), expected, "{sort}");
        for limit in 1..4 {
            let walked = bed.walk(BOOKS, &query(sort, limit)).await;
            assert_eq!(titles(&walked).join(" "), expected, "{sort} by {limit}");
        }
    }
}

pub async fn cursor_walks_equal_the_whole_list(bed: Bed) {
    let mut dice = Dice(11);
    for n in 0..60 {
        let price = match dice.roll(6) {
            0 => Value::Null,
            side => json!(side),
        };
        bed.put(create(
            BOOKS,
            json!({"title": format!("T{n:02}"), "author": "x", "price": price,
            "stock": dice.roll(3)}),
        ))
        .await;
    }
    for sort in ["price", "-price", "stock,-price", "-stock,price", "-stock,-price,title"] {
        let whole = bed.list(&query(sort, 100)).await.records;
        assert_eq!(whole.len(), 60);
        for limit in [1, 7, 59, 60] {
            assert_eq!(bed.walk(BOOKS, &query(sort, limit)).await, whole, "{sort} by {limit}");
        }
    }
}

pub async fn offset_pages_count(bed: Bed) {
    shelf(&bed).await;
    let at = |page| Query { page: Page::Offset(page), ..query("price", 4) };
    let first = bed.list(&at(1)).await;
    assert_eq!((first.total, first.has_more, first.records.len()), (Some(6), true, 4));
    let second = bed.list(&at(2)).await;
    assert_eq!((second.total, second.has_more, second.records.len()), (Some(6), false, 2));
    for beyond in [3, u64::MAX] {
        let page = bed.list(&at(beyond)).await;
        assert_eq!((page.total, page.has_more, page.records.len()), (Some(6), false, 0));
    }
}

/// The row that is shown next moves behind the cursor, the one already shown moves ahead of it.
pub async fn walks_survive_concurrent_moves(bed: Bed) {
    for sort in ["price", "-price", "updated_at", "stock,price"] {
        let mut made = Vec::new();
        for n in 0..6 {
            bed.pass(1);
            let book = json!({"title": format!("T{n}"), "author": sort, "price": n, "stock": n});
            made.push(bed.put(create(BOOKS, book)).await);
        }
        let own = any_of("author", vec![Scalar::Text(sort.into())]);
        let mut walk = Query { filters: vec![own], ..query(sort, 2) };
        let first = bed.list(&walk).await;
        let shown = titles(&first.records);
        for record in &made {
            let price =
                if shown.contains(&titles(std::slice::from_ref(record))[0]) { 100 } else { -100 };
            bed.put(merge(BOOKS, &record.id, json!({"price": price, "stock": price}))).await;
            bed.put(merge(BOOKS, &record.id, json!({"price": -price, "stock": -price}))).await;
        }
        bed.put(create(BOOKS, json!({"title": "new", "author": sort, "price": 3}))).await;
        walk.page = Page::After(first.position.unwrap());
        let mut all = shown;
        let rest = bed.walk(BOOKS, &walk).await;
        assert!(rest.iter().all(|record| value(record, "price").as_f64().unwrap().abs() > 9.0));
        all.extend(titles(&rest));
        let mut expected = titles(&made);
        if sort == "-price" {
            expected.reverse();
        }
        assert_eq!(all, expected, "{sort}: the order of the first page");
    }
}

/// Random writes between the pages: what existed throughout is seen once, nothing is seen twice.
pub async fn random_walks_match_a_model(bed: Bed) {
    let mut dice = Dice(5);
    let mut alive: Vec<String> = Vec::new();
    for n in 0..80 {
        alive.push(bed.put(book(&format!("T{n}"), json!(dice.roll(20)))).await.id);
    }
    for round in 0..12 {
        let sort =
            ["price", "-price", "-updated_at", "price,-title", "-created_at", "title"][round % 6];
        let mut walk = query(sort, 9);
        let throughout: HashSet<String> = alive.iter().cloned().collect();
        let (mut seen, mut gone) = (Vec::new(), HashSet::new());
        loop {
            let page = bed.list(&walk).await;
            seen.extend(page.records.iter().map(|record| record.id.clone()));
            let Some(position) = page.position.filter(|_| page.has_more) else { break };
            walk.page = Page::After(position);
            for _ in 0..15 {
                bed.pass(dice.roll(2) as i64);
                let place = dice.roll(alive.len() as u64) as usize;
                match dice.roll(8) {
                    0 => {
                        let id = alive.swap_remove(place);
                        bed.commit(delete(BOOKS, &id)).await.unwrap().unwrap();
                        gone.insert(id);
                    }
                    1 => alive.push(bed.put(book("new", json!(dice.roll(20)))).await.id),
                    2 => {
                        let patch = json!({"price": null, "title": format!("R{}", dice.roll(99))});
                        bed.put(merge(BOOKS, &alive[place], patch)).await;
                    }
                    _ => {
                        let patch = fields(json!({"price": dice.roll(20)}));
                        let change = Change::Merge { patch };
                        bed.put(write(BOOKS, Some(&alive[place]), change)).await;
                    }
                }
            }
        }
        let once: HashSet<String> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "{sort}: a row came twice");
        let missed: Vec<_> =
            throughout.difference(&once).filter(|id| !gone.contains(*id)).collect();
        assert!(missed.is_empty(), "{sort}: {} rows were skipped", missed.len());
    }
}

pub async fn child_lists_belong_to_their_parent(bed: Bed) {
    let (a, b) = (bed.put(book("A", json!(1))).await, bed.put(book("B", json!(1))).await);
    for n in 0..10 {
        let parent = if n % 2 == 0 { &a.id } else { &b.id };
        bed.put(under(create(REVIEWS, json!({"rating": n})), parent)).await;
    }
    for (sort, expected) in
        [("-created_at", "8 6 4 2 0"), ("rating", "0 2 4 6 8"), ("-rating", "8 6 4 2 0")]
    {
        let under_a = Query { parent: Some(a.id.clone()), ..query(sort, 2) };
        let walked = bed.walk(REVIEWS, &under_a).await;
        let ratings: Vec<String> =
            walked.iter().map(|review| value(review, "rating").to_string()).collect();
        assert_eq!(ratings.join(" "), expected);
    }
}

pub async fn a_snapshot_too_far_back_is_refused(bed: Bed) {
    for part in 0..6 {
        bed.put_all((0..1_667).map(|n| book("A", json!(part * 2_000 + n)))).await;
    }
    let first = bed.list(&query("price", 2)).await;
    let ids: Vec<String> =
        bed.walk(BOOKS, &query("created_at", 100)).await.into_iter().map(|b| b.id).collect();
    let walk = Query { page: Page::After(first.position.unwrap()), ..query("price", 2) };
    for chunk in ids.chunks(2_000) {
        bed.put_all(chunk.iter().map(|id| merge(BOOKS, id, json!({"stock": 1})))).await;
    }
    let refused = bed.store.list(HERE, BOOKS, &walk).await;
    assert!(matches!(refused, Err(store::Error::SnapshotTooOld)));
}
