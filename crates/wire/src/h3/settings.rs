//! What a connection allows its client: windows, streams, sizes, silence.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{IdleTimeout, ServerConfig, TransportConfig, VarInt};

use super::frames::{self, CONTROL_STREAM, SETTINGS};
use crate::limits::Limits;
use crate::tls::Tls;

/// Requests of one connection at a time; a client opens no more. 128, as on HTTP/2.
const MAX_STREAMS: u32 = 128;
/// Streams of the client that go one way: it needs three, and may try out that others do no harm.
const MAX_ONE_WAY_STREAMS: u32 = 8;
/// Body bytes one stream may send ahead of its reader. 64 KiB, as on HTTP/2.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all streams of a connection, as long as none has a body: heads, and the streams
/// that go one way. What a body may hold is added while it is on its way (`window`), so that one
/// that nobody reads never keeps another from sending.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024;
/// Bytes of answers that the client has not acknowledged yet, of all streams of a connection. As
/// much as a client of ours could be sent in a round trip of 100 ms at 160 Mbit/s.
const SEND_WINDOW_BYTES: u64 = 2 * 1024 * 1024;

pub(super) fn server(tls: &Tls, limits: &Limits) -> io::Result<ServerConfig> {
    let config = tls.quic().map_err(io::Error::other)?;
    let crypto = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(Arc::new(transport(limits)));
    Ok(server)
}

fn transport(limits: &Limits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    // A client that does not answer our sign of life is gone. One that is there and asks for
    // nothing is `connection`'s affair.
    let silence = limits.ping_after.saturating_add(limits.write_stall);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(MAX_STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_ONE_WAY_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(Some(idle_timeout(silence)))
        .keep_alive_interval(Some(limits.ping_after))
        // Nobody here takes datagrams.
        .datagram_receive_buffer_size(None);
    transport
}

fn idle_timeout(silence: Duration) -> IdleTimeout {
    silence.try_into().unwrap_or(VarInt::from_u32(u32::MAX).into())
}

/// How our control stream begins.
pub(super) fn control(limits: &Limits) -> Vec<u8> {
    let mut settings = Vec::new();
    for (name, value) in [
        (frames::SETTING_MAX_FIELD_SECTION_SIZE, u64::from(limits.header_list_bytes())),
        (frames::SETTING_ENABLE_CONNECT_PROTOCOL, 1),
    ] {
        frames::write_number(&mut settings, name);
        frames::write_number(&mut settings, value);
    }
    let mut bytes = Vec::new();
    frames::write_number(&mut bytes, CONTROL_STREAM);
    frames::write_head(&mut bytes, SETTINGS, settings.len() as u64);
    bytes.extend_from_slice(&settings);
    bytes
}
