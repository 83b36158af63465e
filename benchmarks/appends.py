"""Throughput: events per second of one run and of many, next to raw guarded appends of the same machine and minute."""

import time

import anyio

from benchmarks.staffed import events_of, fresh_deployment, staffed_connection, start_message
from callboard.bus.nats.commit import OutgoingMessage, guard_headers, publish
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import RunRef, Subjects
from callboard.runtime.client.connection import Connection

RAW_BYTES = 400
RAW_EVENTS = 4_000
RUNS = 50
NODES = 10
ROUNDS = 5


async def raw(connection: Connection, runs: int) -> float:
    """Return guarded, acknowledged appends per second, one outstanding per run, nothing else."""
    requests = Requests(connection.log.nc)
    subjects = Subjects(connection.config.prefix)
    body = b'{"pad":"' + b"x" * RAW_BYTES + b'"}'

    async def one(run: str) -> None:
        ref = RunRef("raw", run)
        after = 0
        for _ in range(RAW_EVENTS // runs):
            subject = subjects.event(ref, "raw", "node.exit")
            after = await publish(requests, OutgoingMessage(subject, body, guard_headers(after, subjects.run(ref))))

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for i in range(runs):
            tasks.start_soon(one, f"{runs}-{i}")
    return RAW_EVENTS / (time.perf_counter() - began)


async def measure_appends(connection: Connection, runs: int, nodes: int, tag: str) -> float:
    """Return the events per second of ``runs`` chains at once, from publishing the starts to the last ``run.end``."""
    client = connection.client
    ids = {f"{tag}-{i}" for i in range(runs)}
    async with client.follow(event_type="run.end", after=None) as ends:
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for run_id in ids:
                tasks.start_soon(client.start, start_message(nodes, run_id))
        left = set(ids)
        async for recorded in ends:
            left.discard(recorded.ref.run)
            if not left:
                break
    return runs * events_of(nodes) / (time.perf_counter() - began)


async def report() -> None:
    print(f"Events per second; a chain of {NODES} nodes on a scripted model, every event recorded; best of {ROUNDS}")
    print(f"{'sync':>8} {'runs':>5} {'raw appends':>12} {'callboard':>10} {'ratio':>6}")
    for sync in ("100ms", "always"):
        for runs in (1, RUNS):
            async with fresh_deployment(sync) as connection:
                appends = max([await raw(connection, runs)])
            async with staffed_connection(sync) as connection:
                await measure_appends(connection, 1, NODES, "warm")
                events = max([await measure_appends(connection, runs, NODES, f"r{i}") for i in range(ROUNDS)])
            print(f"{sync:>8} {runs:>5} {appends:>12,.0f} {events:>10,.0f} {events / appends:>6.2f}")
