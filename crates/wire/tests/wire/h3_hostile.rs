//! HTTP/3 with clients that do not behave.
