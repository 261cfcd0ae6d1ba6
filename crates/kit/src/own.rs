//! Events of the service's own objects, which come only to those who name them.

const OWN: [&str; 4] = ["webhook_endpoint.", "replay.", "erasure.", "ping"];

/// Whether events of this type must be asked for by name.
pub fn is_own(kind: &str) -> bool {
    OWN.iter().any(|own| kind.starts_with(own))
}
