"""Finding runs at the command line: the index of the data directory, brought up to the log, and questions to it."""

import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from callboard.bus.serverstore import running_url
from callboard.projections.runs import STATUSES
from callboard.projections.where import Both, Term, Where, where
from callboard.runtime.api.connection import Connection
from callboard.runtime.api.run_lists import Listings
from callboard.runtime.index.files import FOLDER


@asynccontextmanager
async def listings(connection: Connection) -> AsyncGenerator[Listings]:
    """The listings of runs, for the length of the block."""
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield Listings(connection.log, tasks, _folder(connection), prices=connection.config.price_table())
        except Exception as caught:
            # Raised below: the task group would wrap it.
            error = caught
        finally:
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error


async def found_runs(connection: Connection, question: Where) -> list[str]:
    """The ids of the tenant's runs that are wanted, the oldest first."""
    async with listings(connection) as found:
        return await found.ids(connection.config.tenant, question)


def _folder(connection: Connection) -> Path | None:
    """Where the index lies: with the store, if that is here."""
    config = connection.config
    here = connection.server is not None or running_url(config.data_dir) == config.nats_url
    return config.data_dir / FOLDER if here else None


def wanted(text: str | None, *, status: str | None = None, definition: str | None = None) -> Where:
    """Return the question that options amount to.

    :raises WhereInvalid: if its text cannot be understood
    """
    question = where(text or "", STATUSES, dt.datetime.now(dt.UTC))
    tests = [
        Term(name, "=", value) for name, value in (("status", status), ("definition", definition)) if value is not None
    ]
    return Both((*tests, question))
