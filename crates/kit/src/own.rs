//! Events of the service's own objects, which come only to those who name them.

const OWN: [&str; 3] = ["webhook_endpoint.", "replay.", "erasure."];
const PING: &str = "ping";

/// Whether events of this type must be asked for by name.
pub fn is_own(kind: &str) -> bool {
    kind == PING || OWN.iter().any(|own| kind.starts_with(own))
}
