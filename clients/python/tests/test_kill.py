"""Provider and receiver are killed, and the network between them is cut, at random while events
are created: the effect of each event happens exactly once, and none is missing after
reconciliation."""

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

from harness import KEY, KILLS, BrokenNetwork, Server, eventually, free_port
from restive_client import Client, RestiveError

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "receiver_process.py")


class ReceiverProcess:
    def __init__(self, *settings):
        self.settings = [str(setting) for setting in settings]
        self.start()

    def start(self):
        command = [sys.executable, PROGRAM, *self.settings]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if "listening" not in self.child.stdout.readline():
            raise AssertionError("the receiver did not start")

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


class Writer(threading.Thread):
    """Creates books until it is stopped; a request that fails is repeated with the same key."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.sent = 0
        self.stopped = False

    def run(self):
        while not self.stopped:
            body = {"title": f"Book {self.sent}", "author": "A"}
            key = str(uuid.uuid4())
            while True:
                try:
                    self.client.post("/v1/books", body, idempotency_key=key, timeout=5)
                    break
                except RestiveError:
                    time.sleep(0.05)  # waits for: the server to start again.
            self.sent += 1
            time.sleep(0.005)  # waits for: the next write, so that the log stays readable.


class Kills(unittest.TestCase):
    def exactly_once(self, kind):
        folder = tempfile.mkdtemp(prefix="restive-receiver-")
        with Server() as server, Client(server.url, KEY) as client:
            port = free_port()
            networks = [BrokenNetwork(port), BrokenNetwork(int(server.address.split(":")[1]))]
            for network in networks:
                self.addCleanup(network.close)
            hook, api = (f"http://127.0.0.1:{network.port}" for network in networks)
            endpoint = client.post(
                "/v1/webhook-endpoints",
                {
                    "url": f"{hook}/hook",
                    "enabled_events": ["book.created"],
                    "retry_schedule": [1, 1, 2],
                },
            )
            receiver = ReceiverProcess(port, folder, kind, api, KEY, endpoint["secret"])
            self.addCleanup(receiver.kill)
            writers = [Writer(client), Writer(client)]
            for writer in writers:
                writer.start()
            for kill in range(KILLS):
                # waits for: some events between two kills.
                time.sleep(0.1 + random.random() * 0.4)
                victims = [[receiver], [server], [receiver, server]][kill % 3]
                for victim in victims:
                    victim.kill()
                for victim in victims:
                    victim.start()
            for writer in writers:
                writer.stopped = True
            for writer in writers:
                writer.join(60)
            cuts = sum(network.mend() for network in networks)
            self.assertGreater(cuts, 0, "no connection was cut")
            events = client.list("/v1/events", {"type": "book.created", "limit": 100}).to_list()
            self.assertEqual(len(events), sum(writer.sent for writer in writers))
            db = sqlite3.connect(os.path.join(folder, "app.db"))
            self.addCleanup(db.close)

            def counts():
                query = "SELECT count(*), count(DISTINCT event) FROM effects"
                return db.execute(query).fetchone()

            eventually(lambda: counts()[1] >= len(events), "all effects", 60)
            self.assertEqual(counts(), (len(events), len(events)))
            found = {row[0] for row in db.execute("SELECT event FROM effects")}
            self.assertEqual(found, {event["id"] for event in events})
            counted = f"{KILLS} kills, {cuts} cuts, {len(events)} events"
            print(f"{kind}: {counted}, each effect once", flush=True)

    def test_each_effect_happens_exactly_once_across_kills_asgi(self):
        self.exactly_once("asgi")

    def test_each_effect_happens_exactly_once_across_kills_wsgi(self):
        self.exactly_once("wsgi")


if __name__ == "__main__":
    unittest.main()
