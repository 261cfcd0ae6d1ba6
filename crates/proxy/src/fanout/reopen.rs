//! How what is shared is asked for again. The requests themselves are made elsewhere.

use std::pin::Pin;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use wire::Response;

use crate::error::Failure;

/// A request of a client that the proxy can send again by itself.
pub(crate) trait Reopen: Send + Sync {
    /// Sends it from this position on.
    fn reopen(&self, position: String) -> Reopening<'_>;
}

pub(crate) type Reopening<'a> =
    Pin<Box<dyn Future<Output = Result<Reopened, Failure>> + Send + 'a>>;

/// The response, and whether a restive server gave it.
pub(crate) struct Reopened {
    pub(crate) response: Response,
    pub(crate) is_restive: bool,
}

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/event-stream")
}
