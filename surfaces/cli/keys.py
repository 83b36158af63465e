"""``callboard keys``: API keys for programs that use HTTP."""

import datetime as dt
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import DurationType
from callboard.surfaces.cli.output import say

if TYPE_CHECKING:
    from callboard.features.access.keys import ApiKey, ApiKeys
    from callboard.runtime.client.connection import Connection


SCOPES = ("read", "start", "answer", "operate")


@click.group()
def keys() -> None:
    """Manage API keys for programs that use HTTP: add, list and remove them.

    A key is printed once, when it is made; the store has only its hash. Requests with the key are recorded under its
    name, and its scopes limit what they may do.
    """


@keys.command()
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
    "--expires", metavar="DURATION", type=DurationType(), help="How long it is valid; default: until it is removed."
)
@operation
async def add(
    call: OperationCall, name: str, scopes: tuple[str, ...], roles: tuple[str, ...], expires: float | None
) -> None:
    """Make a key, and print it.

    \b
    callboard keys add ci --scope start --scope read --expires 720h
    """
    from callboard.bus.subjects import is_name
    from callboard.features.access.keys import NAME_CHARS_MAX
    from callboard.features.access.subject import scopes_of
    from callboard.runtime.client.errors import UsageInvalid

    if not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable() or not is_name(name):
        raise UsageInvalid(f"invalid name; expected 1 to {NAME_CHARS_MAX} printable characters", "NAME")
    now = dt.datetime.now(dt.UTC)
    until = now + dt.timedelta(seconds=expires) if expires is not None else None
    async with call.connect(founds=True) as connection:
        text, key = await _keys(connection).add(name, scopes_of(scopes or ("read",)), now, until, roles)
    call.answer({"key": text, **_describe_key(key)}, text)
    if not call.settings.as_json:
        say("The key is shown only once. Store it now.", err=True)


@keys.command("list")
@operation
async def list_(call: OperationCall) -> None:
    """List the keys: name, scopes, roles, date and expiry."""
    async with call.connect() as connection:
        found = await _keys(connection).all()
    call.answer([_describe_key(key) for key in found], map(_key_line, found))


@keys.command()
@click.argument("name")
@operation
async def remove(call: OperationCall, name: str) -> None:
    """Remove a key. Requests with it are refused from now on."""
    async with call.connect() as connection:
        await _keys(connection).remove(name)
    call.answer({"removed": name}, f"{name} removed")


def _keys(connection: "Connection") -> "ApiKeys":
    from callboard.features.access.keys import ApiKeys

    return ApiKeys(connection.log, connection.config.tenant, connection.config.replicas)


def _key_line(key: "ApiKey") -> str:
    from callboard.service.operations.narration import local

    until = f"until {local(key.expires_at)}" if key.expires_at is not None else ""
    roles = f"  as {', '.join(key.roles)}" if key.roles else ""
    return f"{key.name}  {', '.join(key.scopes)}{roles}  since {local(key.created_at)}  {until}".rstrip()


def _describe_key(key: "ApiKey") -> dict[str, object]:
    """Return the fields of a key without its hash."""
    import msgspec

    return {name: value for name, value in msgspec.to_builtins(key).items() if name != "hash"}
