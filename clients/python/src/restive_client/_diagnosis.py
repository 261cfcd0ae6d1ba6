"""Finds out why no signature matches: tries the usual mistakes of receivers.

Only a request that the sender has signed matches one of them, so the result tells an attacker
nothing.
"""

from __future__ import annotations

import hmac
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from .webhook import Diagnosis, Family, SecretKey, Signed, from_base64, tag_of

#: The variants are computed for bodies up to this size: a refusal must stay cheap.
MAX_BYTES = 256 * 1024
#: A variant has at most this many times the characters of the body, and some more for small bodies.
#: Indents make ordinary bodies two or three times longer, but one that is nested deeply a thousand
#: times, because each of its lines begins with them.
MAX_GROWTH = 8
EXTRA_CHARS = 16 * 1024


def explain(
    family: Family, signed: Signed, body: bytes, keys: Sequence[SecretKey]
) -> tuple[Diagnosis, str]:
    def matches(secret: bytes | None, text: bytes) -> bool:
        if not secret:
            return False
        expected = tag_of(secret, signed.prefix, text)
        return any(hmac.compare_digest(expected, tag) for tag in signed.tags)

    for what, variant in _body_variants(body):
        for key in keys:
            if matches(key.decoded if family == "standard" else key.text, variant):
                return "body_reserialised", (
                    f"the signature fits the body {what}: the body was changed after it was "
                    "received. Verify the raw bytes, before anything parses them"
                )
    for key in keys:
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
    """One at a time: most are not needed."""
    if len(body) > MAX_BYTES:
        return
    texts = itertools.chain(_byte_changes(body), _layouts(body))
    yield from ((what, variant) for what, variant in texts if variant != body)


def _byte_changes(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "without the space around it", body.strip()
    yield "with a line end after it", body + b"\n"
    yield "without the byte order mark", body.removeprefix(b"\xef\xbb\xbf")


def _layouts(body: bytes) -> Iterator[tuple[str, bytes]]:
    limit = MAX_GROWTH * len(body) + EXTRA_CHARS
    try:
        value = json.loads(body)
        # Usually there are none.
        has_escapes = json.dumps(value) != json.dumps(value, ensure_ascii=False)
        for ascii in (False, True) if has_escapes else (False,):
            escaped = ", with non-ASCII characters escaped" if ascii else ""
            for what, options in _LAYOUTS:
                text = _written(value, limit, ensure_ascii=ascii, **options)
                if text is not None:
                    yield what + escaped, text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return  # Not JSON: there is nothing to write in another way.


_LAYOUTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("without spaces between its tokens", {"separators": (",", ":")}),
    ("with a space after each comma and colon", {}),
    ("indented by two", {"indent": 2}),
    ("indented by four", {"indent": 4}),
)


def _written(value: Any, limit: int, **options: Any) -> str | None:
    """The JSON text, or None if it is longer than the limit."""
    if "indent" not in options:
        text = json.dumps(value, **options)  # Faster than in parts, and grows little.
        return text if len(text) <= limit else None
    parts, length = [], 0
    for part in json.JSONEncoder(**options).iterencode(value):
        parts.append(part)
        length += len(part)
        if length > limit:
            return None
    return "".join(parts)


def _secret_variants(family: Family, key: SecretKey) -> Iterator[tuple[str, bytes | None]]:
    text = key.text.decode()
    bare = text.removeprefix("whsec_")
    yield "without whsec_", bare.encode()
    yield "with whsec_ before it", f"whsec_{bare}".encode()
    yield "decoded from base64", from_base64(bare.replace("-", "+").replace("_", "/"))
    if family == "standard":
        yield "as text", key.text
