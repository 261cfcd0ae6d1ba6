//! Early hints (103): what a service can tell a client while it still works on the answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use http::header::LINK;
use http::{HeaderMap, HeaderValue, StatusCode, Version};

/// More hints than this for one request are dropped: each is a packet the client did not ask for.
const MAX_HINTS: usize = 8;

/// When a listener lets early hints through. HTTP/2 clients are sent them unless they are off; of
/// those that speak HTTP/1.1 some old ones take the first
/// head they see for the answer (RFC 8297, 3), so the default asks for a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyHints {
    Off,
    /// Only to requests that carry `Sec-Fetch-Mode: navigate`, which browsers send when they load
    /// a page, and no other client does. Those are the ones that use hints.
    #[default]
    Asked,
    /// To every HTTP/1.1 client; for listeners whose clients are known.
    Always,
}

impl EarlyHints {
    /// `navigates`: the request says that a browser loads a page.
    pub(crate) fn allowed(self, version: Version, navigates: bool) -> bool {
        match self {
            _ if version < Version::HTTP_11 => false,
            EarlyHints::Off => false,
            // They came with 103 already in the books.
            _ if version >= Version::HTTP_2 => true,
            EarlyHints::Always => true,
            EarlyHints::Asked => navigates,
        }
    }
}

/// Sends early hints for one request, or nothing where the client would not understand them.
#[derive(Clone, Debug, Default)]
pub struct Hints(Option<Arc<Mutex<Queue>>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(StatusCode, HeaderMap)>,
    count: usize,
    waker: Option<Waker>,
}

impl Hints {
    pub(crate) fn open() -> Hints {
        Hints(Some(Arc::default()))
    }

    /// Whether hints reach the client. A service that has to work for them asks first.
    pub fn wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Sends `Link` values in one 103. They leave when the service next waits for something.
    pub fn links(&self, values: impl IntoIterator<Item = HeaderValue>) {
        if self.wanted() {
            self.send(values.into_iter().map(|value| (LINK, value)).collect());
        }
    }

    /// Sends these headers in one 103.
    pub fn send(&self, headers: HeaderMap) {
        self.forward(StatusCode::EARLY_HINTS, headers);
    }

    /// Sends an interim response that a server has made (RFC 9110 15.2): 102, 103, or one that is
    /// not known here. Others are about one connection, or end it.
    pub fn forward(&self, status: StatusCode, headers: HeaderMap) {
        let is_ours = matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS);
        if is_ours || !status.is_informational() {
            return;
        }
        let Some(queue) = &self.0 else { return };
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.count < MAX_HINTS {
            queue.count += 1;
            queue.waiting.push((status, headers));
            if let Some(waker) = queue.waker.take() {
                waker.wake();
            }
        }
    }

    /// Takes what is to be sent; the context's task is woken when there is more.
    pub(crate) fn take(&self, cx: &mut Context<'_>) -> Vec<(StatusCode, HeaderMap)> {
        let Some(queue) = &self.0 else { return Vec::new() };
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waker = Some(cx.waker().clone());
        std::mem::take(&mut queue.waiting)
    }
}
