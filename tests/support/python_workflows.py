"""Workflows in Python that the tests of the language perform."""

import asyncio
import os
import random as stdlib_random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4 as stdlib_uuid4

from pydantic import BaseModel

from callboard import (
    Agent,
    McpTools,
    StepFailed,
    ask,
    child,
    continue_as_new,
    generate,
    now,
    progress,
    random,
    run_info,
    signal,
    step,
    step_context,
    unsafe,
    uuid4,
    workflow,
)
from tests.support.forks import python
from tests.support.places import TESTS


class Incident(BaseModel):
    service: str
    urls: list[str]


class Verdict(BaseModel):
    restart: bool
    why: str = ""


@dataclass
class Sizes:
    of: list[int]


@step
async def size(url: str) -> int:
    return len(url)


@step
def plus_one(n: int) -> int:
    return n + 1


@step
async def total(sizes: Sizes) -> int:
    return sum(sizes.of)


@workflow
async def triage(incident: Incident) -> dict[str, Any]:
    """Look at an incident, and ask."""
    sizes = await asyncio.gather(*(size(url) for url in incident.urls))
    try:
        async with asyncio.timeout(3600):
            verdict = await ask("Restart it?", Verdict, to="ada")
    except TimeoutError:
        verdict = Verdict(restart=False, why="no answer in time")
    return {"sizes": sizes, "verdict": verdict, "total": await total(Sizes(sizes))}


@workflow
async def grouped(n: int, names: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}

    async def one(name: str) -> None:
        found[name] = await plus_one(await size(name) + n)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name), name=name)
    return found


tries: dict[str, int] = {}
"""How often a failing step was called, by its idempotency key."""


@step(retries=2, backoff=5, retry_on=LookupError)
async def flaky(kind: str) -> str:
    context = step_context()
    tries[context.idempotency_key] = tries.get(context.idempotency_key, 0) + 1
    if kind == "hopeless":
        raise ValueError("no use")
    if context.attempt < 3:
        raise LookupError(f"not yet: {context.attempt}")
    return context.path


@workflow
async def retrying(kind: str) -> str:
    try:
        return await flaky(kind)
    except StepFailed as failed:
        return f"{failed.code} {failed.type} {failed}"


@step
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@workflow
async def racing() -> str:
    """Take what comes first; the loser is cancelled in the log."""
    first = asyncio.ensure_future(slow(60))
    second = asyncio.ensure_future(asyncio.sleep(10, "slept"))
    done, pending = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return next(iter(done)).result()


@workflow
async def queued(count: int) -> list[int]:
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    found: list[int] = []

    async def produce() -> None:
        for n in range(count):
            await queue.put(await plus_one(n))
        await queue.put(-1)

    async def consume() -> None:
        while (n := await queue.get()) >= 0:
            found.append(n)

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(consume())
    return found


@workflow
async def signalled() -> Any:
    price = await signal("price", int)
    progress(f"the price is {price}")
    return {"price": price, "more": await signal("more")}


@workflow
async def tidying() -> str:
    try:
        await asyncio.sleep(3600)
    finally:
        await size("tidy")
    return "not cancelled"


@step
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"{order}: {cents}"


async def look_up(order: str) -> dict[str, int]:
    """Return what an order has cost, in cents."""
    if order == "lost":
        raise LookupError("no such order")
    return {"cents": len(order) * 100}


clerk = Agent("clerk", system="Be fair.", tools=[refund, look_up], approve=["refund"], output=Verdict, turns=6)


@workflow
async def serving(text: str) -> dict[str, Any]:
    answer = await clerk.run(text)
    return {"verdict": answer.output, "turns": answer.turns}


desk = McpTools(
    "desk", command=python(str(TESTS / "fixtures" / "tools" / "mcp_server.py")), allow=["weather", "refuse"]
)
guide = Agent("guide", tools=[look_up], servers=[desk], approve=["refuse"])


@workflow
async def guiding(text: str) -> str:
    answer = await guide.run(text)
    return answer.text


lost = Agent("lost", servers=[McpTools("nowhere", command=[sys.executable, "-c", "raise SystemExit(3)"])])


@workflow
async def unguided(text: str) -> str:
    try:
        await lost.run(text)
    except StepFailed as failed:
        return failed.code
    return "opened"


@workflow
async def stubborn() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "not cancelled"
    return "slept"


@workflow
async def chancy() -> dict[str, Any]:
    before = now()
    drawn = [random(), random(), str(uuid4())]
    await asyncio.sleep(5)
    return {
        "drawn": drawn,
        "slept": (now() - before).total_seconds(),
        "run": run_info().id,
        "task": asyncio.current_task() is not None,
    }


@workflow
async def raising() -> None:
    await size("x")
    raise KeyError("gone")


@workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


@workflow
async def leaving() -> None:
    sys.exit("bye")


@step
async def quit_now() -> None:
    sys.exit("bye")


@workflow
async def quitting() -> str:
    try:
        await quit_now()
    except StepFailed as error:
        return error.type
    return "went on"


@workflow
async def spinning() -> None:
    while True:  # noqa: ASYNC110 - the test is of a loop without end
        await asyncio.sleep(0)


at_once: list[int] = [0, 0]


@step(concurrency=2)
async def bounded(n: int) -> int:
    at_once[0] += 1
    at_once[1] = max(at_once)
    await asyncio.sleep(1)
    at_once[0] -= 1
    return n


