"""Finds out why no signature matches: tries the usual mistakes of receivers.

Only a request that the sender has signed matches one of them, so the result tells an attacker
nothing.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Sequence

from .webhook import Diagnosis, Family, SecretKey, Signed, from_base64, tag_of

#: The variants are computed for bodies up to this size: a refusal must stay cheap.
MAX_BYTES = 256 * 1024


def explain(
    family: Family, signed: Signed, body: bytes, keys: Sequence[SecretKey]
) -> tuple[Diagnosis, str]:
    def matches(secret: bytes | None, text: bytes) -> bool:
        if not secret:
            return False
        expected = tag_of(secret, signed.prefix, text)
        return any(hmac.compare_digest(expected, tag) for tag in signed.tags)

    for key in keys:
        secret = key.decoded if family == "standard" else key.text
        for what, variant in _body_variants(body):
            if variant != body and matches(secret, variant):
                return "body_reserialised", (
                    f"the signature fits the body {what}: the body was changed after it was "
                    "received. Verify the raw bytes, before anything parses them"
                )
        for what, other in _secret_variants(family, key):
            if matches(other, body):
                return "secret_encoding", (
                    f"the signature fits the secret {what}: correct the setting"
                )
    return "wrong_secret", (
        "no signature fits the body and the secret: probably the secret of another endpoint or "
        "mode, or an old one"
    )


def _body_variants(body: bytes) -> Iterator[tuple[str, bytes]]:
    if len(body) > MAX_BYTES:
        return
    yield "without the space around it", body.strip()
    yield "with a line end after it", body + b"\n"
    yield "without the byte order mark", body.removeprefix(b"\xef\xbb\xbf")
    try:
        value = json.loads(body)
        for ascii in (False, True):
            escaped = ", with non-ASCII characters escaped" if ascii else ""
            for what, options in (
                ("without spaces between its tokens", {"separators": (",", ":")}),
                ("with a space after each comma and colon", {}),
                ("indented by two", {"indent": 2}),
                ("indented by four", {"indent": 4}),
            ):
                text = json.dumps(value, ensure_ascii=ascii, **options)
                yield what + escaped, text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return  # Not JSON: there is nothing to write in another way.


def _secret_variants(family: Family, key: SecretKey) -> Iterator[tuple[str, bytes | None]]:
    text = key.text.decode()
    bare = text.removeprefix("whsec_")
    yield "without whsec_", bare.encode()
    yield "with whsec_ before it", f"whsec_{bare}".encode()
    yield "decoded from base64", from_base64(bare.replace("-", "+").replace("_", "/"))
    if family == "standard":
        yield "as text", key.text
