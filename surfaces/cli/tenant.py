"""``callboard tenant``: accounts of the NATS server for tenants that do not trust each other."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from callboard.lib.text_bytes import NotText, read_text
from callboard.surfaces.cli.output import print_answer, table
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.bus.errors import OperatorError
    from callboard.bus.nats.accounts import Accounts

_accounts = click.option(
    "--accounts",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("accounts.conf"),
    show_default=True,
    help="The file with the accounts, part of the server's configuration; created if it does not exist.",
)


@click.group()
def tenant() -> None:
    """Separate tenants: give each one its own account on the NATS server.

    Include the file of accounts in the configuration of your server, and reload it (`nats-server --signal reload`). A
    tenant's user may start runs, send commands to the tenant's runs, call the service, and receive the tenant's events.
    The user of the runtime may do everything. Both authenticate with a key.
    """


@tenant.command("add")
@click.argument("name")
@_accounts
@settings_options
def add(settings: Settings, name: str, accounts: Path) -> None:
    """Add an account for tenant NAME; the first time, also one for the runtime.

    The keys of their users are written to the folder of the file: NAME.nk and, the first time, callboard.nk.
    """
    print_accounts(add_account(name, accounts, load_config(settings).prefix), settings)


@tenant.command("list")
@_accounts
@settings_options
def list_(settings: Settings, accounts: Path) -> None:
    """List the tenants that have an account, with the public keys of their users."""
    print_accounts(read_accounts(accounts), settings)


@tenant.command("refresh")
@_accounts
@settings_options
def refresh(settings: Settings, accounts: Path) -> None:
    """Rewrite the file of accounts in the format of this version. Tenants and keys do not change."""
    print_accounts(_write_accounts(accounts, read_accounts(accounts)), settings)


@tenant.command("remove")
@click.argument("name")
@_accounts
@settings_options
def remove(settings: Settings, name: str, accounts: Path) -> None:
    """Remove the account of tenant NAME. Its runs stay in the log, but its user loses access."""
    print_accounts(remove_account(name, accounts), settings)


RUNTIME_KEY = "callboard.nk"


def _unusable(message: str, where: str, remedy: str) -> "OperatorError":
    """Return the error for a tenant that cannot be added, or that does not exist."""
    from callboard.bus.errors import OperatorError

    return OperatorError("tenant.unusable", message, where, remedy)


def add_account(name: str, file: Path, prefix: str) -> "Accounts":
    """Add a tenant's account to a file, with the runtime's if there is no file; write the keys beside it.

    :raises OperatorError: if the name is not valid, the tenant exists, or the file or a key cannot be written
    """
    from msgspec.structs import replace

    from callboard.bus.nats.accounts import Accounts
    from callboard.bus.nats.nkeys import new_user
    from callboard.bus.subjects import is_name, token

    if not is_name(name) or f"{token(name)}.nk" == RUNTIME_KEY:
        raise _unusable("invalid name of a tenant", repr(name), "Choose another name.")
    seed, key = new_user()
    seeds = {f"{token(name)}.nk": seed}
    if file.exists():
        accounts = read_accounts(file)
    else:
        seeds[RUNTIME_KEY], runtime = new_user()
        accounts = Accounts(prefix, runtime)
    if name in accounts.tenants:
        raise _unusable("the tenant already has an account", name, "Remove it first to give it another key.")
    _write_seeds({file.with_name(name): seed for name, seed in seeds.items()})
    return _write_accounts(file, replace(accounts, tenants={**accounts.tenants, name: key}))


def read_accounts(file: Path) -> "Accounts":
    """Read a file of accounts.

    :raises OperatorError: if it does not exist, or is not a file of accounts
    """
    from callboard.bus.nats.accounts import read

    try:
        return read(read_text(file), str(file))
    except NotText as error:
        raise _unusable(str(error), str(file), "Restore the file.") from error
    except OSError as error:
        raise _unusable(error.strerror or str(error), str(file), "Run `callboard tenant add` first.") from error


def remove_account(name: str, file: Path) -> "Accounts":
    """Remove a tenant's account from a file.

    :raises OperatorError: if the tenant has no account, or the file cannot be read or written
    """
    from msgspec.structs import replace

    accounts = read_accounts(file)
    if name not in accounts.tenants:
        there = ", ".join(accounts.tenants) or "none"
        raise _unusable("the tenant has no account", name, f"Tenants with an account: {there}.")
    return _write_accounts(
        file, replace(accounts, tenants={one: key for one, key in accounts.tenants.items() if one != name})
    )


def print_accounts(accounts: "Accounts", settings: Settings) -> None:
    """Print the tenants and the public keys of their users."""
    lines = table(list(accounts.tenants.items())) if accounts.tenants else []
    print_answer(accounts, lines, as_json=settings.as_json)


def _write_accounts(file: Path, accounts: "Accounts") -> "Accounts":
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(accounts.text(), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise _unusable(error.strerror or str(error), str(file), "Choose another file.") from error
    return accounts


def _write_seeds(seeds: dict[Path, str]) -> None:
    """Write secrets to files that only their owner can read: all of them, or none."""
    from callboard.lib.private_files import write_own

    written: list[Path] = []
    try:
        for file, seed in seeds.items():
            write_own(file, f"{seed}\n", replaces=False)
            written.append(file)
    except OSError as error:
        for file in written:
            file.unlink()
        remedy = "Existing keys are not replaced: move them, or choose another folder."
        raise _unusable(error.strerror or str(error), str(error.filename2 or error.filename), remedy) from error
