"""Credentials for a NATS server, and URLs without secrets."""

import re
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from callboard.bus.nats import nkeys


class CredentialsUnusable(Exception):
    """What is configured cannot be presented to any server; the message names the setting and its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCredentials:
    """Credentials for the server. Each member is optional.

    ``nkey_seed`` is the seed itself, ``creds_file`` a file with JWT and seed as ``nsc`` writes it. ``ca_file`` is the
    certificate authority of the server, ``cert_file`` and ``key_file`` are the client's certificate and key.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    creds_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tls_hostname: str | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for these files, or None for the client's default.

        :raises CredentialsUnusable: if a file is missing, or is not what its setting says
        """
        if self.key_file and not self.cert_file:
            raise CredentialsUnusable(f"nats_key ({self.key_file}) is set, and nats_cert is not: set both")
        if not (self.ca_file or self.cert_file):
            return None
        if self.ca_file:
            _read("nats_ca", self.ca_file, "CERTIFICATE")
        with _name_file_in_errors("nats_ca", self.ca_file or ""):
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca_file)
        if self.cert_file:
            _read("nats_cert", self.cert_file, "CERTIFICATE")
            key = ("nats_key", self.key_file) if self.key_file else ("nats_cert", self.cert_file)
            _read(*key, "PRIVATE KEY")
            with _name_file_in_errors(*key):
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
        return context

    def check(self) -> None:
        """Check the credentials file and the nkey seed.

        :raises CredentialsUnusable: if the file is missing or is not a credentials file, or the seed is not one
        """
        if self.creds_file:
            _read("nats_creds", self.creds_file, nkeys.JWT_BEGIN, nkeys.SEED_BEGIN)
            with _name_in_errors(f"the last part of the file of nats_creds ({self.creds_file})"):
                nkeys.read_seed(nkeys.read_credentials(self.creds_file)[1])
        if self.nkey_seed is not None:
            with _name_in_errors("nats_nkey_seed"):
                nkeys.read_seed(self.nkey_seed)


@contextmanager
def _name_in_errors(seed: str) -> Generator[None]:
    try:
        yield
    except ValueError as error:
        message = f"{seed} is not the seed of an nkey, which begins with SU and has 58 characters"
        raise CredentialsUnusable(message) from error


def _read(setting: str, file: str, *parts: str) -> None:
    """Check that a file can be read and has some words.

    :raises CredentialsUnusable: if not
    """
    with _name_file_in_errors(setting, file):
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    for part in parts:
        if part not in text:
            raise CredentialsUnusable(f"the file of {setting} ({file}) has no line with {part!r}")


@contextmanager
def _name_file_in_errors(setting: str, file: str) -> Generator[None]:
    """Have an error name the setting and the file: those of OpenSSL name neither."""
    try:
        yield
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise CredentialsUnusable(f"the file of {setting} ({file}) cannot be used: {reason}") from error
    except OSError as error:
        raise CredentialsUnusable(
            f"the file of {setting} ({file}) cannot be read: {error.strerror or error}"
        ) from error


def _no_password() -> str:
    raise OSError("it is encrypted, and there is no setting for its password; decrypt it")


def without_secrets(url: str) -> str:
    """Return a URL, or several separated by commas, without user, password or token."""
    return ",".join(re.sub(r"(^|//)[^/]*@", r"\1", part.strip()) for part in url.split(","))


def with_placeholders(url: str) -> str:
    """Return a URL, or several separated by commas, with a word to replace in place of each user, password or token."""
    return ",".join(re.sub(r"(^|//)([^/]*)@", _placeholder, part.strip()) for part in url.split(","))


def _placeholder(found: re.Match[str]) -> str:
    return f"{found[1]}{'USER:PASSWORD' if ':' in found[2] else 'TOKEN'}@"
