"""Signatures of webhooks: signs, verifies, and explains why a request does not verify.

All forms are HMAC-SHA256; the key is the secret as text, or for Standard Webhooks its bytes.

=============  ================================  =======================
family         header                            signed text
=============  ================================  =======================
standard       ``webhook-signature: v1,<base64>``  ``<id>.<seconds>.<body>``
timestamped    ``t=<seconds>,v1=<hex>``          ``<seconds>.<body>``
plain          ``sha256=<hex>``                  ``<body>``
hex            ``<hex>``                         ``<body>``
=============  ================================  =======================
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Union

Family = Literal["standard", "timestamped", "plain", "hex"]
Reason = Literal["missing", "too_long", "malformed", "too_old", "too_new", "no_match"]
Diagnosis = Literal["wrong_secret", "body_reserialised", "secret_encoding"]
Headers = Union[Mapping[str, str], Iterable[tuple[str, str]]]

#: Seconds that a timestamp may differ from the clock, in both directions.
TOLERANCE_SECONDS = 300
#: 16 signatures need some 1,200 bytes.
MAX_HEADER_BYTES = 4096
#: A rotation has two. The others are not looked at.
MAX_SIGNATURES = 16
#: The specification asks for 24 to 64 bytes, but the provider decides: examples have 18.
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 64


class SignatureError(Exception):
    """The request is not signed with any of the secrets. Process nothing."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        family: Family,
        skew_seconds: int | None = None,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.family = family
        #: For ``too_old`` and ``too_new``.
        self.skew_seconds = skew_seconds
        #: For ``no_match``: what is probably wrong, if it was looked for.
        self.diagnosis = diagnosis


@dataclass(frozen=True)
class Verified:
    family: Family
    #: Unix seconds of the signature, if the family has them.
    timestamp: int | None = None
    #: The signed id of Standard Webhooks.
    id: str | None = None


@dataclass(frozen=True)
class SecretKey:
    """A secret, ready for each family."""

    text: bytes
    #: None if the secret is not base64: then Standard Webhooks cannot use it.
    decoded: bytes | None


@dataclass(frozen=True)
class Signed:
    """A request taken apart: the text before the body that is signed, and the signatures."""

    prefix: bytes
    tags: list[bytes]
    seconds: str | None = None
    id: str | None = None


def verify(
    headers: Headers,
    body: bytes | str,
    secrets: str | Sequence[str],
    *,
    tolerance_seconds: int = TOLERANCE_SECONDS,
    families: Sequence[Family] = ("standard", "timestamped"),
    header_names: Mapping[str, str] | None = None,
    diagnose: Callable[[], bool] | None = None,
    now: float | None = None,
) -> Verified:
    """Verifies the body as it was received: parse it afterwards. Raises ``SignatureError``.

    ``families``: the first whose signature header is there counts. ``plain`` and ``hex`` have no
    timestamp, so a recorded request verifies for ever; they must be named explicitly.
    ``header_names``: the names of the headers of families other than standard.
    ``diagnose``: asked if no signature matches, whether to find out why. That costs as much as to
    verify up to sixty such bodies, and anybody can cause it. Default: always; a ``Receiver`` once a
    second.
    """
    keys = parse_secrets(secrets)
    if not families:
        raise ValueError("no family of signatures is accepted")
    names = header_names or {}
    found = _lookup(headers, {one: _names_of(one, names) for one in families})
    raw = body.encode() if isinstance(body, str) else bytes(body)
    # Not the next one after a failure: who can add a header must not choose the family.
    present = (one for one in families if any(name in found for name in _signatures(one, names)))
    family = next(present, families[-1])
    signed = _READERS[family](found, names)
    if signed.seconds is not None:
        _check_time(signed.seconds, family, tolerance_seconds, now)
    if not _has_match(family, signed, raw, keys):
        raise _no_match(family, signed, raw, keys, diagnose)
    seconds = None if signed.seconds is None else int(signed.seconds)
    return Verified(family, seconds, signed.id)


def tag_of(key: bytes, *parts: bytes) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(part)
    return mac.digest()


def _has_match(family: Family, signed: Signed, body: bytes, keys: Sequence[SecretKey]) -> bool:
    matched = False
    for key in keys:
        secret = key.decoded if family == "standard" else key.text
        if secret is None:
            continue
        expected = tag_of(secret, signed.prefix, body)
        # All pairs are compared, so that the time does not show which one matches.
        for tag in signed.tags:
            matched |= hmac.compare_digest(expected, tag)
    return matched


