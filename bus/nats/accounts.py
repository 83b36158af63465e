"""Accounts of tenants: the part of a NATS server's configuration that isolates tenants from each other.

The runtime has one account, with JetStream and all stored data. Each tenant has an account without JetStream.

- Messages that a tenant publishes on its own subjects (`SAID`) arrive in the runtime's account on
  ``<prefix>.door.<tenant>.…``, where `callboard.surfaces.nats.door` checks and stores them. They do not go directly
  into the stream, because the headers of a message that JetStream stores can delete other messages, or make the server
  publish on any subject of the stream.
- Requests to the service (`ASKED`) arrive on their own subjects, which the stream does not store.
- A tenant receives its own events, rejections and live progress (`HEARD`).
- Requests that the runtime makes for a tenant's runs, on ``<prefix>.out.<tenant>.<subject>``, arrive in the tenant's
  account on ``<subject>``. They are mapped through ``<prefix>.in.<subject>``, because the server refuses two accounts
  that import all subjects of each other as a cycle.

Anything else that a tenant publishes stays in its account. Users authenticate with nkeys, so the configuration
contains public keys only.
"""

import re
from collections.abc import Iterable

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
"""Subjects on which a tenant publishes (starts, values that are too large for a start, commands), and the subjects in
the runtime's account on which they arrive."""

ASKED = ("{prefix}.api.{tenant}.>",)
"""Subjects on which a tenant sends requests to the service."""

HEARD = ("{prefix}.run.{tenant}.>", "{prefix}.live.{tenant}.>", "{prefix}.reject.{tenant}.>")
"""Subjects that a tenant may subscribe to."""

_HEAD = re.compile(r"^# prefix (\S+), runtime (U[A-Z2-7]{55})$", re.MULTILINE)
_TENANT = re.compile(r"^# tenant (\S+) (U[A-Z2-7]{55})$", re.MULTILINE)


class AccountsUnreadable(OperatorError):
    """A file that was named as the accounts file was not written by `callboard tenant`."""

    def __init__(self, where: str) -> None:
        remedy = "Name another file with --accounts; a file that does not exist is created."
        super().__init__("tenant.accounts", "this file was not written by `callboard tenant`", where, remedy)


class Accounts(Struct, frozen=True):
    """The tenants of a server with the public keys of their users, and the public key of the runtime's user."""

    prefix: str
    runtime: str
    tenants: dict[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """Return the configuration as text; `read` parses it."""
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
            *_format_list("exports", exports),
            *_format_list("imports", imports),
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
            *_format_list("imports", [*said, *asked, *heard]),
            *_format_list("exports", [f'{{service: "{self.prefix}.in.>", accounts: ["{RUNTIME}"]}}']),
            f'    mappings: {{"{self.prefix}.in.>": ">"}}',
            "  }",
        ]

    def _exports(self, name: str, account: str) -> list[str]:
        only = f'accounts: ["{account}"]'
        services = [*self._subjects(name, SAID.values()), *self._subjects(name, ASKED)]
        said = [f'{{service: "{subject}", {only}}}' for subject in services]
        return said + [f'{{stream: "{subject}", {only}}}' for subject in self._subjects(name, HEARD)]

    def _asked_of(self, name: str, account: str) -> str:
        """Return the import that carries requests of a tenant's runs into the tenant's account."""
        to = outgoing(self.prefix, name, ">")
        return f'{{service: {{account: "{account}", subject: "{self.prefix}.in.>"}}, to: "{to}"}}'

    def _subjects(self, name: str, patterns: Iterable[str]) -> list[str]:
        return [pattern.format(prefix=self.prefix, tenant=token(name)) for pattern in patterns]


def outgoing(prefix: str, tenant: str, subject: str) -> str:
    """Return the subject on which the runtime publishes a message for a subject in a tenant's account."""
    return f"{prefix}.out.{token(tenant)}.{subject}"


def read(text: str, where: str) -> Accounts:
    """Parse the accounts from a configuration; ``where`` is the name of its file.

    :raises AccountsUnreadable: if the text is not such a configuration
    """
    head = _HEAD.search(text)
    if head is None:
        raise AccountsUnreadable(where)
    return Accounts(head[1], head[2], {name_of(found[1]): found[2] for found in _TENANT.finditer(text)})


def _users(key: str) -> str:
    return f"    users: [{{nkey: {key}}}]"


def _format_list(name: str, items: list[str]) -> list[str]:
    return [f"    {name}: [", *(f"      {item}" for item in items), "    ]"] if items else []
