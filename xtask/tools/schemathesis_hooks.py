"""Rules for schemathesis that an OpenAPI schema cannot express. Every check stays on; a rule here
names the one error code that is right although the request matches the document. Also values that
no generator would guess, so that every operation is tested with valid data too."""

import atexit
import collections
import itertools
import re

import requests
import schemathesis
from schemathesis.generation.meta import TestPhase

# Code or message of the refusal -> why a request that matches the document may be refused with it.
BEYOND_SCHEMA = {
    "`q` must have at least one word.": "no pattern can list all letters",
    "precondition_failed": "whether an ETag is current depends on the record",
    "cursor_invalid": "cursors are signed, and bound to the list that gave them",
    "bad_reference": "whether a referenced record exists depends on the data",
    "unsuitable": "no pattern can describe usable URLs, expressions, headers and secrets, "
    "nor that one time is later than another",
    "payment_method_missing": "a rule of the bookshop: the record or the request must name one",
    "card_declined": "a rule of the bookshop: this card is always declined",
}

# How many cases of one operation may be refused with each of these, of some 200 cases: about half
# more than usual, since the numbers hardly change between runs (the seed is fixed).
MOST_DROPPED = {
    "`q` must have at least one word.": 10,
    "precondition_failed": 25,
    "cursor_invalid": 35,
    "bad_reference": 25,
    "unsuitable": 10,
    "payment_method_missing": 20,
    "card_declined": 10,
}
# Operations whose bodies have many such fields.
MORE_DROPPED = {
    ("POST /v1/webhook-endpoints", "unsuitable"): 60,
    ("PATCH /v1/webhook-endpoints/{webhook_endpoint_id}", "unsuitable"): 70,
    # A time in the past.
    ("POST /v1/keys", "unsuitable"): 50,
    ("PATCH /v1/keys/{key_id}", "unsuitable"): 50,
}
# Every dropped failure needs a reason and a maximum.
assert BEYOND_SCHEMA.keys() == MOST_DROPPED.keys() and all(BEYOND_SCHEMA.values())
assert all(reason in BEYOND_SCHEMA for _, reason in MORE_DROPPED)
# Operation and reason -> ids of the cases that were dropped.
dropped = collections.defaultdict(set)

KEY = re.compile(r'([!-~]{1,200}?)("?)')
POSITION = re.compile(r"(?:[0-9A-Fa-f]{8}\.)?[0-9]+")
count = itertools.count()
# Cases of each operation so far that must be accepted.
turns = collections.defaultdict(itertools.count)

# Valid values for the fields of an endpoint, which no generator would guess. Nothing listens on the
# port: connections are refused at once, so a ping gets its response at once too.
USABLE = {
    "url": "http://127.0.0.1:9/hook",
    "filter": "event.type.startsWith('book.')",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "headers": {"X-Shop": "bookshop"},
}
# Fields that must name a record, and its kind. A random id would always be refused.
REFERENCES = {
    ("/v1/orders", "book"): "book",
    ("/v1/orders/{order_id}", "book"): "book",
    ("/v1/replays", "endpoint"): "webhook_endpoint",
    ("/v1/erasures", "resource"): "book",
}
MADE = {
    "book": ("/v1/books", {"title": "Dune", "author": "Frank Herbert"}),
    "webhook_endpoint": ("/v1/webhook-endpoints", {"url": USABLE["url"]}),
    "message": ("/v1/messages", {"text": "hello"}),
}
# Existing records: kind -> id -> status, newest last. Enough that deletions leave some.
MOST_KNOWN = 50
known = collections.defaultdict(dict)
# The part of an action's description that lists its states.
POSSIBLE = re.compile(r"Possible while it is ((?:`\w+`(?: or )?)+)")


@schemathesis.hook
def before_call(context, case, kwargs):
    # Checked before the case is changed. Cases that must be refused stay unchanged.
    meta = case.meta
    if meta and meta.generation.mode.is_positive:
        turn = next(turns[case.operation.label])
        case.body = without_nul(case.body)
        make_usable(case, turn)
        if meta.phase.name != TestPhase.STATEFUL:
            point_at_known(case, turn)
    if case.path == "/api/messages":
        make_prompt(case)
    # A key belongs to one request, as its description says. Generated from the pattern it would
    # often be the same short text, and every second write would be refused.
    key = (case.headers or {}).get("Idempotency-Key")
    match = KEY.fullmatch(key) if isinstance(key, str) else None
    if match:
        text, quote = match.groups()
        case.headers["Idempotency-Key"] = f"{text}-{next(count)}{quote}"
    # The two styles of pagination exclude each other, which OpenAPI cannot express.
    # A case that must be refused keeps both: one of them may be what is wrong with it.
    is_positive = meta is None or meta.generation.mode.is_positive
    if is_positive and case.query and "after" in case.query and "page" in case.query:
        del case.query["after"]
    # Each field at most once, in one direction.
    sort = (case.query or {}).get("sort")
    if isinstance(sort, (list, str)):
        keys = sort.split(",") if isinstance(sort, str) else sort
        once = list({str(key).lstrip("-"): key for key in keys}.values())
        case.query["sort"] = ",".join(once) if isinstance(sort, str) else once
    # If the generator finds no value for the pattern, it sends an empty one and calls it valid.
    if (case.headers or {}).get("If-Match") == "":
        del case.headers["If-Match"]


