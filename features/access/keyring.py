"""The keyring: the keys that encrypt credentials. The first key encrypts, the others only decrypt older credentials.

The cipher is AES-256-GCM with a fresh nonce for each encryption. The tenant, user and provider of a secret are
authenticated with it, so a secret that is moved to another place in the store cannot be read there. A key is identified
by the beginning of its digest.
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
"""The key file in the data directory, used unless another key is configured."""


class KeyringUnusable(OperatorError):
    """The keys that encrypt credentials are missing or invalid."""

    def __init__(self, message: str, where: str = "") -> None:
        remedy = "Set CALLBOARD_CREDENTIALS_KEY or credentials_key_file to a key from `callboard credentials key`."
        super().__init__("credentials.key", message, where, remedy)


class Sealed(Struct, frozen=True):
    """Encrypted data: the id of the key, the nonce and the ciphertext (both in Base64)."""

    key: str
    nonce: str
    text: str


class Keyring:
    """Encrypts with the first of its keys, and decrypts with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        # Imported here because most workers have no keys.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._keys = {_id(key): AESGCM(key) for key in keys}
        self.current = _id(keys[0])

    def seal(self, said: bytes, place: str) -> Sealed:
        """Encrypt data, and bind it to a place in the store."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        text = self._keys[self.current].encrypt(nonce, said, place.encode())
        return Sealed(self.current, base64.b64encode(nonce).decode(), base64.b64encode(text).decode())

    def open(self, sealed: Sealed, place: str) -> bytes:
        """Decrypt data that belongs to a place in the store.

        :raises KeyringUnusable: if its key is not in this keyring, or it belongs to another place
        """
        from cryptography.exceptions import InvalidTag

        cipher = self._keys.get(sealed.key)
        if cipher is None:
            raise KeyringUnusable(f"the credential is encrypted with the key {sealed.key}, which is not configured")
        try:
            return cipher.decrypt(base64.b64decode(sealed.nonce), base64.b64decode(sealed.text), place.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise KeyringUnusable("the credential cannot be decrypted: it has been changed or moved") from None


def new_key() -> str:
    """Return a new key in the format of the configuration."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def keyring_of(config: Config) -> Keyring | None:
    """Return the configured keys, or those of the data directory; None without keys.

    :raises KeyringUnusable: if the keys cannot be read or are invalid
    """
    if config.credentials_key is not None:
        return _read(config.credentials_key.get_secret_value(), "credentials_key")
    path = config.credentials_key_file or (config.data_dir / FILE_NAME)
    try:
        return _read(path.read_text(encoding="ascii"), str(path))
    except FileNotFoundError:
        if config.credentials_key_file is not None:
            raise KeyringUnusable("the file does not exist", str(path)) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise KeyringUnusable(f"the file cannot be read: {error}", str(path)) from error


def founded_keyring(config: Config) -> Keyring:
    """Return the keys; with an embedded server, create a key in the data directory if it has none.

    :raises KeyringUnusable: if no key exists or can be created
    """
    found = keyring_of(config)
    if found is not None:
        return found
    if not config.embedded:
        raise KeyringUnusable("no key to encrypt credentials is configured")
    path = config.data_dir / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_own(path, f"{new_key()}\n", replaces=False)
    except FileExistsError:
        pass  # another process has just written it
    except OSError as error:
        raise KeyringUnusable(f"cannot write the key file: {error}", str(path)) from error
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
        raise KeyringUnusable(f"invalid key: expected {KEY_BYTES} bytes in Base64 (several: one per line)", where)
    return Keyring(keys)


def _id(key: bytes) -> str:
    return sha256(key).hexdigest()[:8]
