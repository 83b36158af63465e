"""Vouchers: which roles the person has who sends an answer, according to the door that authenticated the request.

A voucher is ``<content>.<signature>``, both in Base64. It belongs to one answer to one question of one run. The door
signs it (`callboard.features.access.vouchers`), admission checks the signature, and the run reads the content.
"""

import base64
import binascii
from hashlib import sha256

import msgspec
from msgspec import Struct

from callboard.bus.commands import Answer
from callboard.lib.canonical_json import canonical

VOUCHER_CHARS_MAX = 8_192


class Voucher(Struct, frozen=True, array_like=True):
    """The content of a voucher; ``digest`` identifies the answer."""

    tenant: str
    run: str
    digest: str
    roles: list[str]


def digest_of(answer: Answer) -> str:
    """Return the digest of an answer without its voucher, and without the id of its request."""
    members = msgspec.to_builtins(msgspec.structs.replace(answer, voucher="", id=None))
    return sha256(canonical(members)).hexdigest()


def join_parts(content: bytes, signature: bytes) -> str:
    """Return the text of a voucher."""
    return f"{_text(content)}.{_text(signature)}"


def split_parts(text: str) -> tuple[bytes, bytes] | None:
    """Return the content and the signature of a voucher; None if the text is not one."""
    content, _, signature = text.partition(".")
    try:
        return (_bytes(content), _bytes(signature)) if len(text) <= VOUCHER_CHARS_MAX else None
    except (binascii.Error, ValueError):
        return None


def read_roles(answer: Answer) -> list[str]:
    """Return the roles in the voucher of an answer that has been admitted."""
    parts = split_parts(answer.voucher) if answer.voucher else None
    try:
        return msgspec.json.decode(parts[0], type=Voucher).roles if parts is not None else []
    except msgspec.DecodeError:
        return []


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
