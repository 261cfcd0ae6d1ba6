//! The records of a list, over all its pages.

use super::{Error, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;

/// Reads a list to its end, one page at a time. It holds one page in memory.
pub struct Records<T> {
    request: Request,
    ready: VecDeque<T>,
    next: Next,
    position: Option<String>,
}

enum Next {
    First,
    After(String),
    End,
}

/// One page of a list.
#[derive(Debug)]
#[non_exhaustive]
pub struct Page<T> {
    pub records: Vec<T>,
    /// The cursor of the next page, for `after`.
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Body<T> {
    data: Vec<T>,
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    #[serde(default)]
    next_cursor: Option<String>,
    #[serde(default)]
    has_more: bool,
}

impl<T: DeserializeOwned> Records<T> {
    pub(super) fn new(request: Request) -> Records<T> {
        Records { request, ready: VecDeque::new(), next: Next::First, position: None }
    }

    /// The next record; `None` after the last. After an error, the same page is read again.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        while self.ready.is_empty() {
            match self.next_page().await? {
                Some(page) => self.ready.extend(page.records),
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }

    /// The next page; `None` after the last.
    pub async fn next_page(&mut self) -> Result<Option<Page<T>>, Error> {
        let request = match &self.next {
            Next::First => self.request.again(),
            Next::After(cursor) => self.request.again().query("after", cursor),
            Next::End => return Ok(None),
        };
        let response = request.send().await?;
        let body: Body<T> = response.json()?;
        // The first page's, so that a stream from there misses nothing.
        if self.position.is_none() {
            self.position = response.position().map(str::to_owned);
        }
        let cursor = body.pagination.next_cursor.filter(|_| body.pagination.has_more);
        let repeated = matches!((&self.next, &cursor), (Next::After(a), Some(b)) if a == b);
        if repeated {
            let why = "the next page has the cursor of this one".to_owned();
            return Err(Error::Unexpected(why));
        }
        self.next = cursor.clone().map_or(Next::End, Next::After);
        Ok(Some(Page { records: body.data, next_cursor: cursor }))
    }

    /// Where a stream continues after this list; known after the first page.
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }
}
