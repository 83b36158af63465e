"""Proofs: whether a request comes from whom a trigger expects, by a token or by a signature of its bytes.

Secrets are compared in a time that says nothing of them, and every one is tried. A signature with a time in it holds
for `WINDOW_S`; within that the sender's own id of the delivery makes one run of it, however often it comes.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from callboard.languages.triggers import Proof
from callboard.lib.signatures import signature

WINDOW_S = 300
"""How far the time in a signature may be from ours: what Slack and Standard Webhooks advise."""

TOKEN_PARAMETER = "token"
"""The parameter of the query that a token may stand in."""

TOKEN_HEADER = "x-callboard-token"
"""The header that a token may stand in, besides ``Authorization: Bearer``."""


class Sent(Struct, frozen=True):
    """A request as it came: names of ``headers`` in lower case, and the bytes that a signature is made of."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Unproven(Exception):
    """Raised where a request does not prove what it must; ``late`` says that it once would have."""

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


def prove(proof: Proof, sent: Sent, secrets: Sequence[str], now: float) -> None:
    """Check that a request was made by somebody who has one of the secrets.

    :raises Unproven: if it was not, or too long ago
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


def without_tokens(proof: Proof, sent: Sent) -> tuple[dict[str, str], dict[str, str]]:
    """Return headers and query without what is secret: they are recorded."""
    secret = {"authorization", "proxy-authorization", "cookie", TOKEN_HEADER}
    headers = {name: value for name, value in sent.headers.items() if name not in secret}
    hidden = {TOKEN_PARAMETER} if proof in ("query", "token") else set[str]()
    return headers, {name: value for name, value in sent.query.items() if name not in hidden}


def _prove_standard(sent: Sent, secrets: Sequence[str], now: float) -> None:
    """Check a signature as Standard Webhooks has it: of id, time and body; several may be given, apart by blanks."""
    id, time = sent.headers.get("webhook-id", ""), sent.headers.get("webhook-timestamp", "")
    made = [signature(secret, id, time, sent.body) for secret in secrets]
    given = sent.headers.get("webhook-signature", "").split()
    _one_of([one.removeprefix("v1,") for one in given if one.startswith("v1,")], made)
    if not id:
        raise Unproven("it has no webhook-id, by which it would be one run however often it comes")
    _timely(time, now)


def _in_header(sent: Sent) -> list[str]:
    kind, _, token = sent.headers.get("authorization", "").partition(" ")
    return [token.strip() if kind.lower() == "bearer" else "", sent.headers.get(TOKEN_HEADER, "")]


def _in_query(sent: Sent) -> list[str]:
    return [sent.query.get(TOKEN_PARAMETER, "")]


_TOKENS: Mapping[str, Callable[[Sent], list[str]]] = {
    "header": _in_header,
    "query": _in_query,
    "token": lambda sent: [*_in_header(sent), *_in_query(sent)],
}


def _hex(key: bytes, signed: bytes) -> str:
    return hmac.digest(key, signed, sha256).hex()


def _one_of(given: Sequence[str], expected: Sequence[str]) -> None:
    # All are compared, so that it takes no less time for the first.
    same = [hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected]
    if not any(same):
        raise Unproven("token or signature are missing, or wrong")


def _timely(time: str, now: float) -> None:
    if not time.isascii() or not time.isdigit() or abs(now - int(time[:18])) > WINDOW_S:
        raise Unproven(f"it was signed more than {WINDOW_S} s ago, or will be", late=True)
