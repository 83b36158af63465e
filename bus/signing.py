"""Signing: the signature of a request as *Standard Webhooks* has it, for those who send and those who take in."""

import base64
import binascii
import hmac
from hashlib import sha256

_WHSEC = "whsec_"


def signature(secret: str, id: str, time: str, body: bytes) -> str:
    """Return the Base64 form of the HMAC-SHA256 of id, time and body, without its version."""
    signed = b"%b.%b.%b" % (id.encode(), time.encode(), body)
    return base64.b64encode(hmac.digest(_key(secret), signed, sha256)).decode()


def _key(secret: str) -> bytes:
    """The bytes of a secret, which may be written as Standard Webhooks writes one."""
    if not secret.startswith(_WHSEC):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_WHSEC), validate=True)
    except binascii.Error:
        return secret.encode()
