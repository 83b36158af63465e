"""Replay: how fast a log is read, replayed and folded, and how soon a large run resumes after its worker was killed."""

import time
from collections.abc import Callable

import anyio

from benchmarks.staffed import fresh_deployment, staffed_connection, start_message
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.projections.lists.runs import Runs
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import Connection
from callboard.runtime.interpreter.replay import build_stage, read_admission, replay
from callboard.runtime.interpreter.run_end import conclude
from callboard.runtime.run.log import events_of, read_run
from callboard.runtime.run.replay_observer import Observer
from callboard.service.worker.bootstrap import open_worker

NODES = 1_000


async def finish_run(connection: Connection, run_id: str) -> list[Event]:
    client = connection.client
    async with client.follow(event_type="run.end", after=None) as ends:
        await client.start(start_message(NODES, run_id) | {"options": {"max_steps": 2 * NODES}})
        async for recorded in ends:
            if recorded.ref.run == run_id:
                break
    return events_of(await read_run(connection.log, client.ref(run_id)))


def replay_run(ref: RunRef, events: list[Event], definitions: Definitions) -> None:
    admission = read_admission(events[0], definitions.language)
    stage, started = build_stage(admission, ref, events, Observer(ref, events[-1]))
    replay(stage, admission, started, events)
    conclude(stage)
    stage.ledger.verify_replayed()


def spans(events: list[Event]) -> None:
    folding = SpanFold()
    for event in events:
        folding.apply(event)


def rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


async def report() -> None:
    print(f"Replay of a finished run of {NODES} nodes")
    async with staffed_connection("100ms") as connection:
        events = await finish_run(connection, "long")
        ref = connection.client.ref("long")
        began = time.perf_counter()
        await read_run(connection.log, ref)
        print(f"  read        {len(events) / (time.perf_counter() - began):>9,.0f} events/s")
    count = len(events)
    # A worker parses a definition once, and keeps it for all runs.
    definitions = Definitions()
    read_admission(events[0], definitions.language)
    print(f"  replay      {rate(count, lambda: replay_run(ref, events, definitions)):>9,.0f} events/s")
    print(f"  results     {rate(count, lambda: fold(Results(), events)):>9,.0f} events/s")
    print(f"  trace       {rate(count, lambda: fold(TraceFold(), events)):>9,.0f} events/s")
    print(f"  spans       {rate(count, lambda: spans(events)):>9,.0f} events/s")
    print(f"  runs        {rate(count, lambda: fold(Runs(), events)):>9,.0f} events/s")
    await measure_resume()


async def measure_resume() -> None:
    """Stop a worker a few nodes before the end, and measure how long another needs until it enters the next node."""
    async with fresh_deployment("100ms") as connection:
        client = connection.client
        stop_at = f"n{NODES - 5}"
        async with client.follow(event_type="node.enter", after=None) as entries:
            async with open_worker(connection, {}):
                await client.start(start_message(NODES, "cut") | {"options": {"max_steps": 2 * NODES}})
                async for recorded in entries:
                    if recorded.event.path == stop_at:
                        break
            async with open_worker(connection, {}):
                began = time.perf_counter()
                with anyio.fail_after(60):
                    async for recorded in entries:
                        if recorded.event.epoch == 2:
                            break
                print(f"  resumed     {time.perf_counter() - began:>9.3f} s from the worker being up to its next node")
