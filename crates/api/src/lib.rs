//! The way of a request, in the order of the files: route, auth, limit, version, validate,
//! idempotency, operation, respond, error. Knows resources and the store's trait; knows neither the
//! database nor the HTTP library.

pub mod error;
pub mod openapi;
