"""``callboard keys``: API keys for programs that use HTTP."""

import datetime as dt
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Duration
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.features.access.keys import ApiKey
    from callboard.runtime.settings.config import Config


SCOPES = ("read", "start", "answer", "operate")


@click.group(epilog=exits.EXIT_CODES)
def keys() -> None:
    """Manage API keys for programs that use HTTP: add, list and remove them.

    A key is printed once, when it is made; the store has only its hash. Requests with the key are recorded under its
    name, and its scopes limit what they may do.
    """


@keys.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    help="A scope of the key; may be repeated.  [default: read]",
)
@click.option(
    "--role",
    "roles",
    metavar="NAME",
    multiple=True,
    help="A role that questions of runs may demand of the person who answers; may be repeated.",
)
@click.option(
    "--expires", metavar="DURATION", type=Duration(), help="How long it is valid; default: until it is removed."
)
@settings_options
def add(name: str, scopes: tuple[str, ...], roles: tuple[str, ...], expires: float | None, settings: Settings) -> None:
    """Make a key, and print it.

    \b
    callboard keys add ci --scope start --scope read --expires 720h
    """
    import anyio

    anyio.run(add_key, name, scopes or ("read",), roles, expires, load_config(settings), settings)


@keys.command("list", epilog=exits.EXIT_CODES)
@settings_options
def list_(settings: Settings) -> None:
    """List the keys: name, scopes, roles, date and expiry."""
    import anyio

    anyio.run(list_keys, load_config(settings), settings)


@keys.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def remove(name: str, settings: Settings) -> None:
    """Remove a key. Requests with it are refused from now on."""
    import anyio

    anyio.run(remove_key, name, load_config(settings), settings)


async def add_key(
    name: str,
    scopes: tuple[str, ...],
    roles: tuple[str, ...],
    expires_s: float | None,
    config: "Config",
    settings: Settings,
) -> None:
    """Make a key and print it.

    :raises UsageInvalid: if the name is not valid
    :raises CallboardError: if a key of this name exists, or the store cannot be used
    """
    from callboard.bus.subjects import is_name
    from callboard.features.access.keys import NAME_CHARS_MAX, Keys
    from callboard.features.access.subject import scopes_of
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    if not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable() or not is_name(name):
        raise UsageInvalid(f"invalid name; expected 1 to {NAME_CHARS_MAX} printable characters", "NAME")
    now = dt.datetime.now(dt.UTC)
    until = now + dt.timedelta(seconds=expires_s) if expires_s is not None else None
    async with reach(config, reads=True, founds=True, name="callboard keys") as connection:
        keys = Keys(connection.log, config.tenant, config.replicas)
        text, key = await keys.add(name, scopes_of(scopes), now, until, roles)
    say(compact({"key": text, **_describe_key(key)}) if settings.as_json else text)
    if not settings.as_json:
        say("The key is shown only once. Store it now.", err=True)


async def list_keys(config: "Config", settings: Settings) -> None:
    """Print the keys.

    :raises CallboardError: if the store cannot be used
    """
    from callboard.features.access.keys import Keys
    from callboard.service.operations.narration import local
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard keys") as connection:
        found = await Keys(connection.log, config.tenant, config.replicas).all()
    if settings.as_json:
        say(compact([_describe_key(key) for key in found]))
        return
    for key in found:
        until = f"until {local(key.expires_at)}" if key.expires_at is not None else ""
        roles = f"  as {', '.join(key.roles)}" if key.roles else ""
        say(f"{key.name}  {', '.join(key.scopes)}{roles}  since {local(key.created_at)}  {until}".rstrip())


async def remove_key(name: str, config: "Config", settings: Settings) -> None:
    """Remove a key.

    :raises CallboardError: if no key of this name exists, or the store cannot be used
    """
    from callboard.features.access.keys import Keys
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard keys") as connection:
        await Keys(connection.log, config.tenant, config.replicas).remove(name)
    say(compact({"removed": name}) if settings.as_json else f"{name} removed")


def _describe_key(key: "ApiKey") -> dict[str, object]:
    """Return the fields of a key without its hash."""
    import msgspec

    return {name: value for name, value in msgspec.to_builtins(key).items() if name != "hash"}
