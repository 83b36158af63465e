"""Parked workflows in Python: the memory that a worker keeps of them, and how fast they park and resume.

Each run waits in a ``gather`` for a question with a timeout, and for a timer. The server is a process of its own, so
the memory measured is that of the worker.
"""

import asyncio
import gc
import os
import time

import anyio

from benchmarks.footprint import resident_mb
from benchmarks.staffed import staffed_connection
from callboard import ask, step, workflow
from callboard.bus import events as ev
from callboard.bus.commands import Answer
from callboard.languages.python.loop import WorkflowLoop
from callboard.runtime.client.connection import Connection
from callboard.runtime.hosting.code_loader import load_object

RUNS = 1_000
AT_ONCE = 50
PATIENCE_S = 600


@step
async def look(n: int) -> int:
    return n


async def _ask(n: int) -> int:
    await look(n)
    async with asyncio.timeout(3600):
        return await ask("How many?", int)


@workflow
async def parking(n: int) -> list[int]:
    return list(await asyncio.gather(_ask(n), asyncio.sleep(1, n)))


def containers() -> tuple[int, int]:
    """Return how many containers are in memory without a garbage collection, and how many are loops of workflows."""
    found = gc.get_objects()
    return len(found), sum(isinstance(one, WorkflowLoop) for one in found)


async def park_runs(connection: Connection, definition: str, tag: str, runs: int) -> dict[str, str]:
    """Start runs, and wait until all have left memory; return the keys of their questions, by run."""
    client = connection.client
    limit = anyio.CapacityLimiter(AT_ONCE)
    questions: dict[str, str] = {}
    waiting = {f"{tag}-{n}" for n in range(runs)}

    async def start(n: int) -> None:
        async with limit:
            source = {"language": "python", "source": definition}
            await client.start({"definition": source, "input": {"n": n}, "run_id": f"{tag}-{n}"}, wait_s=PATIENCE_S)

    async with client.follow(after=None) as events, anyio.create_task_group() as tasks:
        for n in range(runs):
            tasks.start_soon(start, n)
        slept: set[str] = set()
        async for recorded in events:
            run, event = recorded.ref.run, recorded.event
            if event.type == ev.HumanAsked.type:
                questions[run] = event.key
            elif event.type == ev.TimerFired.type:
                slept.add(run)
            elif event.type == ev.RunParked.type and run in slept:
                waiting.discard(run)
                if not waiting:
                    break
    return questions


async def answer_all(connection: Connection, questions: dict[str, str]) -> int:
    """Answer every question; return how many runs have completed when all have ended."""
    client = connection.client
    limit = anyio.CapacityLimiter(AT_ONCE)
    completed = 0
    left = set(questions)

    async def answer(run: str, key: str) -> None:
        async with limit:
            await client.tell(run, "answer", Answer(interaction=key, user_response=1), wait_s=PATIENCE_S)

    async with client.follow(event_type=ev.RunEnd.type, after=None) as ends, anyio.create_task_group() as tasks:
        for run, key in questions.items():
            tasks.start_soon(answer, run, key)
        async for recorded in ends:
            end = ev.payload_of(recorded.event)
            completed += isinstance(end, ev.RunEnd) and end.status == "completed"
            left.discard(recorded.ref.run)
            if not left:
                break
    return completed


async def report() -> None:
    bundle = load_object(parking)
    definition = bundle.definitions["parking"]
    print(f"Parked workflows in Python: {RUNS} runs in a gather of a question with a timeout, and a timer")
    with anyio.fail_after(PATIENCE_S):
        async with staffed_connection("100ms") as connection:
            # Memory that a process allocates only once does not belong to the runs.
            await answer_all(connection, await park_runs(connection, definition, "first", RUNS // 4))
            gc.collect()
            before_mb, (before, _) = resident_mb(os.getpid()), containers()
            began = time.perf_counter()
            questions = await park_runs(connection, definition, "parked", RUNS)
            took_s = time.perf_counter() - began
            grown_kb = (resident_mb(os.getpid()) - before_mb) * 1024
            after, loops = containers()
            print(f"  parked      {RUNS / took_s:>9,.0f} runs/s")
            print(f"  memory      {grown_kb / RUNS:>9.1f} KB per parked run")
            print(f"  containers  {(after - before) / RUNS:>9.1f} per parked run, of which {loops} loops of workflows")
            began = time.perf_counter()
            completed = await answer_all(connection, questions)
            print(f"  resumed     {completed / (time.perf_counter() - began):>9,.0f} runs/s, {completed} completed")
