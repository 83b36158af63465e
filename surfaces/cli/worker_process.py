"""A worker as a child process of ``callboard up`` or ``callboard worker``. It executes the code of workflows."""

import os
import signal
from contextlib import AsyncExitStack

import anyio

from callboard.features.telemetry.log_exporter import exporting_logs
from callboard.runtime.client.connection import open_connection
from callboard.runtime.cluster.membership import name_worker
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli.child_processes import READY, ProcessOptions, report, reporting_life, watch_parent
from callboard.surfaces.cli.process import worker_environment
from callboard.surfaces.cli.reloading import load_or_wait, register_code


async def run_worker(process_options: ProcessOptions) -> None:
    """Work until SIGTERM, and drain; or until the parent exits.

    :raises CallboardError: if the code cannot be loaded or registered
    :raises OperatorError: if the worker cannot work
    """
    async with AsyncExitStack() as stack:
        env = stack.enter_context(worker_environment(None, *process_options.folders))
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(watch_parent())
        bundles = await load_or_wait(process_options, signals)
        if bundles is None:
            return
        connection = await stack.enter_async_context(
            open_connection(process_options.config, "callboard worker", gaps_expected=True)
        )
        stack.enter_context(exporting_logs(process_options.config.otel))
        worker = await stack.enter_async_context(
            open_worker(
                connection,
                env,
                server_up_at=process_options.server_up_at,
                name=name_worker(os.getpid(), process_options.mark),
            )
        )
        if process_options.registers and process_options.reloads:
            await register_code(connection, process_options.code, bundles)
        elif process_options.registers:
            for bundle in bundles:
                await register_bundle(connection, bundle)
        report(READY)
        await stack.enter_async_context(reporting_life())
        async for _first in signals:
            break
        await worker.drain(process_options.drain_wait_s)
