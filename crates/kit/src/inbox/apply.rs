//! Handlers, and why they fail.

use std::fmt;
use std::time::Duration;

use super::Event;

/// A function that processes events inside the transaction that marks them.
pub type Handler =
    Box<dyn FnMut(&rusqlite::Connection, &Event) -> Result<(), Failure> + Send + 'static>;

/// Why an attempt failed. The event is tried again later.
#[derive(Debug)]
pub struct Failure {
    pub(super) reason: String,
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// The reason is stored with the event and shown to the operator.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry_after: None }
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Not before this time, as a server may ask; the usual pause counts if it is longer.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// What a panic says.
pub(super) fn panic_reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("without a message"))
}
