//! The meaning of list parameters, and the reports of mistakes in them.

use super::*;
use crate::parse;
use crate::problem::Code;
use crate::schema::{BOOKSHOP, Schema};

fn read(collection: &str, query: &[(&str, &str)]) -> Result<ListRequest, crate::Problem> {
    let schema: Schema = parse::parse(BOOKSHOP).unwrap();
    let index = schema.find(collection).unwrap();
    let pairs: Vec<_> = query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    list(&schema, index, None, &pairs)
}

#[test]
fn nothing_asked_means_the_newest_twenty() {
    let asked = read("books", &[]).unwrap();
    assert_eq!((asked.query.limit, &asked.query.page), (20, &Page::First));
    let newest = SortKey::new("created_at", true);
    assert_eq!(asked.query.sort, [newest]);
}

#[test]
fn filters_ranges_lists_and_null_are_understood() {
    let asked = read(
        "books",
        &[("author", "Le Guin,\"Herbert, F.\",null"), ("min_price", "5"), ("max_price", "9.5")],
    )
    .unwrap();
    let text = |text: &str| Scalar::Text(text.to_owned());
    let tests: Vec<_> = asked.query.filters.into_iter().map(|f| (f.field, f.test)).collect();
    assert_eq!(
        tests,
        [
            (
                "author".to_owned(),
                Test::AnyOf(vec![text("Le Guin"), text("Herbert, F."), Scalar::Null])
            ),
            ("price".to_owned(), Test::Min(Scalar::Number(5.0))),
            ("price".to_owned(), Test::Max(Scalar::Number(9.5))),
        ]
    );
}

#[test]
fn every_mistake_is_reported_at_once_and_by_name() {
    let problem = read(
        "books",
        &[("limit", "-1"), ("page", "0"), ("sort", "isbn"), ("colour", "red"), ("min_price", "x")],
    )
    .unwrap_err();
    let found: Vec<_> = problem.violations.iter().map(|v| (&*v.field, v.code)).collect();
    assert_eq!(
        found,
        [
            ("limit", Code::InvalidParameter),
            ("page", Code::InvalidParameter),
            ("sort", Code::InvalidParameter),
            ("colour", Code::UnknownParameter),
            ("min_price", Code::InvalidParameter),
        ]
    );
}

#[test]
fn limits_are_clamped_and_far_pages_refused() {
    assert_eq!(read("books", &[("limit", "100000")]).unwrap().query.limit, 100);
    for (name, value) in [
        ("limit", "0"),
        ("limit", "1.5"),
        ("limit", ""),
        ("page", "1000000000000000000"),
        ("page", "99999999999999999999999"),
    ] {
        let problem = read("books", &[(name, value)]).unwrap_err();
        assert_eq!(problem.param.as_deref(), Some(name), "{name}={value}");
    }
}

#[test]
fn a_text_that_looks_like_another_type_stays_a_text() {
    let asked = read("books", &[("q", "NEAR(a b) OR \"x\" * -y title:z")]).unwrap();
    assert_eq!(asked.query.words, ["NEAR(a", "b)", "OR", "\"x\"", "-y", "title:z"]);
    assert!(read("books", &[("q", " * \" ")]).is_err());
    assert!(read("orders", &[("q", "x")]).is_err(), "nothing is searchable there");
    assert!(read("books", &[("q", &"w ".repeat(21))]).is_err());
    for (text, most) in [("b.", 32), ("b", 256), ("é", 256), (".b. c-", 16), ("日、", 32)] {
        assert!(read("books", &[("q", &text.repeat(most))]).is_ok(), "{text} {most}");
        let problem = read("books", &[("q", &text.repeat(most + 1))]).unwrap_err();
        let limit = if most == 256 { "256 characters" } else { "32 words in all" };
        assert!(problem.message.contains(limit), "{}", problem.message);
    }
}

#[test]
fn rank_needs_a_search_and_an_offset_page() {
    assert!(read("books", &[("sort", "rank")]).is_err());
    assert!(read("books", &[("sort", "rank"), ("q", "dune")]).is_err());
    assert!(read("books", &[("sort", "rank"), ("q", "dune"), ("page", "1")]).is_ok());
}

#[test]
fn a_parameter_given_twice_is_refused_unless_it_adds_up() {
    assert!(read("books", &[("limit", "1"), ("limit", "2")]).is_err());
    assert!(read("reviews", &[("expand", "book"), ("include", "book")]).is_ok());
}

#[test]
fn expansions_are_checked_against_the_schema() {
    assert!(read("orders", &[("expand", "book.reviews")]).is_ok());
    let problem = read("orders", &[("expand", "buyer")]).unwrap_err();
    assert!(problem.message.contains("book"), "{}", problem.message);
    assert!(read("orders", &[("expand", "book.reviews.book.reviews")]).is_err(), "too deep");
    assert!(read("orders", &[("expand", "")]).is_err());
}
