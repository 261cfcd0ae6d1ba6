//! Checks the types in a filter of the list of events: a type that no event can have is refused,
//! and the error names the most similar one. Runs after the query is parsed and before the store is
//! asked.

use super::Operation;
use crate::error::Failure;
use model::problem::{Code, Problem};
use model::query::{Filter, Page, Query, Test};
use model::record::Scalar;
use model::webhook::pattern;

/// Refuses a type that is neither in the schema, in any version, nor in the log: the log may have
/// events of an older schema file.
pub async fn check(operation: Operation<'_>, query: &Query) -> Result<(), Failure> {
    let filters = query.filters.iter().filter(|filter| filter.field == "type");
    for asked in filters.flat_map(|filter| asked(&filter.test)) {
        if !is_known(operation, asked) && !is_logged(operation, query, asked).await? {
            let shown: String = asked.chars().take(100).collect();
            let why = pattern::unknown(&operation.request.version.schema, asked);
            let problem = Problem::new(Code::InvalidParameter, format!("{why}."));
            return Err(problem.param("type").value(shown).into());
        }
    }
    Ok(())
}

fn asked(test: &Test) -> Vec<&str> {
    match test {
        Test::Like(patterns) => patterns.iter().map(String::as_str).collect(),
        Test::AnyOf(values) => values.iter().filter_map(text).collect(),
        _ => Vec::new(),
    }
}

fn text(value: &Scalar) -> Option<&str> {
    match value {
        Scalar::Text(text) => Some(text),
        _ => None,
    }
}

fn is_known(operation: Operation<'_>, asked: &str) -> bool {
    [&operation.services.schema, &operation.request.version.schema].into_iter().any(|schema| {
        pattern::catalogue(schema).iter().chain([&pattern::PING]).any(|kind| is_like(asked, kind))
    })
}

/// Whether the log has an event of this type, ignoring all other filters.
async fn is_logged(operation: Operation<'_>, query: &Query, asked: &str) -> Result<bool, Failure> {
    let test = match asked.contains('*') {
        true => Test::Like(vec![asked.to_owned()]),
        false => Test::AnyOf(vec![Scalar::Text(asked.to_owned())]),
    };
    let filters = vec![Filter { field: "type".to_owned(), test }];
    let query = Query { filters, page: Page::First, limit: 1, ..query.clone() };
    let found = operation.services.store.list(
        operation.request.caller().scope,
        operation.request.target.collection,
        &query,
    );
    Ok(!found.await?.records.is_empty())
}

/// Whether a type matches a pattern in which `*` stands for any text.
fn is_like(pattern: &str, kind: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == kind };
    let Some(mut left) = kind.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some(place) = left.find(part) else { return false };
        left = &left[place + part.len()..];
    }
    left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, kind, expected) in [
            ("book.created", "book.created", true),
            ("book.created", "book.created2", false),
            ("book.*", "book.created", true),
            ("boook.*", "book.created", false),
            ("*", "book.created", true),
            ("*.created", "book.created", true),
            ("b*.c*d", "book.created", true),
            ("b*.u*d", "book.created", false),
            ("*o*o*", "book.created", true),
            ("*o*o*o*", "book.created", false),
            ("book.*created", "book.created", true),
            ("book.created*created", "book.created", false),
        ] {
            assert_eq!(is_like(pattern, kind), expected, "{pattern} {kind}");
        }
    }
}
