"""Readiness: reports whether a worker can take runs now, for programs that start and stop workers."""

from callboard.runtime.worker.worker import Worker
from callboard.service.client.connection import Connection


def unready(worker: Worker, connection: Connection) -> str:
    """Return why a worker takes no runs; empty if it does."""
    if not connection.nc.is_connected:
        return "there is no connection to the NATS server"
    if not worker.ready.is_set():
        return "the worker has not joined the other workers yet"
    if worker.draining:
        return "the worker is draining"
    if (full := connection.log.room.closed or connection.log.room.full) is not None:
        return f"the store accepts no messages: {full.reason}"
    return ""
