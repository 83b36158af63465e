"""Signing: signatures of requests as defined by *Standard Webhooks*, for senders and receivers."""

import base64
import binascii
import hmac
from hashlib import sha256

_WHSEC = "whsec_"


def signature(secret: str, id: str, time: str, body: bytes) -> str:
    """Return the HMAC-SHA256 of id, time and body in Base64, without the prefix with the version."""
    signed = b"%b.%b.%b" % (id.encode(), time.encode(), body)
    return base64.b64encode(hmac.digest(_key(secret), signed, sha256)).decode()


def _key(secret: str) -> bytes:
    """Return the bytes of a secret, which may have the form of Standard Webhooks (``whsec_`` and Base64)."""
    if not secret.startswith(_WHSEC):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_WHSEC), validate=True)
    except binascii.Error:
        return secret.encode()
