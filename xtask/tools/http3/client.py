"""An HTTP/3 client that shares no code with ours: aioquic, with QPACK by ls-qpack.

    client.py ADDRESS PORT CERTIFICATE KEY

Makes a book, reads it many times at once, changes its connection id, reads a large document, and
says as one JSON object what it saw. The e2e test `h3` judges that.
"""

import asyncio
import json
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

PATIENCE_SECONDS = 20


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def quic_event_received(self, event):
        for part in self.http.handle_event(event):
            answer = self.answers.get(part.stream_id)
            if isinstance(part, HeadersReceived):
                answer["headers"] = {name.decode(): text.decode() for name, text in part.headers}
            if isinstance(part, DataReceived):
                answer["body"] += part.data
            if part.stream_ended:
                answer["ended"].set_result(None)

    async def ask(self, method, path, headers=(), body=b""):
        stream = self._quic.get_next_available_stream_id()
        ended = asyncio.get_running_loop().create_future()
        answer = self.answers[stream] = {"body": b"", "ended": ended}
        head = [
            (b":method", method),
            (b":scheme", b"https"),
            (b":authority", b"localhost"),
            (b":path", path),
            *headers,
        ]
        self.http.send_headers(stream, head, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        await asyncio.wait_for(ended, PATIENCE_SECONDS)
        return answer


async def main(address, port, certificate, key):
    settings = QuicConfiguration(alpn_protocols=H3_ALPN, server_name="localhost")
    settings.load_verify_locations(certificate)
    async with connect(address, port, configuration=settings, create_protocol=Client) as client:
        own = [(b"authorization", b"Bearer " + key.encode())]
        book = json.dumps({"title": "Dune", "author": "Frank Herbert", "price": 9.99}).encode()
        kind = [(b"content-type", b"application/json")]
        made = await client.ask(b"POST", b"/v1/books", own + kind, book)
        path = b"/v1/books/" + json.loads(made["body"])["id"].encode()
        reads = await asyncio.gather(*[client.ask(b"GET", path, own) for _ in range(50)])
        refused = await client.ask(b"GET", b"/v1/books/book_none", own)
        client.change_connection_id()
        large = await client.ask(b"GET", b"/openapi.json")
    print(
        json.dumps(
            {
                "made": made["headers"][":status"],
                "same": all(read["body"] == made["body"] for read in reads),
                "reads": sorted({read["headers"][":status"] for read in reads}),
                "refused": refused["headers"][":status"],
                "error": json.loads(refused["body"])["error"]["type"],
                "large": large["headers"]["content-length"] == str(len(large["body"])),
            }
        )
    )


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
