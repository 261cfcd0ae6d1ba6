//! Close codes, and the payload of a close frame (RFC 6455 5.5.1, 7.4).

use std::borrow::Cow;

use super::ProtocolError;

/// The codes of RFC 6455 7.4.1 and of the registry behind it.
pub mod code {
    pub const NORMAL: u16 = 1000;
    /// The server goes away, or the browser leaves the page.
    pub const GOING_AWAY: u16 = 1001;
    pub const PROTOCOL_ERROR: u16 = 1002;
    pub const UNSUPPORTED: u16 = 1003;
    /// Means a close frame without a code, and is never sent.
    pub const NO_CODE: u16 = 1005;
    pub const INVALID_DATA: u16 = 1007;
    pub const POLICY: u16 = 1008;
    pub const TOO_BIG: u16 = 1009;
    pub const INTERNAL: u16 = 1011;
    /// The server restarts: the client may reconnect after a random pause.
    pub const RESTART: u16 = 1012;
    pub const TRY_LATER: u16 = 1013;
}

/// Reads the code and the reason of a client's close frame.
pub(super) fn read(payload: Cow<'_, [u8]>) -> Result<Option<(u16, Cow<'_, str>)>, ProtocolError> {
    let code = match payload[..] {
        [] => return Ok(None),
        [_] => return Err(ProtocolError::protocol("A close code has two bytes.")),
        [high, low, ..] => u16::from_be_bytes([high, low]),
    };
    if !may_be_sent(code) {
        return Err(ProtocolError::protocol("The close code must not be used in a frame."));
    }
    let reason = match payload {
        Cow::Borrowed(bytes) => str::from_utf8(&bytes[2..]).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes[2..].to_vec()).ok().map(Cow::Owned),
    };
    reason.map(|reason| Some((code, reason))).ok_or(ProtocolError::NOT_UTF_8)
}

/// 1004 has no meaning yet. 1005, 1006 and 1015 never come in a frame. The rest up to 2999 is
/// reserved for later versions of the protocol; libraries and applications use the codes above.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
