"""Who we are to a NATS server, and URLs without what nobody should read."""

import re
import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who we are to the server; what is left out is not used.

    ``nkey_seed`` is the seed itself, ``creds_file`` a file with JWT and seed as ``nsc`` writes it; both need the
    ``nkeys`` package. ``ca_file`` is the authority of the server's certificate, ``cert_file`` and ``key_file`` ours.
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
        """Return the TLS context these ask for, None for the client's default.

        :raises OSError: if a file is missing or no certificate
        """
        if not (self.ca_file or self.cert_file):
            return None
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca_file)
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


def without_secrets(url: str) -> str:
    """Return a URL, or several separated by commas, without user, password or token."""
    return ",".join(re.sub(r"(^|//)[^/]*@", r"\1", part.strip()) for part in url.split(","))


def with_placeholders(url: str) -> str:
    """Return a URL, or several separated by commas, with a word to replace in place of each user, password or token."""
    return ",".join(re.sub(r"(^|//)([^/]*)@", _placeholder, part.strip()) for part in url.split(","))


def _placeholder(found: re.Match[str]) -> str:
    return f"{found[1]}{'USER:PASSWORD' if ':' in found[2] else 'TOKEN'}@"
