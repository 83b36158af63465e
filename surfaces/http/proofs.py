"""Checks that a request comes from the sender that a trigger expects, by a token or by a signature of its bytes.

Secrets are compared in constant time, and every one is tried. A signature that contains a time is valid for `WINDOW_S`.
If the sender repeats a delivery within that time, its id of the delivery ensures that only one run is started.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from callboard.languages.triggers import Proof
from callboard.lib.signatures import signature

WINDOW_S = 300
"""Largest difference between the time in a signature and now, as Slack and Standard Webhooks recommend."""

TOKEN_PARAMETER = "token"
"""The query parameter that may contain a token."""

TOKEN_HEADER = "x-callboard-token"
"""The header that may contain a token, besides ``Authorization: Bearer``."""


class ReceivedRequest(Struct, frozen=True):
    """A received request: ``headers`` by lower-case name, the query, and the bytes of the body that are signed."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Unproven(Exception):
    """Raised if a request lacks a valid token or signature; ``late`` says that the signature has expired."""

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


def prove(proof: Proof, sent: ReceivedRequest, secrets: Sequence[str], now: float) -> None:
    """Check that the sender of a request has one of the secrets.

    :raises Unproven: if it does not prove that, or was signed too long ago
    """
    if proof in _TOKENS:
        _one_of(_TOKENS[proof](sent), secrets)
    elif proof == "github":
        given = sent.headers.get("x-hub-signature-256", "")
        _one_of([given], [f"sha256={_hex(secret.encode(), sent.body)}" for secret in secrets])
    elif proof == "slack":
        time = sent.headers.get("x-slack-request-timestamp", "")
        signed = b"v0:%b:%b" % (time.encode(), sent.body)
        given = sent.headers.get("x-slack-signature", "")
        _one_of([given], [f"v0={_hex(secret.encode(), signed)}" for secret in secrets])
        _timely(time, now)
    elif proof == "signature":
        _prove_standard(sent, secrets, now)


def without_tokens(proof: Proof, sent: ReceivedRequest) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and query of a request without secrets, because they are recorded."""
    secret = {"authorization", "proxy-authorization", "cookie", TOKEN_HEADER}
    headers = {name: value for name, value in sent.headers.items() if name not in secret}
    hidden = {TOKEN_PARAMETER} if proof in ("query", "token") else set[str]()
    return headers, {name: value for name, value in sent.query.items() if name not in hidden}


def _prove_standard(sent: ReceivedRequest, secrets: Sequence[str], now: float) -> None:
    """Check a signature of Standard Webhooks, over id, time and body. A request may have several of them."""
    id, time = sent.headers.get("webhook-id", ""), sent.headers.get("webhook-timestamp", "")
    made = [signature(secret, id, time, sent.body) for secret in secrets]
    given = sent.headers.get("webhook-signature", "").split()
    _one_of([one.removeprefix("v1,") for one in given if one.startswith("v1,")], made)
    if not id:
        raise Unproven("the header webhook-id is missing; it keeps a repeated delivery from starting another run")
    _timely(time, now)


def _in_header(sent: ReceivedRequest) -> list[str]:
    kind, _, token = sent.headers.get("authorization", "").partition(" ")
    return [token.strip() if kind.lower() == "bearer" else "", sent.headers.get(TOKEN_HEADER, "")]


def _in_query(sent: ReceivedRequest) -> list[str]:
    return [sent.query.get(TOKEN_PARAMETER, "")]


_TOKENS: Mapping[str, Callable[[ReceivedRequest], list[str]]] = {
    "header": _in_header,
    "query": _in_query,
    "token": lambda sent: [*_in_header(sent), *_in_query(sent)],
}


def _hex(key: bytes, signed: bytes) -> str:
    return hmac.digest(key, signed, sha256).hex()


def _one_of(given: Sequence[str], expected: Sequence[str]) -> None:
    # All pairs are compared, so that the time does not reveal which one matches.
    same = [hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected]
    if not any(same):
        raise Unproven("the token or signature is missing or wrong")


def _timely(time: str, now: float) -> None:
    if not time.isascii() or not time.isdigit() or abs(now - int(time[:18])) > WINDOW_S:
        raise Unproven(f"the time of the signature is more than {WINDOW_S} s before or after now", late=True)
