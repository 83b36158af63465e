"""Runs all checks of a deployment, in order."""

from contextlib import aclosing

from callboard.bus.nats.jetstream_api import api
from callboard.runtime.client.connection import Connection
from callboard.service.operations.doctor.findings import Finding
from callboard.service.operations.doctor.growth import check_growth
from callboard.service.operations.doctor.security import check_security
from callboard.service.operations.doctor.store import check_store

TENANTS_SEEN_MAX = 1_000


async def examine(connection: Connection) -> list[Finding]:
    """Check a deployment.

    :raises NoAnswer: if the log does not answer
    """
    findings = list[Finding]()
    async with aclosing(check_store(connection)) as found:
        findings += [finding async for finding in found]
    async with aclosing(check_growth(connection)) as found:
        findings += [finding async for finding in found]
    async with aclosing(check_security(connection, await tenants_of(connection))) as found:
        findings += [finding async for finding in found]
    return findings


async def tenants_of(connection: Connection) -> list[str]:
    """Return the tenants that have started runs, at most `TENANTS_SEEN_MAX`.

    :raises NoAnswer: if the log does not answer
    """
    log = connection.log
    body = {"subjects_filter": f"{log.subjects.prefix}.start.*"}
    answer = await api(log.requests, f"STREAM.INFO.{log.stream}", body)
    subjects = list((answer.get("state") or {}).get("subjects") or {})[:TENANTS_SEEN_MAX]
    return sorted({log.subjects.parse_inbound(subject)[0] for subject in subjects} | {connection.config.tenant})
