"""``callboard tenant``: accounts of the NATS server for tenants that do not trust each other."""

from pathlib import Path

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options

_accounts = click.option(
    "--accounts",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("accounts.conf"),
    show_default=True,
    help="The part of the server's configuration that has the accounts; made if it is not there.",
)


@click.group(epilog=exits.EXIT_CODES)
def tenant() -> None:
    """Keep tenants apart: an account of the NATS server each.

    The file of accounts is included in the configuration of a server of your own, which then reads it
    (`nats-server --signal reload`). A tenant's user may start runs, tell its own runs something, ask the service and
    hear its own events; the runtime's does everything. Both prove themselves by a key.
    """


@tenant.command("add", epilog=exits.EXIT_CODES)
@click.argument("name")
@_accounts
@settings_options
def add(settings: Settings, name: str, accounts: Path) -> None:
    """Add the account of tenant NAME, and that of the runtime with the first.

    The keys of their users are written beside the file: NAME.nk and, the first time, callboard.nk.
    """
    from callboard.surfaces.cli.settings import configured
    from callboard.surfaces.cli.tenants import added, told

    told(added(name, accounts, configured(settings).prefix), settings)


@tenant.command("list", epilog=exits.EXIT_CODES)
@_accounts
@settings_options
def list_(settings: Settings, accounts: Path) -> None:
    """List the tenants that have an account, with the public keys of their users."""
    from callboard.surfaces.cli.tenants import listed, told

    told(listed(accounts), settings)


@tenant.command("refresh", epilog=exits.EXIT_CODES)
@_accounts
@settings_options
def refresh(settings: Settings, accounts: Path) -> None:
    """Write the file of accounts in the form of this version. Tenants and keys stay as they are."""
    from callboard.surfaces.cli.tenants import refreshed, told

    told(refreshed(accounts), settings)


@tenant.command("remove", epilog=exits.EXIT_CODES)
@click.argument("name")
@_accounts
@settings_options
def remove(settings: Settings, name: str, accounts: Path) -> None:
    """Remove the account of tenant NAME. Its runs stay in the log, and no one can talk to them as that tenant."""
    from callboard.surfaces.cli.tenants import removed, told

    told(removed(name, accounts), settings)
