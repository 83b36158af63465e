"""``callboard credentials``: what services outside are reached with."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, json_option, settings_options

user_option = click.option("--user", metavar="NAME", default="", help="Whose it is; default: the tenant's own.")


@click.group(epilog=exits.EXIT_CODES)
def credentials() -> None:
    """Keep what services are reached with: add, list and remove credentials, of a tenant or of its users.

    They are kept encrypted, and decrypted only where an action is carried out. No event, log or error has them.
    """


@credentials.command(epilog=exits.EXIT_CODES)
@click.argument("provider")
@user_option
@settings_options
def add(provider: str, user: str, settings: Settings) -> None:
    """Keep a credential, in the place of the one before. It is read from stdin, or asked for.

    A token alone, or lines of VARIABLE=VALUE where a provider takes several.

    \b
    callboard credentials add slack < token
    """
    import anyio

    from callboard.surfaces.cli.credentials_action import add_credential, given_values
    from callboard.surfaces.cli.settings import configured

    config = configured(settings)
    anyio.run(add_credential, provider, user, given_values(provider), config, settings)


@credentials.command(epilog=exits.EXIT_CODES)
@click.argument("provider")
@user_option
@settings_options
def connect(provider: str, user: str, settings: Settings) -> None:
    """Connect a person's account at a provider in a browser (OAuth 2); it is then renewed automatically.

    The setting `oauth` names the application that the person authorises. If it has a redirect_url, paste the address
    that the browser was sent to; otherwise the browser returns to this machine.
    """
    import anyio

    from callboard.surfaces.cli.credentials_action import connect_account
    from callboard.surfaces.cli.settings import configured

    anyio.run(connect_account, provider, user, configured(settings), settings)


@credentials.command("list", epilog=exits.EXIT_CODES)
@settings_options
def list_(settings: Settings) -> None:
    """List the credentials: for which provider, whose, which variables, since when. Never what they are."""
    import anyio

    from callboard.surfaces.cli.credentials_action import list_credentials
    from callboard.surfaces.cli.settings import configured

    anyio.run(list_credentials, configured(settings), settings)


@credentials.command(epilog=exits.EXIT_CODES)
@click.argument("provider")
@user_option
@settings_options
def remove(provider: str, user: str, settings: Settings) -> None:
    """Remove a credential."""
    import anyio

    from callboard.surfaces.cli.credentials_action import remove_credential
    from callboard.surfaces.cli.settings import configured

    anyio.run(remove_credential, provider, user, configured(settings), settings)


@credentials.command(epilog=exits.EXIT_CODES)
@settings_options
def rotate(settings: Settings) -> None:
    """Encrypt with the first of the keys whatever was encrypted with another one.

    Put a new key (`callboard credentials key`) before the old one, rotate, then take the old one away.
    """
    import anyio

    from callboard.surfaces.cli.credentials_action import rotate_credentials
    from callboard.surfaces.cli.settings import configured

    anyio.run(rotate_credentials, configured(settings), settings)


@credentials.command(epilog=exits.EXIT_CODES)
@json_option
def key(as_json: bool) -> None:
    """Print a new key, for CALLBOARD_CREDENTIALS_KEY or a file that credentials_key_file names."""
    from callboard.features.access.keyring import new_key
    from callboard.service.operations.results import compact

    made = new_key()
    say(compact({"key": made}) if as_json else made)
