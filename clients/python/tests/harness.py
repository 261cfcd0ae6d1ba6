"""A restive server for tests: started, killed and started again at the same address; fake servers
that misbehave; conditions with a deadline."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk_test_clients00000000000000000000000000"
KILLS = int(os.environ.get("RESTIVE_KILLS", "5"))


class Server:
    def __init__(self):
        self.address = "127.0.0.1:0"
        self.data = tempfile.mkdtemp(prefix="restive-clients-")
        self.child = None
        self.start()

    @property
    def url(self):
        return f"http://{self.address}"

    def start(self):
        flags = ["serve", "--listen", self.address, "--data", self.data, "--rate-limit", "off"]
        env = {**os.environ, "RESTIVE_BOOTSTRAP_KEY": KEY, "RESTIVE_ACCESS_LOG": "off"}
        self.child = subprocess.Popen(
            [os.environ["RESTIVE_BIN"], *flags],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for line in self.child.stdout:
            found = re.search(r"listening on http://(\S+)", line)
            if found:
                self.address = found[1]
                # Reads on, so that the pipe does not fill up.
                self.reader = threading.Thread(target=self.child.stdout.read, daemon=True)
                self.reader.start()
                return
        raise RuntimeError("the server ended without an address")

    def kill(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.reader.join()
        self.child.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class BrokenNetwork:
    """A network to a port of this machine that breaks: one connection in four is cut after some
    bytes, and all of them are cut now and then, until ``mend`` is called."""

    def __init__(self, port):
        self._target = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._open = set()
        self._mended = threading.Event()
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        for work in (self._accept, self._cut_often):
            threading.Thread(target=work, daemon=True).start()

    def mend(self):
        """Returns how many connections were cut."""
        self._mended.set()
        return self.cuts

    def close(self):
        self.mend()
        self._listener.close()
        self._cut_all()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # It was closed.
            try:
                target = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            ends = (client, target)
            with self._lock:
                self._open.add(ends)
            is_cut = not self._mended.is_set() and random.random() < 0.25
            limit = random.randint(1, 8192) if is_cut else None
            for pair in (ends, ends[::-1]):
                arguments = (*pair, limit, ends)
                threading.Thread(target=self._copy, args=arguments, daemon=True).start()

    def _copy(self, source, sink, left, ends):
        try:
            while data := source.recv(4096):
                sink.sendall(data if left is None else data[:left])
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        self.cuts += 1
                        break
        except OSError:
            pass  # The other direction, or a cut, has ended it.
        self._end(ends)

    def _end(self, ends):
        with self._lock:
            self._open.discard(ends)
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It has ended already.

    def _cut_all(self):
        with self._lock:
            connections = list(self._open)
        for ends in connections:
            self._end(ends)
        return len(connections)

    def _cut_often(self):
        while not self._mended.wait(random.random() * 0.4):
            self.cuts += self._cut_all()


class Fake:
    """A server that answers with the next of the given functions; the last one stays."""

    def __init__(self, *steps):
        self.requests = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = {
                    "method": self.command,
                    "url": self.path,
                    "headers": headers,
                    "body": body,
                    "at": time.monotonic(),
                }
                outer.requests.append(request)
                self.close_connection = True
                steps[min(len(outer.requests), len(steps)) - 1](self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def reply(status, body, headers=None, kind="application/json"):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()

    def step(handler):
        handler.send_response(status)
        # The server closes it, and a client that does not know would use it again.
        handler.send_header("Connection", "close")
        sent = {"Content-Type": kind, "Content-Length": str(len(text)), **(headers or {})}
        for name, value in sent.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)

    return step


def html(status):
    return reply(status, b"<h1>It works!</h1>", kind="text/html")


def cut(text=None, kind="application/json"):
    """Breaks the connection, after some bytes of a body if there are any."""

    def step(handler):
        if text is not None:
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(text.encode())
            handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    return step


def stream(text, end=True):
    def step(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(text.encode())
        handler.wfile.flush()
        if not end:
            # Holds the stream open until the client leaves.
            try:
                handler.rfile.read(1)
            except OSError:
                pass

    return step


class Flood:
    """A body without an end that is sent as fast as it is read, at most 256 MiB."""

    def __init__(self, status):
        self._status = status
        self.sent = 0

    def __call__(self, handler):
        handler.send_response(self._status)
        handler.send_header("Connection", "close")
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        part = b" " * 2**20
        try:
            while self.sent < 256 * len(part):
                handler.wfile.write(part)
                self.sent += len(part)
        except OSError:
            pass  # The client has closed the connection.


def silence(handler):
    try:
        handler.rfile.read(1)
    except OSError:
        pass


def changed(id, resource, more):
    """The body of an event about a state of a resource."""
    data = {"object": {"id": resource, "object": "order", **more}}
    return json.dumps({"id": id, "type": "order.updated", "data": data})


def eventually(condition, what, deadline=20.0):
    """Waits for a condition, at most for the deadline."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {what}")
        time.sleep(0.01)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
