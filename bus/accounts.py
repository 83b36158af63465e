"""Accounts of tenants: the part of a NATS server's configuration by which tenants cannot reach each other.

The runtime has one account, with JetStream and all that it keeps; each tenant has one without JetStream.

- What a tenant publishes on its own subjects (`SAID`) arrives in the runtime's account on
  ``<prefix>.door.<tenant>.…``, where `callboard.runtime.api.door` checks it and stores it. It does not arrive in the
  stream: headers of a message that JetStream stores can delete other messages, or have the server publish on any
  subject of the stream.
- Requests to the service (`ASKED`) arrive on their own subjects, of which the stream keeps none.
- A tenant hears its own events, refusals and live progress (`HEARD`).
- What the runtime asks for a tenant's runs, on ``<prefix>.out.<tenant>.<subject>``, arrives in the tenant's account on
  ``<subject>``: by way of ``<prefix>.in.<subject>``, since two accounts that import all subjects of each other are
  a cycle to the server.

Whatever else a tenant publishes stays in its account. Users prove themselves by nkeys: the configuration has public
keys only.
"""

import os
import re
from collections.abc import Iterable

import nkeys
from msgspec import Struct, field

from callboard.bus.errors import OperatorError
from callboard.bus.subjects import name_of, token

RUNTIME = "CALLBOARD"
"""The name of the runtime's account."""

SAID: dict[str, str] = {
    "{prefix}.start.{tenant}": "{prefix}.door.{tenant}.start",
    "{prefix}.blob.{tenant}.>": "{prefix}.door.{tenant}.blob.>",
    "{prefix}.tell.{tenant}.>": "{prefix}.door.{tenant}.tell.>",
}
"""Subjects on which a tenant says something (starts, what is too large for one, tells), and where that arrives."""

ASKED = ("{prefix}.api.{tenant}.>",)
"""Subjects on which it asks the service."""

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
        imports = [self._asked_of(name, account) for name, account in names.items()]
        runtime = [
            f'  "{RUNTIME}": {{',
            "    jetstream: enabled",
            _users(self.runtime),
            *_listed("exports", exports),
            *_listed("imports", imports),
            "  }",
        ]
        others = [line for name, account in names.items() for line in self._account(name, account)]
        return "\n".join([*head, "accounts {", *runtime, *others, "}", ""])

    def _account(self, name: str, account: str) -> list[str]:
        said = [
            f'{{service: {{account: "{RUNTIME}", subject: "{there}"}}, to: "{here}"}}'
            for here, there in zip(self._subjects(name, SAID), self._subjects(name, SAID.values()), strict=True)
        ]
        asked = [f'{{service: {{account: "{RUNTIME}", subject: "{one}"}}}}' for one in self._subjects(name, ASKED)]
        heard = [f'{{stream: {{account: "{RUNTIME}", subject: "{one}"}}}}' for one in self._subjects(name, HEARD)]
        return [
            f'  "{account}": {{',
            _users(self.tenants[name]),
            *_listed("imports", [*said, *asked, *heard]),
            *_listed("exports", [f'{{service: "{self.prefix}.in.>", accounts: ["{RUNTIME}"]}}']),
            f'    mappings: {{"{self.prefix}.in.>": ">"}}',
            "  }",
        ]

    def _exports(self, name: str, account: str) -> list[str]:
        only = f'accounts: ["{account}"]'
        services = [*self._subjects(name, SAID.values()), *self._subjects(name, ASKED)]
        said = [f'{{service: "{subject}", {only}}}' for subject in services]
        return said + [f'{{stream: "{subject}", {only}}}' for subject in self._subjects(name, HEARD)]

    def _asked_of(self, name: str, account: str) -> str:
        """The import by which requests of a tenant's runs leave for its account."""
        to = outgoing(self.prefix, name, ">")
        return f'{{service: {{account: "{account}", subject: "{self.prefix}.in.>"}}, to: "{to}"}}'

    def _subjects(self, name: str, patterns: Iterable[str]) -> list[str]:
        return [pattern.format(prefix=self.prefix, tenant=token(name)) for pattern in patterns]


def outgoing(prefix: str, tenant: str, subject: str) -> str:
    """Return where the runtime publishes for a subject in a tenant's account."""
    return f"{prefix}.out.{token(tenant)}.{subject}"


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
