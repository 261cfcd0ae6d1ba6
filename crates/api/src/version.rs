//! The date version a request is made for. There is one so far; a request may name it.

use http::HeaderMap;
use model::problem::{Code, Problem};
use model::schema::Schema;

pub const HEADER: &str = "restive-version";

/// Refuses versions this service does not have.
pub fn check(schema: &Schema, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(asked) = headers.get(HEADER) else { return Ok(()) };
    let newest = schema.service.version.as_str();
    if asked.as_bytes() == newest.as_bytes() {
        return Ok(());
    }
    let shown: String = String::from_utf8_lossy(asked.as_bytes()).chars().take(40).collect();
    let message = format!("There is no version `{shown}`; there is: {newest}.");
    Err(Problem::new(Code::UnknownVersion, message).param("Restive-Version"))
}
