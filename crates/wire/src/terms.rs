//! What a listener offers to those who connect to it; the same for all of its workers.

use std::net::SocketAddr;

use http::header::ALT_SVC;
use http::{HeaderMap, HeaderValue};

use crate::hints::EarlyHints;
use crate::peer::Networks;
use crate::tls::Tls;

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) early_hints: EarlyHints,
    /// Only TLS is spoken.
    pub(crate) tls: Option<Tls>,
    /// Without TLS, HTTP/2 may be spoken from the first byte on.
    pub(crate) prior_knowledge: bool,
    /// Every connection begins with the PROXY protocol.
    pub(crate) proxy_protocol: bool,
    /// Proxies that may name the client.
    pub(crate) trusted: Networks,
    /// Where the listener is bound.
    pub(crate) local: SocketAddr,
    /// Where HTTP/3 is spoken, for answers on other protocols.
    pub(crate) alternative: Option<HeaderValue>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            early_hints: EarlyHints::default(),
            tls: None,
            prior_knowledge: true,
            proxy_protocol: false,
            trusted: Networks::default(),
            local: SocketAddr::from(([0, 0, 0, 0], 0)),
            alternative: None,
        }
    }
}

impl Terms {
    /// Whether a connection begins with something else than HTTP.
    pub(crate) fn has_prelude(&self) -> bool {
        self.proxy_protocol || self.tls.is_some()
    }

    /// Under TLS the two sides have agreed on a protocol before.
    pub(crate) fn takes_http2_unasked(&self) -> bool {
        self.prior_knowledge && self.tls.is_none()
    }

    /// Advertises HTTP/3, unless the service has set the header itself.
    pub(crate) fn advertise(&self, headers: &mut HeaderMap) {
        if let Some(alternative) = &self.alternative
            && !headers.contains_key(ALT_SVC)
        {
            headers.insert(ALT_SVC, alternative.clone());
        }
    }
}
