//! What a listener offers to those who connect to it; the same for all of its workers.

use crate::hints::EarlyHints;
use crate::tls::Tls;

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) early_hints: EarlyHints,
    /// Only TLS is spoken.
    pub(crate) tls: Option<Tls>,
    /// Without TLS, HTTP/2 may be spoken from the first byte on.
    pub(crate) prior_knowledge: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { early_hints: EarlyHints::default(), tls: None, prior_knowledge: true }
    }
}

impl Terms {
    /// Under TLS the two sides have agreed on a protocol before.
    pub(crate) fn takes_http2_unasked(&self) -> bool {
        self.prior_knowledge && self.tls.is_none()
    }
}
