"""The vectors that all languages share."""

import base64
import json
import os
import unittest
from pathlib import Path

from restive_client.receiver import Receiver, SqliteInbox
from restive_client.webhook import SignatureError, sign, verify

VECTORS = json.loads(Path(os.environ["RESTIVE_VECTORS"]).read_text(encoding="utf-8"))


def body_of(vector):
    return base64.b64decode(vector["body_base64"]) if "body_base64" in vector else vector["body"]


def outcome(vector):
    try:
        return verify(
            vector["headers"],
            body_of(vector),
            vector["secrets"],
            families=[vector["family"]],
            now=vector["now"],
            tolerance_seconds=vector["tolerance"],
        )
    except SignatureError as error:
        return error


class Vectors(unittest.TestCase):
    def test_every_vector_is_judged_as_expected(self):
        for vector in VECTORS["verify"]:
            with self.subTest(vector["name"]):
                found = outcome(vector)
                if vector["expect"] == "ok":
                    self.assertEqual(found.family, vector["family"])
                    continue
                self.assertIsInstance(found, SignatureError)
                self.assertEqual(found.reason, vector["expect"], str(found))
                self.assertEqual(found.skew_seconds, vector.get("skew_seconds"))
                if "diagnosis" in vector:
                    self.assertEqual(found.diagnosis, vector["diagnosis"], str(found))
                for secret in vector["secrets"]:
                    self.assertNotIn(secret, str(found))

    def test_signatures_are_the_same_bytes_in_all_languages(self):
        for vector in VECTORS["sign"]:
            id, timestamp = vector["id"], vector["timestamp"]
            signed = sign(vector["body"], vector["secrets"], id=id, timestamp=timestamp)
            self.assertEqual(signed, vector["headers"])

    def test_an_event_has_the_same_id_in_all_languages(self):
        for vector in VECTORS["event_ids"]:
            with self.subTest(vector["name"]):
                store = SqliteInbox(":memory:")
                # Of two families that verify, the first counts.
                standard = vector["family"] == "standard"
                families = ["standard", "timestamped"] if standard else [vector["family"]]
                receiver = Receiver(
                    vector["secrets"], store, families=families, tolerance_seconds=10**10
                )
                answer = receiver.accept("POST", vector["headers"], vector["body"].encode())
                stored = store.claim(10.0**10, 1)
                store.close()
                id = vector["id"]
                found = (answer.status, stored.id if stored else None)
                self.assertEqual(found, (400 if id is None else 200, id))
                if id is None:
                    self.assertIn(b"invalid_id", answer.body)

    def test_a_secret_that_cannot_be_one_is_refused_and_not_shown(self):
        for refused in VECTORS["refused_secrets"]:
            with self.subTest(refused["why"]), self.assertRaises(ValueError) as raised:
                verify({}, "{}", refused["secret"])
            shown = refused["secret"].strip()[6:]
            self.assertFalse(shown and shown in str(raised.exception))
        with self.assertRaises(ValueError):
            verify({}, "{}", [])

    def test_a_family_without_a_timestamp_is_accepted_only_if_it_is_named(self):
        vector = VECTORS["sign"][0]
        name = "X-Hub-Signature-256"
        headers = {name: vector["headers"][name]}
        with self.assertRaises(SignatureError) as raised:
            verify(headers, vector["body"], vector["secrets"])
        self.assertEqual(raised.exception.reason, "missing")
        verify(headers, vector["body"], vector["secrets"], families=["plain"])

    def test_every_changed_bit_of_the_body_is_noticed(self):
        vector = VECTORS["sign"][0]
        body = vector["body"].encode()
        for bit in range(0, len(body) * 8, 7):
            changed = bytearray(body)
            changed[bit >> 3] ^= 1 << (bit & 7)
            with self.assertRaises(SignatureError) as raised:
                verify(
                    vector["headers"], bytes(changed), vector["secrets"], now=vector["timestamp"]
                )
            self.assertEqual(raised.exception.reason, "no_match")


if __name__ == "__main__":
    unittest.main()
