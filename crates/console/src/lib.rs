//! The pages for people: the console at `/console` and the documentation (`docs`). This crate
//! holds files and knows neither the API nor the store: the scripts in the files are clients of the
//! public API, with the key of the person who uses them.

mod asset;
pub mod docs;
mod files;

pub use asset::Asset;

/// The Content-Security-Policy of every page. Scripts, styles and requests only of the service
/// itself, no inline script: text of a record that reaches the page as HTML still runs nothing.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
     style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The file of a path of the console: `/console` and below.
pub fn asset(path: &str) -> Option<Asset> {
    let name = match path.strip_prefix("/console")? {
        "" | "/" => "index.html",
        rest => rest.strip_prefix('/')?,
    };
    files::find(name)
}
