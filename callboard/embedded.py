"""The runtime inside a program: server, worker and client in one block, or one run in one call."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Unpack

import structlog

from callboard.client import Client
from callboard.features.telemetry.exporters import open_exporters
from callboard.projections.run.run_result import RunResult
from callboard.runtime.client.connection import Connection
from callboard.runtime.hosting.code_loader import load, load_object
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import Config
from callboard.service.operations.reach import join
from callboard.service.worker.bootstrap import open_worker
from callboard.start_options import Start, Startable

logger = structlog.get_logger(__name__)

DRAIN_S = 5.0
"""The time for running effects to finish when the block ends."""


class Runtime(Client):
    """A client with a server and a worker: ``async with Runtime(data_dir="state") as runtime``.

    Runs started here are executed in this process, so Python tools are functions that the program can import. Runs that
    have not ended when the block ends continue when a worker opens the same store again. With ``nats_url``, the runtime
    connects to that server. If another process runs a server over ``data_dir``, the runtime connects to it. Unless the
    program has configured structlog, warnings and errors are logged to stderr.
    """

    def __init__(self, *, code: Sequence[object] = (), **settings: Any) -> None:
        """``code``: modules, workflows, or names of modules, files and folders, whose workflows are performed here."""
        super().__init__(**settings)
        self._bundles = [load(one) if isinstance(one, str) else load_object(one) for one in code]

    async def _open(self, stack: AsyncExitStack, config: Config) -> Connection:
        if not logs.is_configured():
            said_by = {name: source for name, _value, source in config.explain()}["log_level"]
            logs.configure("warning" if said_by == "default" else config.log_level, config.log_format)
            logs.keep_out(config.secrets())
        connection = await stack.enter_async_context(join(config, name="callboard runtime", say=logger.info))
        await stack.enter_async_context(open_exporters(connection))
        worker = await stack.enter_async_context(open_worker(connection, guest=True))
        stack.push_async_callback(worker.drain, DRAIN_S)
        self._worker = worker.name
        for bundle in self._bundles:
            await register_bundle(connection, bundle)
        return connection


async def run(
    file: Startable | None = None, *, settings: dict[str, Any] | None = None, **start: Unpack[Start]
) -> RunResult:
    """Execute one run in this program until it ends, and return its result.

    This opens a `Runtime` with these ``settings`` for the duration of the run. The log remains in its ``data_dir``. For
    a run that asks a person or waits for a signal, use a `Runtime` and the handle that `Client.start` returns.

    :raises RequestRefused: with every problem of the definition, or of the start
    :raises UsageInvalid: if there is not exactly one definition
    :raises OperatorError: if the server or the worker cannot work
    """
    async with Runtime(**(settings or {})) as runtime:
        started = await runtime.start(file, **start)
        return await started.result()
