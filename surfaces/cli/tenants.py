"""The file of accounts: tenants added, listed and removed, and the keys of their users written beside it."""

from pathlib import Path

from msgspec.structs import replace

from callboard.bus.errors import OperatorError
from callboard.bus.nats.accounts import Accounts, new_user, read
from callboard.bus.subjects import is_name, token
from callboard.lib.private_files import write_own
from callboard.service.operations.results import compact
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings

RUNTIME_KEY = "callboard.nk"


class TenantUnusable(OperatorError):
    """A tenant cannot be added, or is not there to be removed."""

    def __init__(self, message: str, where: str, remedy: str) -> None:
        super().__init__("tenant.unusable", message, where, remedy)


def added(name: str, file: Path, prefix: str) -> Accounts:
    """Add a tenant's account to a file, with the runtime's if there is no file; write the keys beside it.

    :raises OperatorError: if the name is none, the tenant is there already, or the file or a key cannot be written
    """
    if not is_name(name) or f"{token(name)}.nk" == RUNTIME_KEY:
        raise TenantUnusable("this is no name for a tenant", repr(name), "Choose another.")
    seed, key = new_user()
    seeds = {f"{token(name)}.nk": seed}
    if file.exists():
        accounts = listed(file)
    else:
        seeds[RUNTIME_KEY], runtime = new_user()
        accounts = Accounts(prefix, runtime)
    if name in accounts.tenants:
        raise TenantUnusable("this tenant has an account already", name, "Remove it first to give it another key.")
    _write_seeds({file.with_name(name): seed for name, seed in seeds.items()})
    return _write_accounts(file, replace(accounts, tenants={**accounts.tenants, name: key}))


def listed(file: Path) -> Accounts:
    """Return what a file holds.

    :raises OperatorError: if it is not there, or holds something else
    """
    try:
        return read(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise TenantUnusable(error.strerror or str(error), str(file), "Begin with `callboard tenant add`.") from error


def refreshed(file: Path) -> Accounts:
    """Write a file of accounts again, in the form of this version.

    :raises OperatorError: if it cannot be read or written
    """
    return _write_accounts(file, listed(file))


def removed(name: str, file: Path) -> Accounts:
    """Remove a tenant's account from a file.

    :raises OperatorError: if none exists, or the file cannot be read or written
    """
    accounts = listed(file)
    if name not in accounts.tenants:
        there = ", ".join(accounts.tenants) or "none"
        raise TenantUnusable("this tenant has no account", name, f"There are: {there}.")
    return _write_accounts(
        file, replace(accounts, tenants={one: key for one, key in accounts.tenants.items() if one != name})
    )


def told(accounts: Accounts, settings: Settings) -> None:
    """Say which tenants there are."""
    if settings.as_json:
        say(compact(accounts))
        return
    width = max([len(name) for name in accounts.tenants], default=0)
    for name, key in accounts.tenants.items():
        say(f"{name.ljust(width)}  {key}")


def _write_accounts(file: Path, accounts: Accounts) -> Accounts:
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(accounts.text(), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise TenantUnusable(error.strerror or str(error), str(file), "Choose another file.") from error
    return accounts


def _write_seeds(seeds: dict[Path, str]) -> None:
    """Write secrets to files that only their owner can read, all of them or none."""
    written: list[Path] = []
    try:
        for file, seed in seeds.items():
            write_own(file, f"{seed}\n", replaces=False)
            written.append(file)
    except OSError as error:
        for file in written:
            file.unlink()
        remedy = "A key that is there already is not replaced: move it away, or choose another folder."
        raise TenantUnusable(error.strerror or str(error), str(error.filename2 or error.filename), remedy) from error
