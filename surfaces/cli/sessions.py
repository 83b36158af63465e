"""``callboard sessions``: the conversations that runs keep under keys, listed, shown and forgotten."""

import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.actors.memory.store import Store
    from callboard.runtime.settings.config import Config


@click.group(epilog=exits.EXIT_CODES)
def sessions() -> None:
    """Look at the sessions of a tenant, which runs share: list, show and forget them.

    A session is a conversation that runs continue under a key. It is kept beside the log.
    """


@sessions.command("list", epilog=exits.EXIT_CODES)
@settings_options
def list_(settings: Settings) -> None:
    """List the sessions: key, number of items, latest change, expiry. Expired ones are removed from the store."""
    import anyio

    anyio.run(list_sessions, load_config(settings), settings)


@sessions.command(epilog=exits.EXIT_CODES)
@click.argument("key")
@settings_options
def show(key: str, settings: Settings) -> None:
    """Show the items of a session, with the time and the run that appended each."""
    import anyio

    anyio.run(show_session, key, load_config(settings), settings)


@sessions.command(epilog=exits.EXIT_CODES)
@click.argument("key")
@settings_options
def forget(key: str, settings: Settings) -> None:
    """Remove a session with all its items. The logs of runs still have the items that the runs read and appended."""
    import anyio

    anyio.run(forget_session, key, load_config(settings), settings)


@asynccontextmanager
async def _store(config: "Config") -> "AsyncGenerator[Store]":
    """Open the store of sessions.

    :raises CallboardError: if the store cannot be used
    """
    from callboard.actors.memory.store import Unavailable
    from callboard.bus.errors import CallboardError
    from callboard.bus.nats.key_value import KeyValueStore
    from callboard.bus.nats.stream import bucket_of
    from callboard.service.operations.reach import reach

    async with reach(config, reads=True, name="callboard sessions") as connection:
        log = connection.log
        try:
            yield KeyValueStore(log.nc, bucket_of(log.subjects), config.replicas, Unavailable)
        except Unavailable as error:
            remedy = "Check the NATS server, and try again."
            raise CallboardError(error.failure.code, error.failure.message, remedy=remedy) from error


def _now_ms() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)


def _at(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


async def list_sessions(config: "Config", settings: Settings) -> None:
    """Print the list of sessions.

    :raises CallboardError: if the store cannot be used
    """
    from callboard.actors.memory import session
    from callboard.service.operations.narration import local
    from callboard.service.operations.results import compact

    async with _store(config) as store:
        found = await session.list_sessions(store, config.tenant, _now_ms())
    rows: list[dict[str, Any]] = [
        {
            "key": one["key"],
            "items": len(one["items"]),
            "changed_at": _at(one["at_ms"]),
            "expires_at": None if one["expires_ms"] is None else _at(one["expires_ms"]),
        }
        for one in found
    ]
    if settings.as_json:
        say(compact(rows))
        return
    for row in rows:
        expiry = "" if row["expires_at"] is None else f"  expires {local(row['expires_at'])}"
        items = "item" if row["items"] == 1 else "items"
        say(f"{row['key']}  {row['items']} {items}  changed {local(row['changed_at'])}{expiry}")


async def show_session(key: str, config: "Config", settings: Settings) -> None:
    """Print the items of a session.

    :raises UsageInvalid: if it does not exist
    :raises CallboardError: if the store cannot be used
    """
    from callboard.actors.memory import session
    from callboard.service.operations.narration import local
    from callboard.service.operations.results import compact

    async with _store(config) as store:
        found = await session.read_session(store, config.tenant, key, _now_ms())
    if not found:
        raise _unknown(key)
    if settings.as_json:
        say(compact([{"item": one["item"], "at": _at(one["at_ms"]), "run": one["run"]} for one in found]))
        return
    for one in found:
        say(f"{local(_at(one['at_ms']))}  {one['run']}  {compact(one['item'])}")


async def forget_session(key: str, config: "Config", settings: Settings) -> None:
    """Remove a session.

    :raises UsageInvalid: if it does not exist
    :raises CallboardError: if the store cannot be used
    """
    from callboard.actors.memory import session
    from callboard.service.operations.results import compact

    async with _store(config) as store:
        if not await session.forget_session(store, config.tenant, key):
            raise _unknown(key)
    say(compact({"forgotten": key}) if settings.as_json else f"{key} forgotten")


def _unknown(key: str) -> Exception:
    from callboard.runtime.client.errors import UsageInvalid

    return UsageInvalid(f"there is no session {key!r}; callboard sessions list has all", "KEY")
