//! Events of the service's own objects, which come only to those who name them.

const OWN: [&str; 3] = ["webhook_endpoint.", "replay.", "erasure."];
const PING: &str = "ping";

/// Whether events of this type must be asked for by name.
pub fn is_own(kind: &str) -> bool {
    kind == PING || OWN.iter().any(|own| kind.starts_with(own))
}

/// Whether a pattern, such as `order.*`, includes a type. `*` includes no type that must be asked
/// for by name.
pub fn includes(pattern: &str, kind: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(""), _) => !is_own(kind),
        (Some(head), _) => kind.starts_with(head),
        (None, Some(tail)) => kind.ends_with(tail),
        (None, None) => kind == pattern,
    }
}