@workflow
async def bounding() -> list[int]:
    return await asyncio.gather(*(bounded(n) for n in range(6)))


@step(timeout="2s")
async def late() -> None:
    await asyncio.sleep(60)


@workflow
async def timing() -> str:
    try:
        await late()
    except StepFailed as failed:
        return failed.code
    return "in time"


@workflow
async def looping() -> list[int]:
    """Use supported and unsupported functions of the loop."""
    loop = asyncio.get_running_loop()
    return [await loop.run_in_executor(None, len, "four"), int(loop.time())]


@workflow
async def opening() -> None:
    await asyncio.open_connection("localhost", 1)


coin: list[int] = [0]


@workflow
async def fickle() -> int:
    """Do otherwise each time."""
    coin[0] += 1
    return await size("x" * coin[0])


@workflow
async def fickle_at_the_end(how: str) -> int:
    """Do otherwise each time after the last step."""
    coin[0] += 1
    await size("x")
    if how == "progress":
        progress(f"{coin[0]}")
    if how == "step" and coin[0] % 2 == 0:
        await size("y")
    if how == "raise":
        raise ValueError(str(coin[0]))
    return coin[0] if how == "output" else 0


@workflow
async def forgetful() -> int:
    """Do less each time."""
    coin[0] += 1
    if coin[0] % 2 == 1:
        await asyncio.gather(size("a"), size("bb"), slow(60))
    return await size("b")


@workflow
async def judging(text: str) -> dict[str, Any]:
    verdict = await generate(f"Is this good? {text}", Verdict)
    return {"verdict": verdict, "said": await generate("Say so.")}


@workflow
async def careless() -> list[Any]:
    """Use the clock and chance of the standard library, which are the run's in a workflow."""
    drawn = [time.time(), stdlib_random.random(), stdlib_random.choice("abc"), str(stdlib_uuid4()), os.urandom(4).hex()]
    await size("x")
    return [*drawn, stdlib_random.randint(1, 1_000_000), sorted(stdlib_random.sample(range(100), 3)), time.time()]


@workflow
async def reading(how: str) -> str:
    """Read a file, as it must not, or as it may."""
    if how == "unsafe":
        with unsafe():
            return Path(__file__).read_text()[:3]  # noqa: ASYNC240 - it says so
    if how == "step":
        return await first_letters(__file__)
    if how == "thread":
        await asyncio.to_thread(print, "")
        threading.Thread(target=print).start()
    return Path(__file__).read_text()  # noqa: ASYNC240 - it must not


@step
def first_letters(file: str) -> str:
    return Path(file).read_text()[:3]


@workflow
async def counting_down(left: int, seen: list[str] | None = None) -> list[str]:
    seen = [*(seen or []), await noted(left)]
    if left > 0:
        continue_as_new(counting_down, left - 1, seen=seen)
    return seen


@step
async def noted(left: int) -> str:
    return str(left)


@workflow
async def waiting_for_counting_down(left: int) -> Any:
    return (await child(counting_down, {"left": left})).output


@workflow
async def collecting(until: int, items: list[str] | None = None) -> list[str]:
    """Collect items; continue as a new run after ``until`` of them, until ten have come."""
    items = items or []
    for _ in range(until):
        items.append(await signal("item", str))
    if len(items) < 10:
        await signal("go")
        continue_as_new(collecting, until, items)
    return items


@workflow
async def counting_signals(total: int, each: int, seen: list[int] | None = None) -> list[int]:
    """Take ``total`` signals, ``each`` of them per run."""
    seen = seen or []
    for _ in range(min(each, total - len(seen))):
        seen.append(await signal("item", int))
    if len(seen) < total:
        continue_as_new(counting_signals, total, each, seen)
    return seen


@workflow
async def taking_commands(left: int, seen: list[str] | None = None) -> list[str]:
    """Take a signal and an answer per run, and at last a signal."""
    seen = [*(seen or []), await signal("item", str), await ask("Go on?", str)]
    if left:
        continue_as_new(taking_commands, left - 1, seen)
    return [*seen, await signal("last", str)]


@step
async def tick() -> None:
    """Perform something."""


@workflow
async def continuing_at_once(busy: bool, n: int = 0) -> None:
    """Continue without end."""
    if busy:
        await tick()
    continue_as_new(continuing_at_once, busy, n + 1)


@workflow
async def sleeping(n: int = 0) -> int:
    if n < 2:
        continue_as_new(sleeping, n + 1)
    await asyncio.sleep(1000)
    return n


@workflow
async def asking_model(left: int) -> str:
    said = await generate("Say something.")
    if left:
        continue_as_new(asking_model, left - 1)
    return said


@workflow
async def asking_model_twice() -> str:
    return (await child(asking_model, {"left": 1})).output


@workflow
async def continuing_when_cancelled() -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        continue_as_new(continuing_when_cancelled)


@workflow
async def continuing_on_signal(n: int = 0) -> int:
    if n == 0:
        await signal("go")
        continue_as_new(continuing_on_signal, n + 1)
    return n


@workflow
async def waiting_for_sleeping() -> Any:
    return (await child(sleeping, {"n": 0})).output


@step
def going_on() -> None:
    continue_as_new()


@workflow
async def continuing_in_a_step() -> None:
    await going_on()


@workflow
async def continuing_another() -> None:
    continue_as_new(sleeping, 3)


@workflow
async def waiting_for_continuing() -> Any:
    return (await child(continuing_on_signal)).output
