//! How bytes travel. The seam: a `Service` is given an `Exchange` and returns a `Response`. Nothing
//! above this crate knows which HTTP library or protocol version carried it.
