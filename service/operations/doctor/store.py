"""The checks of the store: lost data, free space, and durability of acknowledged events."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.stream import bounds_of, lost_bytes
from callboard.runtime.client.connection import Connection
from callboard.service.operations.doctor.findings import Finding, ok

AREA = "store"

FULL_SHARE = 0.75
"""Share of its quota from which on a store is reported as filling up."""


async def check_store(connection: Connection) -> AsyncGenerator[Finding]:
    """Check the stream that contains the log.

    :raises NoAnswer: if the log does not answer
    """
    log = connection.log
    stream = await api(log.requests, f"STREAM.INFO.{log.stream}", {})
    yield await _loss(connection)
    yield _bounds(stream.get("config", {}))
    yield await _quota(connection)
    yield _durability(connection, stream)


async def _loss(connection: Connection) -> Finding:
    lost = await lost_bytes(connection.log.requests, connection.log.stream)
    if not lost:
        return ok(AREA, "store-loss", "the server reports no damaged file; `callboard verify` checks every event")
    message = f"the server dropped {lost} bytes of a damaged file when it started"
    return Finding(
        AREA, "store-loss", "error", message, "Run `callboard verify`, and import damaged runs from an archive."
    )


def _bounds(config: Mapping[str, Any]) -> Finding:
    bounds = bounds_of(config)
    if not bounds:
        return ok(AREA, "store-bounds", "the stream has no limits of size or age, so it drops no events")
    named = ", ".join(f"{name}={value}" for name, value in bounds.items())
    message = f"the stream has limits ({named}) beyond which it drops its oldest events"
    return Finding(AREA, "store-bounds", "error", message, f"Remove them: `nats stream edit {', '.join(bounds)}`.")


async def _quota(connection: Connection) -> Finding:
    if connection.server is not None:
        usage = await connection.server.usage()
        used, most = (usage.used, usage.most) if usage is not None else (0, 0)
    else:
        answer = await api(connection.log.requests, "INFO", {})
        used, most = answer.get("storage", 0), answer.get("limits", {}).get("max_storage", -1)
    if most <= 0:
        return ok(AREA, "store-room", f"the store holds {used} bytes, and {_describe_no_quota(connection)}")
    share = used / most
    if share < FULL_SHARE:
        return ok(AREA, "store-room", f"the store holds {used} of {most} bytes ({share:.0%})")
    message = f"the store holds {used} of {most} bytes ({share:.0%})"
    return Finding(AREA, "store-room", "warning", message, "Purge runs that have ended, or give the store more room.")


def _describe_no_quota(connection: Connection) -> str:
    if connection.server is not None:
        return "has no quota"
    # No answer of JetStream to an account has the limits of the server.
    return "the account has no quota; the limit of the server (`max_file_store`) and its disk are not visible here"


def _durability(connection: Connection, stream: Mapping[str, Any]) -> Finding:
    config = connection.config
    if connection.server is not None:
        if config.sync == "always":
            return ok(AREA, "store-sync", "acknowledged events survive a power failure (sync: always)")
        message = f"a power failure loses the events of the last {config.sync} (sync: {config.sync})"
        remedy = 'Set `sync = "always"`; every append then waits until it is on disk.'
        return Finding(AREA, "store-sync", "warning", message, remedy)
    replicas = stream.get("config", {}).get("num_replicas", 1)
    if replicas > 1:
        return ok(AREA, "store-replicas", f"{replicas} servers have a copy of every event")
    message = "one server has the only copy of every event"
    return Finding(
        AREA, "store-replicas", "warning", message, "Use a cluster, and create the stream with `replicas = 3`."
    )
