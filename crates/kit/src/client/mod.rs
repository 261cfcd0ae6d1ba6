//! A client of the JSON API.
//!
//! ```no_run
//! use restive_kit::client::Client;
//! use serde_json::{Value, json};
//!
//! # async fn example() -> Result<(), restive_kit::client::Error> {
//! let client = Client::builder("http://localhost:8080").key("sk_test_…").build()?;
//! let books = client.resource("books");
//! let book = books.create(&json!({ "title": "Dune", "author": "Frank Herbert" })).await?.value()?;
//! let id = book["id"].as_str().unwrap_or_default();
//! books.update(id, &json!({ "price": 9.99 })).await?;
//!
//! let mut found = books.list().query("author", "Frank Herbert").records::<Value>();
//! while let Some(book) = found.next().await? {
//!     println!("{}", book["title"]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A request is repeated after a network error, 408, 429, 5xx, and 409 while an equal request
//! still runs, if a repetition cannot do the work twice: `GET`; `PUT` and `DELETE` without
//! `If-Match`; `POST` and `PATCH`, which get an `Idempotency-Key`. The client waits as long as
//! `Retry-After` says. Everything is bounded: see the limits of [`Builder`].

mod address;
mod builder;
mod cache;
mod connection;
mod credentials;
mod error;
mod list;
mod request;
mod resource;
mod response;
mod retry;

pub use self::builder::Builder;
pub use self::credentials::TokenFuture;
pub use self::error::{ApiError, BoxError, Error, FieldError};
pub use self::list::{Page, Records};
pub use self::request::Request;
pub use self::resource::Resource;
pub use self::response::Response;
#[cfg(feature = "follow")]
pub(crate) use self::retry::{between, retry_after};

pub use http::Method;

use self::address::Address;
use self::builder::Settings;
use self::cache::Cache;
use self::connection::Connections;
use self::credentials::Credentials;
use std::fmt;
use std::sync::{Arc, Mutex};

/// A client of one server. Clones are cheap and share connections, credentials and the ETag cache.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    address: Address,
    settings: Settings,
    credentials: Credentials,
    connections: Connections,
    cache: Mutex<Cache>,
}

impl Client {
    /// `url` is the address of the server, such as `https://api.example.com`; a path in it comes
    /// before every path of a request.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// A request to any path, such as `/v1/books`.
    pub fn request(&self, method: Method, path: &str) -> Request {
        Request::new(self.clone(), method, path)
    }

    pub fn get(&self, path: &str) -> Request {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> Request {
        self.request(Method::POST, path)
    }

    /// The server reported that the token has expired. False if there is no other one to get.
    #[cfg(feature = "follow")]
    pub(crate) async fn renew_token(&self) -> bool {
        let current = self.0.credentials.current().await;
        self.0.credentials.refuse(current.as_ref()).await
    }

    #[cfg(feature = "follow")]
    pub(crate) fn has_token_callback(&self) -> bool {
        matches!(self.0.credentials, Credentials::Refreshed { .. })
    }

    /// The records of a collection, such as `books`, or `books/book_…/reviews`.
    pub fn resource(&self, collection: &str) -> Resource {
        Resource::new(self.clone(), format!("/v1/{}", collection.trim_matches('/')))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credentials.
        out.debug_struct("Client").field("address", &self.0.address).finish_non_exhaustive()
    }
}
