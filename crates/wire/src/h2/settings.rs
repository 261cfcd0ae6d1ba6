//! What a connection allows its client: windows, streams, sizes. The numbers of h2's own defences
//! stand here beside ours.

use bytes::Bytes;
use h2::server::{Builder, Handshake};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::limits::Limits;

/// Streams of one connection at a time; over it h2 refuses them, which a client may retry. 128:
/// RFC 9113 asks for 100 or more, nginx has 128.
pub(super) const MAX_STREAMS: u32 = 128;
/// Body bytes one stream may send ahead of its reader. 64 KiB, as RFC 9113 begins with: a body that
/// nobody sends is charged for this much. With the 2,048 requests that one account may have under
/// way that is a quarter of `Limits::held_bytes`, and half of what one account may hold.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all streams of a connection: the sum of theirs, so that a body that nobody reads
/// never keeps another stream from sending. What a connection holds is bounded by
/// `Limits::held_bytes`: a stream with a body is let in only if there is room for it.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;
/// The least the protocol allows: a larger frame only delays those of other streams.
const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// What one stream may have waiting for the socket. 64 KiB: several packets, and 8 MiB for all
/// streams of a client that does not read.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Streams that we have reset and still remember, so that late frames are not taken for errors.
const MAX_REMEMBERED_RESETS: usize = 64;
/// Streams the client has reset before we looked at them. A page that is left cancels all of its
/// streams at once; more than there can be is an attack.
const MAX_PENDING_RESETS: usize = MAX_STREAMS as usize;
/// Streams that we had to reset for the client's errors, over the whole life of a connection.
const MAX_ERROR_RESETS: usize = 256;

pub(super) fn handshake<S>(stream: S, limits: &Limits) -> Handshake<S, Bytes>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    Builder::new()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        // Beyond it h2 says 431 on its own, far beyond it ends the connection.
        .max_header_list_size(limits.header_list_bytes())
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_concurrent_reset_streams(MAX_REMEMBERED_RESETS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS))
        .enable_connect_protocol()
        .handshake(stream)
}
