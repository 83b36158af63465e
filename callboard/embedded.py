"""The runtime inside of a program: server, worker and client in one block; and one run in one call."""

from contextlib import AsyncExitStack
from typing import Any, Unpack

import structlog

from callboard.client import Client
from callboard.projections.run_result import RunResult
from callboard.runtime.api.connection import Connection
from callboard.runtime.export.exporters import open_exporters
from callboard.runtime.operations.reach import join
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.bootstrap import open_worker
from callboard.starting import DefinitionFile, Start

logger = structlog.get_logger(__name__)

DRAIN_S = 5.0
"""How long running effects may take to finish when the block is left."""


class Runtime(Client):
    """A client that brings a server and a worker: ``async with Runtime(data_dir="state") as runtime``.

    Runs started here are performed here, so Python tools are functions that this program can import. What has not ended
    when the block is left goes on when a worker opens the same store again. With ``nats_url`` the server is that one; a
    server that another process runs over ``data_dir`` is joined. Unless the program has configured structlog, the log
    goes to stderr, warnings and worse.
    """

    async def _open(self, stack: AsyncExitStack, config: Config) -> Connection:
        if not structlog.is_configured():
            said_by = {name: source for name, _value, source in config.explain()}["log_level"]
            logs.configure("warning" if said_by == "default" else config.log_level, config.log_format)
            logs.keep_out(config.secrets())
        connection = await stack.enter_async_context(join(config, name="callboard runtime", say=logger.info))
        await stack.enter_async_context(open_exporters(connection))
        worker = await stack.enter_async_context(open_worker(connection, guest=True))
        stack.push_async_callback(worker.drain, DRAIN_S)
        self._worker = worker.name
        return connection


async def run(
    file: DefinitionFile | None = None, *, settings: dict[str, Any] | None = None, **start: Unpack[Start]
) -> RunResult:
    """Perform one run in this program, to its end, and return how it came out.

    It is a `Runtime` with these ``settings`` for as long as that takes; the log stays in its ``data_dir``. A run that
    asks somebody, or waits for a signal, wants a `Runtime` and the handle that `Client.start` returns.

    :raises RequestRefused: with every problem of the definition, or of the start
    :raises UsageInvalid: if there is not exactly one definition
    :raises OperatorError: whatever keeps server or worker from working
    """
    async with Runtime(**(settings or {})) as runtime:
        started = await runtime.start(file, **start)
        return await started.result()
