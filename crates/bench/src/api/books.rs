//! Requests about books, encoded by hand, so that the generator uses little CPU. The only file of
//! the bench that knows the fields of a book.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::http::{Client, escape, header};
use crate::load::{Load, Source};

/// Time limit of a load of books: at 2,000 a second a million takes 500 s.
const FILL_LIMIT: Duration = Duration::from_secs(900);
const FILL_IN_FLIGHT: usize = 256;

#[derive(Clone)]
pub struct Requests {
    key: Arc<str>,
    /// Numbers the books, so that all are different.
    next: Arc<AtomicU64>,
}

/// The parts of a page of a list that pagination needs.
pub struct Page {
    pub rows: usize,
    pub next_cursor: Option<String>,
}

impl Requests {
    pub fn new(key: String) -> Self {
        Self { key: key.into(), next: Arc::new(AtomicU64::new(1)) }
    }

    pub fn get(&self, target: &str) -> Vec<u8> {
        self.get_with(target, "")
    }

    pub fn get_if_none_match(&self, target: &str, etag: &str) -> Vec<u8> {
        self.get_with(target, &format!("If-None-Match: {etag}\r\n"))
    }

    /// In this date version.
    pub fn get_in(&self, target: &str, version: &str) -> Vec<u8> {
        self.get_with(target, &format!("Restive-Version: {version}\r\n"))
    }

    pub fn page(&self, limit: usize, cursor: Option<&str>) -> Vec<u8> {
        let after = cursor.map_or(String::new(), |cursor| format!("&after={}", escape(cursor)));
        self.get(&format!("/v1/books?limit={limit}{after}"))
    }

    /// Endless creates for one connection, each with another book.
    pub fn creates(&self) -> Source {
        let own = self.clone();
        Box::new(move |request| own.create(request))
    }

    pub fn create(&self, request: &mut Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Scattered, so that inserts hit all of an index and not only its end.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let body = format!(
            "{{\"title\":\"The book of {spread:x}\",\"author\":\"Author {}\",\"price\":{}.{:02},\
             \"isbn\":\"{}\"}}",
            spread % 1_000,
            spread % 97,
            spread % 100,
            isbn(scattered(number))
        );
        let head = format!(
            "POST /v1/books HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(body.as_bytes());
    }

    /// Creates this many books through the API.
    pub fn fill(&self, address: &str, count: u64) -> Result<()> {
        let load = Load {
            address,
            connections: FILL_IN_FLIGHT.min(usize::try_from(count)?),
            expect: 201,
            duration: FILL_LIMIT,
            count: Some(count),
            label: Some("creating books"),
        };
        let outcome = load.run(&|_| self.creates())?;
        let made = outcome.latency.count();
        anyhow::ensure!(made == count, "only {made} of {count} books within {FILL_LIMIT:?}");
        Ok(())
    }

    /// Ids of the newest books, up to 100 a page.
    pub fn ids(&self, client: &mut Client, count: usize) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        let mut cursor: Option<String> = None;
        while ids.len() < count {
            let answer = client.expect(200, &self.page(100, cursor.as_deref()))?;
            let list: Value = serde_json::from_slice(&answer.body)?;
            let books = list["data"].as_array().context("a list without data")?;
            ids.extend(books.iter().filter_map(|book| book["id"].as_str().map(str::to_owned)));
            cursor = list["pagination"]["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(ids)
    }

    /// Requests one page and returns what pagination needs.
    pub fn read_page(
        &self,
        client: &mut Client,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page> {
        let answer = client.expect(200, &self.page(limit, cursor))?;
        let list: Value = serde_json::from_slice(&answer.body)?;
        let rows = list["data"].as_array().context("a list without data")?.len();
        let more = list["pagination"]["has_more"].as_bool().context("no has_more")?;
        let next = list["pagination"]["next_cursor"].as_str().map(str::to_owned);
        Ok(Page { rows, next_cursor: next.filter(|_| more) })
    }

    /// The ETag of a list.
    pub fn list_etag(&self, client: &mut Client, limit: usize) -> Result<String> {
        let answer = client.expect(200, &self.page(limit, None))?;
        let etag = header(&answer.head, b"etag").context("a list without ETag")?;
        Ok(etag.to_owned())
    }

    fn get_with(&self, target: &str, more: &str) -> Vec<u8> {
        format!(
            "GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n{more}\r\n",
            self.key
        )
        .into_bytes()
    }
}

/// Sends the given requests in turn; each connection starts at another one.
pub fn in_turn(requests: Arc<[Vec<u8>]>) -> impl Fn(usize) -> Source {
    move |connection| {
        let requests = Arc::clone(&requests);
        let mut at = connection * 31;
        Box::new(move |request| {
            request.extend_from_slice(&requests[at % requests.len()]);
            at += 1;
        })
    }
}

/// Maps each number to another one, without duplicates below a thousand million and with neighbours
/// far apart: the factor is a power of three, so it has no common divisor with a power of ten.
fn scattered(number: u64) -> u64 {
    (number % 1_000_000_000) * 387_420_489 % 1_000_000_000
}

/// A valid ISBN-13 for each number below a thousand million.
fn isbn(number: u64) -> String {
    let digits = format!("978{number:09}");
    let weigh =
        |(at, digit): (usize, u8)| u32::from(digit - b'0') * if at % 2 == 0 { 1 } else { 3 };
    let sum: u32 = digits.bytes().enumerate().map(weigh).sum();
    format!("{digits}{}", (10 - sum % 10) % 10)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_create_is_one_whole_request_with_valid_json() {
        let mut request = Vec::new();
        Requests::new("sk_test_1".into()).create(&mut request);
        let text = String::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(header(head.as_bytes(), b"content-length"), Some(&*body.len().to_string()));
        let book: Value = serde_json::from_str(body).unwrap();
        assert!(book["title"].is_string() && book["price"].is_number());
    }

    #[test]
    fn isbns_carry_their_check_digit() {
        // 978-0-306-40615-7 is the example of the standard.
        assert_eq!(isbn(30_640_615), "9780306406157");
    }

    #[test]
    fn no_two_books_share_an_isbn() {
        let seen: HashSet<u64> = (0..100_000).map(scattered).collect();
        assert_eq!(seen.len(), 100_000);
    }

    #[test]
    fn cursors_are_percent_encoded() {
        let request = Requests::new("k".into()).page(20, Some("a+b/c="));
        let text = String::from_utf8(request).unwrap();
        assert!(text.starts_with("GET /v1/books?limit=20&after=a%2Bb%2Fc%3D HTTP/1.1"), "{text}");
    }

    #[test]
    fn connections_start_at_different_requests() {
        let requests: Arc<[Vec<u8>]> = (0..100_u8).map(|number| vec![number]).collect();
        let source = in_turn(requests);
        let mut sent = Vec::new();
        source(0)(&mut sent);
        source(1)(&mut sent);
        assert_eq!(sent, [0, 31]);
    }
}
