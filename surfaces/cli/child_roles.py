"""What the child processes of ``callboard up`` and ``callboard worker`` do: one function for each kind of child.

Their modules are imported in the child, so that the parent stays small.
"""

from callboard.surfaces.cli.child_processes import ProcessOptions


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
    from callboard.surfaces.cli.cold import attend_cold

    await attend_cold(process_options)


async def run_retention_child(process_options: ProcessOptions) -> None:
    """Run as the process that applies the retention rules."""
    from callboard.surfaces.cli.removal import attend_retention

    await attend_retention(process_options)
