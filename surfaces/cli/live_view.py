"""How a run is shown as it goes: which view, and for one that listens, what models are saying at the moment."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec
from nats.aio.msg import Msg

from callboard.service.api.connection import Connection
from callboard.surfaces.cli.event_output import Lines, Shower


def view_of_one(*, plain: bool) -> Shower:
    """The view of one run for people: its tree on a terminal, unless they want it ``plain``; else a line per event."""
    if plain or not sys.stdout.isatty():
        return Lines()
    from callboard.surfaces.cli.livetree import LiveTree

    return LiveTree()


@asynccontextmanager
async def hearing(connection: Connection, run: str, shower: Shower) -> AsyncGenerator[None]:
    """Hand what models say in a run to a view for the length of the block, piece by piece, if it listens."""

    async def take(message: Msg) -> None:
        piece = msgspec.json.decode(message.data)
        shower.delta(piece["n"], piece["k"], piece["text"])

    subject = connection.log.subjects.live(connection.client.ref(run), None, "model.delta")
    subscription = await connection.nc.subscribe(subject, cb=take) if shower.listens else None
    try:
        yield
    finally:
        if subscription is not None:
            with anyio.CancelScope(shield=True):
                await subscription.unsubscribe()
