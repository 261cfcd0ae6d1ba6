//! Decisions without a database.
