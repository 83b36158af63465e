"""Keys of users of NATS: Ed25519 keys in the text form of NATS (nkeys), and the credentials files that hold them.

A text is the base32 of the kind of key, the key, and a check sum. A seed begins with ``SU``, a public key with ``U``.
"""

import base64
import binascii
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

JWT_BEGIN, SEED_BEGIN = "BEGIN NATS USER JWT", "BEGIN USER NKEY SEED"
"""Words of the lines of a credentials file that precede its parts."""

_USER = bytes([20 << 3])
_SEED_OF_USER = bytes([18 << 3 | _USER[0] >> 5, (_USER[0] & 31) << 3])
_KEY_BYTES = 32
_SUM_BYTES = 2


def new_user() -> tuple[str, str]:
    """Create a user; return its seed, which is secret, and its public key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return _encode(_SEED_OF_USER + key.private_bytes_raw()), public_key(key)


def read_seed(seed: str) -> "Ed25519PrivateKey":
    """Return the key of a user's seed.

    :raises ValueError: if the text is not such a seed
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = seed.strip()
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    if len(raw) != len(_SEED_OF_USER) + _KEY_BYTES + _SUM_BYTES or _encode(raw[:-_SUM_BYTES]) != text:
        raise ValueError("the check sum does not fit")
    if not raw.startswith(_SEED_OF_USER):
        raise ValueError("this is not the seed of a user")
    return Ed25519PrivateKey.from_private_bytes(raw[len(_SEED_OF_USER) : -_SUM_BYTES])


def public_key(key: "Ed25519PrivateKey") -> str:
    """Return the text of a user's public key."""
    return _encode(_USER + key.public_key().public_bytes_raw())


def sign(key: "Ed25519PrivateKey", nonce: str) -> bytes:
    """Return the signature of a server's nonce, in base64."""
    return base64.b64encode(key.sign(nonce.encode()))


def read_credentials(file: str) -> tuple[str, str]:
    """Return the JWT and the seed of a credentials file.

    :raises ValueError: if a part is missing; the message is the line that the file lacks
    """
    lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    return _line_behind(lines, JWT_BEGIN), _line_behind(lines, SEED_BEGIN)


def _line_behind(lines: list[str], words: str) -> str:
    for line, following in pairwise(lines):
        if words in line:
            return following.strip()
    raise ValueError(words)


def _encode(raw: bytes) -> str:
    check_sum = binascii.crc_hqx(raw, 0).to_bytes(_SUM_BYTES, "little")
    return base64.b32encode(raw + check_sum).decode().rstrip("=")
