"""The keyring: the keys that credentials are encrypted with, the first for what is new, the others for what is older.

AES-256-GCM, a nonce of its own for each encryption. What a secret belongs to is bound in, so that one that was moved to
another place in the store cannot be read there. A key is known by the beginning of its digest.
"""

import base64
import binascii
import secrets
from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

from callboard.bus.errors import OperatorError
from callboard.lib.private_files import write_own
from callboard.runtime.settings.config import Config

KEY_BYTES = 32
NONCE_BYTES = 12

FILE_NAME = "credentials.key"
"""Below the data directory, where no other key is configured."""


class KeyringUnusable(OperatorError):
    """The keys of credentials are not there, or are none."""

    def __init__(self, message: str, where: str = "") -> None:
        remedy = "Set CALLBOARD_CREDENTIALS_KEY, or credentials_key_file, to keys of `callboard credentials key`."
        super().__init__("credentials.key", message, where, remedy)


class Sealed(Struct, frozen=True):
    """Something encrypted: with which key, with which nonce, and what came of it (both in Base64)."""

    key: str
    nonce: str
    text: str


class Keyring:
    """Encrypts with the first of its keys, and decrypts with whichever it was."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        # Imported where there are keys: most workers have none.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._keys = {_id(key): AESGCM(key) for key in keys}
        self.current = _id(keys[0])

    def seal(self, said: bytes, place: str) -> Sealed:
        """Encrypt something that belongs to a place."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        text = self._keys[self.current].encrypt(nonce, said, place.encode())
        return Sealed(self.current, base64.b64encode(nonce).decode(), base64.b64encode(text).decode())

    def open(self, sealed: Sealed, place: str) -> bytes:
        """Decrypt it.

        :raises KeyringUnusable: if its key is not here, or it does not belong to the place
        """
        from cryptography.exceptions import InvalidTag

        cipher = self._keys.get(sealed.key)
        if cipher is None:
            raise KeyringUnusable(f"what is kept was encrypted with the key {sealed.key}, which is not here")
        try:
            return cipher.decrypt(base64.b64decode(sealed.nonce), base64.b64decode(sealed.text), place.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise KeyringUnusable("what is kept cannot be decrypted: it was changed, or moved") from None


def new_key() -> str:
    """Return a key as it is configured."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def keyring_of(config: Config) -> Keyring | None:
    """Return the configured keys, or those of the data directory; None if there are none.

    :raises KeyringUnusable: if what is there are no keys
    """
    if config.credentials_key is not None:
        return _read(config.credentials_key.get_secret_value(), "credentials_key")
    path = config.credentials_key_file or (config.data_dir / FILE_NAME)
    try:
        return _read(path.read_text(encoding="ascii"), str(path))
    except FileNotFoundError:
        if config.credentials_key_file is not None:
            raise KeyringUnusable("there is no such file", str(path)) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise KeyringUnusable(f"the file cannot be read: {error}", str(path)) from error


def founded_keyring(config: Config) -> Keyring:
    """Return the keys; of an embedded server's data directory one is made, if there is none.

    :raises KeyringUnusable: if there is none, and none can be made
    """
    found = keyring_of(config)
    if found is not None:
        return found
    if not config.embedded:
        raise KeyringUnusable("there is no key to encrypt credentials with")
    path = config.data_dir / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_own(path, f"{new_key()}\n", replaces=False)
    except FileExistsError:
        pass  # somebody else was faster
    except OSError as error:
        raise KeyringUnusable(f"no key can be written: {error}", str(path)) from error
    made = keyring_of(config)
    assert made is not None
    return made


def _read(text: str, where: str) -> Keyring:
    words = text.replace(",", " ").split()
    try:
        keys = [base64.b64decode(word, validate=True) for word in words]
    except binascii.Error:
        keys = []
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise KeyringUnusable(f"a key is {KEY_BYTES} bytes in Base64, several apart by commas or lines", where)
    return Keyring(keys)


def _id(key: bytes) -> str:
    return sha256(key).hexdigest()[:8]
