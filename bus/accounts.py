"""Accounts of tenants: the part of a NATS server's configuration by which tenants cannot reach each other.

The runtime has one account, with JetStream and all that it keeps; each tenant has one that has nothing of its own. The
runtime's account lets a tenant's start runs, tell its runs something and ask the service, for that tenant alone, and
lets it hear that tenant's events, refusals and live progress. Whatever else a tenant publishes stays in its account,
where nobody listens. Users prove themselves by nkeys: the configuration has public keys only.
"""

import os
import re

import nkeys
from msgspec import Struct, field

from callboard.bus.errors import OperatorError
from callboard.bus.subjects import name_of, token

RUNTIME = "CALLBOARD"
"""The name of the runtime's account."""

SAID = (
    "{prefix}.start.{tenant}",
    "{prefix}.blob.{tenant}.large.>",
    "{prefix}.tell.{tenant}.>",
    "{prefix}.api.{tenant}.>",
)
"""Subjects on which a tenant says something: starts and what is too large for one, tells, requests."""

HEARD = ("{prefix}.run.{tenant}.>", "{prefix}.live.{tenant}.>", "{prefix}.reject.{tenant}.>")
"""Subjects on which it hears."""

_SEED_BYTES = 32
_HEAD = re.compile(r"^# prefix (\S+), runtime (U[A-Z2-7]{55})$", re.MULTILINE)
_TENANT = re.compile(r"^# tenant (\S+) (U[A-Z2-7]{55})$", re.MULTILINE)


class AccountsUnreadable(OperatorError):
    """A file that is to hold accounts holds something else."""

    def __init__(self, where: str) -> None:
        remedy = "Name another file with --accounts; one that is not there yet will be made."
        super().__init__("tenant.accounts", "this file was not written by `callboard tenant`", where, remedy)


class Accounts(Struct, frozen=True):
    """The tenants of a server with the public keys of their users, and that of the runtime."""

    prefix: str
    runtime: str
    tenants: dict[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """Return the configuration; `read` reads it back."""
        names = {name: f"TENANT-{token(name)}" for name in self.tenants}
        head = [
            "# Written by `callboard tenant`; include it in the configuration of the server.",
            f"# prefix {self.prefix}, runtime {self.runtime}",
            *(f"# tenant {token(name)} {key}" for name, key in self.tenants.items()),
        ]
        exports = [line for name, account in names.items() for line in self._exports(name, account)]
        runtime = [
            f'  "{RUNTIME}": {{',
            "    jetstream: enabled",
            _users(self.runtime),
            *_listed("exports", exports),
            "  }",
        ]
        others = [line for name, account in names.items() for line in self._account(name, account)]
        return "\n".join([*head, "accounts {", *runtime, *others, "}", ""])

    def _account(self, name: str, account: str) -> list[str]:
        said, heard = self._subjects(name, SAID), self._subjects(name, HEARD)
        imports = [f'{{service: {{account: "{RUNTIME}", subject: "{subject}"}}}}' for subject in said]
        imports += [f'{{stream: {{account: "{RUNTIME}", subject: "{subject}"}}}}' for subject in heard]
        return [f'  "{account}": {{', _users(self.tenants[name]), *_listed("imports", imports), "  }"]

    def _exports(self, name: str, account: str) -> list[str]:
        only = f'accounts: ["{account}"]'
        said = [f'{{service: "{subject}", {only}}}' for subject in self._subjects(name, SAID)]
        return said + [f'{{stream: "{subject}", {only}}}' for subject in self._subjects(name, HEARD)]

    def _subjects(self, name: str, patterns: tuple[str, ...]) -> list[str]:
        return [pattern.format(prefix=self.prefix, tenant=token(name)) for pattern in patterns]


def read(text: str, where: str) -> Accounts:
    """Read accounts back from their configuration; ``where`` names it.

    :raises AccountsUnreadable: if it is none
    """
    head = _HEAD.search(text)
    if head is None:
        raise AccountsUnreadable(where)
    return Accounts(head[1], head[2], {name_of(found[1]): found[2] for found in _TENANT.finditer(text)})


def new_user() -> tuple[str, str]:
    """Make a user; return its seed, which is its secret, and its public key."""
    seed = nkeys.encode_seed(os.urandom(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)
    return seed.decode(), bytes(nkeys.from_seed(seed).public_key).decode()


def _users(key: str) -> str:
    return f"    users: [{{nkey: {key}}}]"


def _listed(name: str, items: list[str]) -> list[str]:
    return [f"    {name}: [", *(f"      {item}" for item in items), "    ]"] if items else []
