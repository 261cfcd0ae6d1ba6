"""Follows a stream over HTTP/3 with aioquic and prints its body as it arrives.

    stream.py ADDRESS PORT CERTIFICATE KEY PATH

Runs until it is interrupted, which closes the connection, or the stream ends.
"""

import asyncio
import signal
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.ended = asyncio.get_running_loop().create_future()

    def finish(self):
        if not self.ended.done():
            self.ended.set_result(None)

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.finish()
        for part in self.http.handle_event(event):
            if isinstance(part, DataReceived):
                sys.stdout.buffer.write(part.data)
                sys.stdout.buffer.flush()
            if part.stream_ended:
                self.finish()

    async def follow(self, path, key):
        stream = self._quic.get_next_available_stream_id()
        head = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"localhost"),
            (b":path", path.encode()),
            (b"accept", b"text/event-stream"),
            (b"authorization", b"Bearer " + key.encode()),
        ]
        self.http.send_headers(stream, head, end_stream=True)
        self.transmit()
        await self.ended


async def main(address, port, certificate, key, path):
    settings = QuicConfiguration(alpn_protocols=H3_ALPN, server_name="localhost")
    settings.load_verify_locations(certificate)
    kind = {"configuration": settings, "create_protocol": Client}
    async with connect(address, int(port), **kind) as client:
        # The normal end. A handler instead of an exception: an interrupt in the middle of a callback
        # could be lost.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, client.finish)
        await client.follow(path, key)


asyncio.run(main(*sys.argv[1:]))
