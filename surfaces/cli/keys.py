"""``callboard keys``: the API keys by which programs are known over HTTP."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Duration
from callboard.surfaces.cli.settings import Settings, settings_options

SCOPES = ("read", "start", "answer", "operate")


@click.group(epilog=exits.EXIT_CODES)
def keys() -> None:
    """Let programs in over HTTP: add, list and remove API keys.

    A key is told once, when it is made; the store has its hash. Whoever brings it is known by its name, which is in
    the log, and may do what its scopes say.
    """


@keys.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    help="What it is for; may be given several times.  [default: read]",
)
@click.option("--expires", metavar="DURATION", type=Duration(), help="How long it holds; default: until it is removed.")
@settings_options
def add(name: str, scopes: tuple[str, ...], expires: float | None, settings: Settings) -> None:
    """Make a key, and print it.

    \b
    callboard keys add ci --scope start --scope read --expires 720h
    """
    import anyio

    from callboard.surfaces.cli.keys_action import add_key
    from callboard.surfaces.cli.settings import configured

    anyio.run(add_key, name, scopes or ("read",), expires, configured(settings), settings)


@keys.command("list", epilog=exits.EXIT_CODES)
@settings_options
def list_(settings: Settings) -> None:
    """List the keys: what they are called, what they are for, until when."""
    import anyio

    from callboard.surfaces.cli.keys_action import list_keys
    from callboard.surfaces.cli.settings import configured

    anyio.run(list_keys, configured(settings), settings)


@keys.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def remove(name: str, settings: Settings) -> None:
    """Remove a key: from now on it lets no one in."""
    import anyio

    from callboard.surfaces.cli.keys_action import remove_key
    from callboard.surfaces.cli.settings import configured

    anyio.run(remove_key, name, configured(settings), settings)