def _no_match(
    family: Family,
    signed: Signed,
    body: bytes,
    keys: Sequence[SecretKey],
    diagnose: Callable[[], bool] | None,
) -> SignatureError:
    if diagnose and not diagnose():
        return SignatureError("no_match", "no signature fits the body and the secret", family)
    from ._diagnosis import explain

    diagnosis, message = explain(family, signed, body, keys)
    return SignatureError("no_match", message, family, None, diagnosis)


#: The headers of Standard Webhooks, after ``webhook-`` or ``svix-``.
_STANDARD_PARTS = ("id", "timestamp", "signature")
#: Where the signature of a family is, unless the caller names the header. The first counts.
_SIGNATURES: dict[Family, list[str]] = {
    "standard": ["webhook-signature", "svix-signature"],
    "timestamped": ["restive-signature", "stripe-signature"],
    "plain": ["x-hub-signature-256"],
    "hex": ["x-signature"],
}


def _signatures(family: Family, names: Mapping[str, str]) -> list[str]:
    own = names.get(family, "") if family != "standard" else ""
    return [own.lower()] if own else _SIGNATURES[family]


def _names_of(family: Family, names: Mapping[str, str]) -> list[str]:
    """The headers that the family reads."""
    if family != "standard":
        return _signatures(family, names)
    return [f"{who}-{part}" for who in ("webhook", "svix") for part in _STANDARD_PARTS]


def _signature(headers: Mapping[str, str], family: Family, names: Mapping[str, str]) -> str:
    found = (headers[name] for name in _signatures(family, names) if name in headers)
    return _bounded(next(found, None), "signature", family)


def _standard(headers: Mapping[str, str], _: Mapping[str, str]) -> Signed:
    is_svix = "webhook-signature" not in headers and "svix-signature" in headers
    who = "svix" if is_svix else "webhook"
    id, seconds, signature = (
        _bounded(headers.get(f"{who}-{part}"), part, "standard") for part in _STANDARD_PARTS
    )
    if id == "" or "." in id:
        raise SignatureError("malformed", "the id must have letters and no dot", "standard")
    tags: list[bytes] = []
    for item in signature.split(" "):
        version, comma, value = item.partition(",")
        if not comma:
            raise _malformed("standard", "an item without a comma")
        if version != "v1" or len(tags) >= MAX_SIGNATURES:
            continue
        tag = from_base64(value)
        if tag is None or len(tag) != 32:
            raise _malformed("standard", "a v1 that is not 32 bytes in base64")
        tags.append(tag)
    if not tags:
        raise _malformed("standard", "no v1")
    return Signed(_bytes(f"{id}.{seconds}."), tags, seconds, id)


def _timestamped(headers: Mapping[str, str], names: Mapping[str, str]) -> Signed:
    header = _signature(headers, "timestamped", names)
    seconds: str | None = None
    tags: list[bytes] = []
    for item in header.split(","):
        scheme, equals, value = item.partition("=")
        if not equals:
            raise _malformed("timestamped", "an item without =")
        # With a space: some servers join two headers with a comma and a space.
        if scheme.strip() == "t" and seconds is not None:
            raise _malformed("timestamped", "two times")
        if scheme == "t":
            seconds = value
        elif scheme == "v1" and len(tags) < MAX_SIGNATURES:
            tag = from_hex(value)
            if tag is None:
                raise _malformed("timestamped", "a v1 that is not 64 hex digits")
            tags.append(tag)
    if seconds is None:
        raise _malformed("timestamped", "no t=")
    if not tags:
        raise _malformed("timestamped", "no v1=")
    return Signed(_bytes(f"{seconds}."), tags, seconds)


def _plain(headers: Mapping[str, str], names: Mapping[str, str]) -> Signed:
    text = _signature(headers, "plain", names)
    tag = from_hex(text[7:]) if text.startswith("sha256=") else None
    if tag is None:
        message = "the signature is not sha256= and 64 hex digits"
        raise SignatureError("malformed", message, "plain")
    return Signed(b"", [tag])


def _hex(headers: Mapping[str, str], names: Mapping[str, str]) -> Signed:
    tag = from_hex(_signature(headers, "hex", names))
    if tag is None:
        raise SignatureError("malformed", "the signature is not 64 hex digits", "hex")
    return Signed(b"", [tag])


_READERS = {"standard": _standard, "timestamped": _timestamped, "plain": _plain, "hex": _hex}


def _bounded(value: str | None, part: str, family: Family) -> str:
    if value is None:
        raise SignatureError("missing", f"the {part} header is missing", family)
    if len(_bytes(value)) > MAX_HEADER_BYTES:
        message = f"the {part} header is longer than {MAX_HEADER_BYTES} bytes"
        raise SignatureError("too_long", message, family)
    return value