def without_nul(value):
    """No text may contain NUL, which a schema of free objects cannot express."""
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(name): without_nul(item) for name, item in value.items()}
    return value


def make_prompt(case):
    """Makes a long poll respond at once: there must be a record after its position, which is the
    beginning by default. Otherwise the judge would wait for a message that is never sent."""
    query = case.query or {}
    if query.get("wait") in ("true", "1"):
        if POSITION.fullmatch(str(query.get("since"))):
            del query["since"]
        existing(case, "message")
    # Tokens are signed: a random one is refused, which would hide the rest of the request.
    query.pop("access_token", None)


def make_usable(case, turn):
    """Sets fields to usable values. Every fourth case keeps the generated values, to test that they
    are refused properly."""
    if not isinstance(case.body, dict) or turn % 4 == 3:
        return
    for (path, field), kind in REFERENCES.items():
        if case.path == path and isinstance(case.body.get(field), str):
            case.body[field] = existing(case, kind)
    if case.path.startswith("/v1/webhook-endpoints"):
        for field, value in USABLE.items():
            if isinstance(case.body.get(field), type(value)):
                case.body[field] = value


def existing(case, kind):
    """The id of a record that a body can name; creates one if there is none yet."""
    if not known[kind]:
        schema = case.operation.schema
        path, body = MADE[kind]
        url = f"{schema.get_base_url().rstrip('/')}{path}"
        headers = schema.config.headers_for(operation=case.operation)
        made = requests.post(url, json=body, headers=headers, timeout=10)
        made.raise_for_status()
        remember(made.json())
    return list(known[kind])[-1]


def point_at_known(case, turn):
    """Puts the id of an existing record into the path of every other case. Not in stateful phases:
    there the ids are those of earlier cases."""
    possible = POSSIBLE.search(case.operation.definition.raw.get("description", ""))
    for name in case.path_parameters if turn % 2 else []:
        records = known[name.removesuffix("_id")]
        ids = [id for id, status in records.items() if not possible or f"`{status}`" in possible[1]]
        if case.method.upper() == "DELETE":
            # The oldest, and never the last one, because other cases need it.
            ids = ids[:1] if len(ids) > 1 else []
        if ids:
            case.path_parameters[name] = str(ids[turn // 2 % len(ids)])


@schemathesis.hook
def after_call(context, case, response):
    try:
        answer = response.json()
    except ValueError:
        return
    if not isinstance(answer, dict) or response.status_code >= 300:
        return
    listed = answer.get("data")
    for record in [answer, *(listed if isinstance(listed, list) else [])]:
        if "id" in record and "object" in record:
            remember(record)


def remember(record):
    records = known[record["object"]]
    before = records.pop(record["id"], None)
    if "deleted" not in record:
        records[record["id"]] = record.get("status", before)
    if len(records) > MOST_KNOWN:
        del records[next(iter(records))]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Drops a failure that says "this request matches the document and was refused" if the refusal
    is one of BEYOND_SCHEMA, but only up to a maximum: an operation that refuses nearly everything
    with such a code is not tested, and must not pass."""
    # The key of the command line was sent, although the case leaves it out.
    if failure.code == "ST203" and "'Authorization'" in failure.message:
        return "Authorization" not in response.request.headers
    # A record has all its members unless `fields` asks for some, which a schema cannot express.
    if failure.code == "ST108" and "is a required property" in failure.message:
        return "fields" not in (case.query or {})
    # A case that is called invalid, but is described as a valid one by its generator.
    if failure.code == "ST201" and "Invalid component: positive test case" in failure.message:
        return False
    if failure.code != "ST202":
        return True
    try:
        error = response.json()["error"]
        said = [(each["code"], each["message"]) for each in error["errors"]]
        said = said or [(error["code"], error["message"])]
    except (ValueError, KeyError, TypeError):
        return True
    reasons = set()
    for code, message in said:
        reason = next((each for each in (code, message) if each in BEYOND_SCHEMA), None)
        if reason is None:
            return True
        reasons.add(reason)
    label = case.operation.label
    over = False
    for reason in reasons:
        cases = dropped[label, reason]
        cases.add(case.id)
        over |= len(cases) > most_dropped(label, reason)
    return over


def most_dropped(label, reason):
    return MORE_DROPPED.get((label, reason), MOST_DROPPED[reason])


@atexit.register
def report_dropped():
    for (label, reason), cases in sorted(dropped.items()):
        most = most_dropped(label, reason)
        print(f"    dropped {len(cases)} of at most {most}: {label}: {reason}")
