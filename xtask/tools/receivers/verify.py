"""A receiver of webhooks in Python, with the libraries that consumers use.

Reads one case per line of stdin, as JSON: family (stripe, standardwebhooks, svix or github), secret,
headers and body. Prints one line per case: `ok`, or `error: ` and what the library said.
"""

import hashlib
import hmac
import json
import sys

import standardwebhooks
import stripe
import svix


def github(secret, headers, body):
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(f"sha256={digest}", headers["x-hub-signature-256"]):
        raise ValueError("signatures differ")


FAMILIES = {
    "stripe": lambda secret, headers, body: stripe.Webhook.construct_event(
        body, headers["restive-signature"], secret
    ),
    "standardwebhooks": lambda secret, headers, body: standardwebhooks.Webhook(secret).verify(
        body, headers
    ),
    "svix": lambda secret, headers, body: svix.Webhook(secret).verify(body, headers),
    "github": github,
}


def verdict(line):
    case = json.loads(line)
    verify = FAMILIES[case["family"]]
    headers = {name.lower(): value for name, value in case["headers"].items()}
    try:
        verify(case["secret"], headers, case["body"].encode())
    except Exception as error:
        # Any exception of a library means that its user would not trust the request.
        return f"error: {type(error).__name__}: {error}".replace("\n", " ")
    return "ok"


for line in sys.stdin:
    print(verdict(line), flush=True)