def _malformed(family: Family, what: str) -> SignatureError:
    return SignatureError("malformed", f"the signature header has {what}", family)


def _check_time(seconds: str, family: Family, tolerance: int, now: float | None) -> None:
    # Digits alone: the signed text has the characters of the header.
    if not re.fullmatch(r"[0-9]{1,19}", seconds) or int(seconds) > 2**63 - 1:
        message = "the timestamp is not a number of seconds"
        raise SignatureError("malformed", message, family)
    here = int(time.time() if now is None else now)
    skew = abs(here - int(seconds))
    if skew <= tolerance:
        return
    if int(seconds) < here:
        message = (
            f"the timestamp is too old, by the clock here {skew} s ago: an old request sent again, "
            "or a wrong clock"
        )
        raise SignatureError("too_old", message, family, skew)
    message = (
        f"the timestamp is too new, by the clock here {skew} s ahead: one of the clocks is wrong"
    )
    raise SignatureError("too_new", message, family, skew)


def _lookup(headers: Headers, read: Mapping[Family, list[str]]) -> dict[str, str]:
    """Header names are not case-sensitive. None of those that are read may come twice."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        if name in found:
            for family, names in read.items():
                if name in names:
                    message = f"the header {name} comes twice"
                    raise SignatureError("malformed", message, family)
        found[name] = value
    return found


def parse_secrets(secrets: str | Sequence[str]) -> list[SecretKey]:
    """Raises ``ValueError`` if a secret cannot be one; the message does not contain it."""
    texts = [secrets] if isinstance(secrets, str) else list(secrets)
    if not texts:
        raise ValueError("no secret: nothing could be verified")
    keys = []
    for text in texts:
        if not isinstance(text, str) or text == "":
            raise ValueError("a secret is empty")
        if text != text.strip():
            raise ValueError("a secret has space around it: remove it")
        decoded = None
        if text.startswith("whsec_"):
            decoded = from_base64(text[6:])
            if decoded is None:
                raise ValueError("a secret is not standard base64 after whsec_")
            if not MIN_SECRET_BYTES <= len(decoded) <= MAX_SECRET_BYTES:
                allowed = f"{MIN_SECRET_BYTES} to {MAX_SECRET_BYTES}"
                raise ValueError(f"a secret has {len(decoded)} bytes, {allowed} are allowed")
        keys.append(SecretKey(text.encode(), decoded))
    return keys


def sign(
    body: bytes | str, secrets: str | Sequence[str], *, id: str, timestamp: int | None = None
) -> dict[str, str]:
    """The headers of a signed request, for tests and for senders. The newest secret is first."""
    if id == "" or "." in id:
        raise ValueError("the id must have letters and no dot")
    seconds = int(time.time()) if timestamp is None else timestamp
    raw = body.encode() if isinstance(body, str) else bytes(body)
    keys = parse_secrets(secrets)
    timestamped = f"t={seconds}"
    standard = []
    for key in keys:
        timestamped += f",v1={tag_of(key.text, f'{seconds}.'.encode(), raw).hex()}"
        if key.decoded is not None:
            tag = tag_of(key.decoded, f"{id}.{seconds}.".encode(), raw)
            standard.append(f"v1,{base64.b64encode(tag).decode()}")
    headers = {
        "Restive-Signature": timestamped,
        "X-Hub-Signature-256": f"sha256={tag_of(keys[0].text, raw).hex()}",
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
    }
    if standard:
        headers["webhook-signature"] = " ".join(standard)
    return headers


def from_hex(text: str) -> bytes | None:
    """32 bytes from 64 hex digits, in both cases."""
    return bytes.fromhex(text) if re.fullmatch(r"[0-9a-fA-F]{64}", text) else None


def from_base64(text: str) -> bytes | None:
    """The standard alphabet, with or without padding."""
    if not re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text):
        return None
    bare = text.rstrip("=")
    padding = -len(bare) % 4
    if padding == 3 or len(text) - len(bare) not in (0, padding):
        return None
    try:
        decoded = base64.b64decode(bare + "=" * padding, validate=True)
    except (binascii.Error, ValueError):
        return None
    # Bits after the last byte must be zero: otherwise several texts would mean the same bytes.
    return decoded if base64.b64encode(decoded).decode().rstrip("=") == bare else None


def _bytes(text: str) -> bytes:
    """Servers give header values as text in which each byte is one character, or as UTF-8."""
    return text.encode("utf-8", "surrogateescape")
