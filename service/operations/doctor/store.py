"""The checks of the store: what it has lost, how full it is, and how safe what it acknowledges is."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.stream import bounds_of, lost_bytes
from callboard.service.api.connection import Connection
from callboard.service.operations.doctor.findings import Finding, ok

AREA = "store"

FULL_SHARE = 0.75
"""From this share of its bound on a store is reported as filling up."""


async def check_store(connection: Connection) -> AsyncGenerator[Finding]:
    """Check the stream that holds everything.

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
        return ok(AREA, "store-loss", "the server reports no damaged file; `callboard verify` reads every event")
    message = f"the server dropped {lost} bytes of a damaged file when it started"
    return Finding(
        AREA, "store-loss", "error", message, "Run `callboard verify`, and import damaged runs from an archive."
    )


def _bounds(config: Mapping[str, Any]) -> Finding:
    bounds = bounds_of(config)
    if not bounds:
        return ok(AREA, "store-bounds", "the stream drops nothing: it has no bounds of size or age")
    named = ", ".join(f"{name}={value}" for name, value in bounds.items())
    message = f"the stream has bounds ({named}) beyond which it drops its oldest events"
    return Finding(AREA, "store-bounds", "error", message, f"Take them off: `nats stream edit {', '.join(bounds)}`.")


async def _quota(connection: Connection) -> Finding:
    if connection.server is not None:
        usage = await connection.server.usage()
        used, most = (usage.used, usage.most) if usage is not None else (0, 0)
    else:
        answer = await api(connection.log.requests, "INFO", {})
        used, most = answer.get("storage", 0), answer.get("limits", {}).get("max_storage", -1)
    if most <= 0:
        return ok(AREA, "store-room", f"the store holds {used} bytes, and has no quota")
    share = used / most
    if share < FULL_SHARE:
        return ok(AREA, "store-room", f"the store holds {used} of {most} bytes ({share:.0%})")
    message = f"the store holds {used} of {most} bytes ({share:.0%})"
    return Finding(AREA, "store-room", "warning", message, "Purge runs that have ended, or give the store more room.")


def _durability(connection: Connection, stream: Mapping[str, Any]) -> Finding:
    config = connection.config
    if connection.server is not None:
        if config.sync == "always":
            return ok(AREA, "store-sync", "what is acknowledged survives a power loss (sync: always)")
        message = f"what was acknowledged within the last {config.sync} is lost with the power (sync: {config.sync})"
        return Finding(
            AREA, "store-sync", "warning", message, 'Set `sync = "always"`, which each append then waits for.'
        )
    replicas = stream.get("config", {}).get("num_replicas", 1)
    if replicas > 1:
        return ok(AREA, "store-replicas", f"{replicas} servers have a copy of every event")
    message = "one server has the only copy of every event"
    return Finding(
        AREA, "store-replicas", "warning", message, "Use a cluster, and create the stream with `replicas = 3`."
    )
