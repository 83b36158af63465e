"""Readiness: whether a worker can take runs just now, for those who start and stop workers."""

from callboard.runtime.worker.worker import Worker
from callboard.service.api.connection import Connection


def unready(worker: Worker, connection: Connection) -> str:
    """Say why a worker takes no runs; nothing if it does."""
    if not connection.nc.is_connected:
        return "there is no connection to the NATS server"
    if not worker.ready.is_set():
        return "it has not taken its place among the workers yet"
    if worker.draining:
        return "it drains"
    if (full := connection.log.room.closed or connection.log.room.full) is not None:
        return f"the store takes nothing in: {full.reason}"
    return ""
