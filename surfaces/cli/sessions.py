"""``callboard sessions``: the conversations that runs keep under keys, listed, shown and forgotten."""

import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.operation import OperationCall, operation

if TYPE_CHECKING:
    from callboard.actors.memory.store import Store


@click.group()
def sessions() -> None:
    """Look at the sessions of a tenant, which runs share: list, show and forget them.

    A session is a conversation that runs continue under a key. It is kept beside the log.
    """


@sessions.command("list")
@operation
async def list_(call: OperationCall) -> None:
    """List the sessions: key, number of items, latest change, expiry. Expired ones are removed from the store."""
    from callboard.actors.memory import session

    async with _store(call) as store:
        found = await session.list_sessions(store, call.config.tenant, _now_ms())
    rows: list[dict[str, Any]] = [
        {
            "key": one["key"],
            "items": len(one["items"]),
            "changed_at": _at(one["at_ms"]),
            "expires_at": None if one["expires_ms"] is None else _at(one["expires_ms"]),
        }
        for one in found
    ]
    call.answer(rows, map(_session_line, rows))


def _session_line(row: dict[str, Any]) -> str:
    from callboard.service.operations.narration import local

    expiry = "" if row["expires_at"] is None else f"  expires {local(row['expires_at'])}"
    items = "item" if row["items"] == 1 else "items"
    return f"{row['key']}  {row['items']} {items}  changed {local(row['changed_at'])}{expiry}"


@sessions.command()
@click.argument("key")
@operation
async def show(call: OperationCall, key: str) -> None:
    """Show the items of a session, with the time and the run that appended each."""
    from callboard.actors.memory import session
    from callboard.service.operations.narration import local
    from callboard.service.operations.results import compact

    async with _store(call) as store:
        found = await session.read_session(store, call.config.tenant, key, _now_ms())
    if not found:
        raise _unknown_session(key)
    call.answer(
        [{"item": one["item"], "at": _at(one["at_ms"]), "run": one["run"]} for one in found],
        (f"{local(_at(one['at_ms']))}  {one['run']}  {compact(one['item'])}" for one in found),
    )


@sessions.command()
@click.argument("key")
@operation
async def forget(call: OperationCall, key: str) -> None:
    """Remove a session with all its items. The logs of runs still have the items that the runs read and appended."""
    from callboard.actors.memory import session

    async with _store(call) as store:
        if not await session.forget_session(store, call.config.tenant, key):
            raise _unknown_session(key)
    call.answer({"forgotten": key}, f"{key} forgotten")


@asynccontextmanager
async def _store(call: OperationCall) -> "AsyncGenerator[Store]":
    """Open the store of sessions.

    :raises CallboardError: if the store cannot be used
    """
    from callboard.actors.memory.store import Unavailable
    from callboard.bus.errors import CallboardError
    from callboard.bus.nats.key_value import KeyValueStore
    from callboard.bus.nats.stream import bucket_of

    async with call.connect() as connection:
        log = connection.log
        try:
            yield KeyValueStore(log.nc, bucket_of(log.subjects), call.config.replicas, Unavailable)
        except Unavailable as error:
            remedy = "Check the NATS server, and try again."
            raise CallboardError(error.failure.code, error.failure.message, remedy=remedy) from error


def _now_ms() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)


def _at(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


def _unknown_session(key: str) -> Exception:
    from callboard.runtime.client.errors import UsageInvalid

    return UsageInvalid(f"there is no session {key!r}; callboard sessions list has all", "KEY")
