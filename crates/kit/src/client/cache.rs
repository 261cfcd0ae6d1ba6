//! Responses with an ETag, so that an unchanged one need not be sent again. The server decides
//! each time whether it is unchanged, so a stale response is never used.

use super::Response;
use std::collections::HashMap;

const MAX_ENTRIES: usize = 256;
const MAX_BYTES: usize = 8 << 20;
/// One response cannot remove most of the others.
const MAX_ENTRY_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Cache {
    entries: HashMap<String, Entry>,
    size_bytes: usize,
    uses: u64,
}

struct Entry {
    response: Response,
    last_use: u64,
}

impl Cache {
    pub(super) fn get(&mut self, key: &str) -> Option<Response> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.last_use = self.uses;
        Some(entry.response.clone())
    }

    pub(super) fn put(&mut self, key: &str, response: &Response) {
        self.remove(key);
        let no_store = response.header("cache-control").is_some_and(|v| v.contains("no-store"));
        let size_bytes = response.body().len() + key.len();
        if no_store || response.etag().is_none() || size_bytes > MAX_ENTRY_BYTES {
            return;
        }
        while self.entries.len() >= MAX_ENTRIES || self.size_bytes + size_bytes > MAX_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.remove(&oldest);
        }
        self.uses += 1;
        self.size_bytes += size_bytes;
        let entry = Entry { response: response.clone(), last_use: self.uses };
        self.entries.insert(key.to_owned(), entry);
    }

    fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.size_bytes -= entry.response.body().len() + key.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn response(size_bytes: usize, cache_control: &'static str) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::from_static("\"1\""));
        headers.insert("cache-control", HeaderValue::from_static(cache_control));
        Response::new(http::StatusCode::OK, headers, vec![b'x'; size_bytes].into())
    }

    #[test]
    fn the_cache_is_bounded_by_entries_and_bytes_and_forgets_the_least_used() {
        let mut cache = Cache::default();
        for number in 0..2 * MAX_ENTRIES {
            cache.put(&number.to_string(), &response(10, ""));
            assert!(cache.get("0").is_some(), "it is used all the time");
        }
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
        assert!(cache.get("1").is_none());
        for number in 0..20 {
            cache.put(&format!("large {number}"), &response(MAX_ENTRY_BYTES - 100, ""));
        }
        assert!(cache.size_bytes <= MAX_BYTES);
        let held: usize =
            cache.entries.iter().map(|(k, e)| k.len() + e.response.body().len()).sum();
        assert_eq!(held, cache.size_bytes);
        cache.put("too large", &response(MAX_ENTRY_BYTES + 1, ""));
        assert!(cache.get("too large").is_none());
        cache.put("secret", &response(1, "no-store"));
        assert!(cache.get("secret").is_none());
    }
}
