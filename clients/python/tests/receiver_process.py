"""A receiver as a process of its own, for tests that kill it:

    receiver_process.py PORT FOLDER KIND URL KEY SECRET

KIND is ``asgi`` or ``wsgi``. Each event inserts one row into FOLDER/app.db. The table has no unique
column, so an effect that happened twice would be seen.
"""

import os
import sqlite3
import sys
import threading
import time
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn
from restive_client import Client, RestiveError
from restive_client.receiver import (
    Receiver,
    SqliteInbox,
    Worker,
    apply_once,
    asgi_app,
    reconcile,
    wsgi_app,
)

port, folder, kind, url, key, secret = sys.argv[1:]
store = SqliteInbox(os.path.join(folder, "inbox.db"))
local = threading.local()


def database():
    if not hasattr(local, "db"):
        local.db = sqlite3.connect(os.path.join(folder, "app.db"), timeout=10, isolation_level=None)
        local.db.execute("PRAGMA journal_mode = WAL")
        local.db.execute("CREATE TABLE IF NOT EXISTS effects (event TEXT)")
    return local.db


def handle(event, _):
    insert = "INSERT INTO effects VALUES (?)"
    apply_once(database(), event["id"], lambda db: db.execute(insert, (event["id"],)))


def reconcile_often():
    with Client(url, key) as client:
        while True:
            try:
                reconcile(client, store, types=["book.created"])
            except RestiveError:
                pass  # The provider is killed too.
            # waits for: the next reconciliation.
            time.sleep(2)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


database()
Worker(store, handle, concurrency=2).start()
threading.Thread(target=reconcile_often, daemon=True).start()
receiver = Receiver(secret, store)
if kind == "wsgi":
    server = make_server("127.0.0.1", int(port), wsgi_app(receiver), Threaded, Quiet)
    print("listening", flush=True)
    server.serve_forever()
else:
    print("listening", flush=True)
    uvicorn.run(asgi_app(receiver), host="127.0.0.1", port=int(port), log_level="critical")
