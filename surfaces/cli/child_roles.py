"""What the child processes of ``callboard up`` and ``callboard worker`` do: one function for each kind of child.

Modules are imported in the child, so that the parent stays small.
"""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from callboard.surfaces.cli.child_processes import ProcessOptions, watch_parent

if TYPE_CHECKING:
    from callboard.features.cold.cooling_leader import CoolingLeader
    from callboard.service.retention.retention import RetentionLeader


async def run_worker_child(process_options: ProcessOptions) -> None:
    """Run as a worker, until SIGTERM, and drain; or until the parent exits."""
    from callboard.surfaces.cli.worker_process import run_worker

    await run_worker(process_options)


async def run_http_child(process_options: ProcessOptions) -> None:
    """Run as the process that serves HTTP."""
    from callboard.surfaces.cli.http import serve_http_child

    await serve_http_child(process_options)


async def run_cold_child(process_options: ProcessOptions) -> None:
    """Run as the process that moves runs to cold storage."""
    from callboard.features.cold.cooling_leader import LEADERSHIP, CoolingLeader

    await _lead(process_options, LEADERSHIP, CoolingLeader)


async def run_retention_child(process_options: ProcessOptions) -> None:
    """Run as the process that applies the retention rules."""
    from callboard.service.retention.retention import LEADERSHIP, RetentionLeader

    await _lead(process_options, LEADERSHIP, RetentionLeader)


async def _lead(options: ProcessOptions, name: str, leader: "type[CoolingLeader] | type[RetentionLeader]") -> None:
    """Be a candidate for a leadership, and do its work while elected, until SIGTERM or until the parent exits."""
    import signal

    import anyio

    from callboard.runtime.client.connection import open_connection
    from callboard.runtime.cluster.leader import holding

    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(watch_parent())
        connection = await stack.enter_async_context(
            open_connection(options.config, f"callboard {name}", gaps_expected=True)
        )
        holders = {f"{connection.log.subjects.prefix}.office.{name}": leader(connection)}
        await stack.enter_async_context(holding(connection.nc, holders, connection.log.store))
        async for _first in signals:
            break
