"""A browser before a server with the page, runs for it to show, and what of them is hostile."""

import datetime as dt
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
from playwright.async_api import Page, Route

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import (
    Event,
    ModelCall,
    ModelResult,
    NodeEnter,
    NodeExit,
    Outline,
    OutlineNode,
    RunEnd,
    encode_event,
)
from callboard.bus.log.port import Entry, EventLog, append
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from tests.support.browser import Reused
from tests.support.cli_stage import Place
from tests.support.event_logs import Log
from tests.support.http_application import PATIENCE_S, served
from tests.support.ports import free_ports
from tests.support.workflows import document as workflow

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def usage(tokens: int) -> dict[str, int]:
    return {"input_tokens": tokens, "output_tokens": 10}


LOOP: dict[str, Any] = {
    "definition": {
        "source": json.dumps(
            workflow(
                {"a": {"name": "Ask"}, "b": {"name": "Build"}, "c": {"name": "Close"}},
                [("a", "b", "more"), ("a", "c", "enough"), {"from": "b", "to": "a", "max_iterations": 3}],
            )
        )
    },
    "model": "scripted",
    "script": {
        "turns": {
            "a": [{"text": "one", "usage": usage(100)}, {"text": "two", "usage": usage(200)}],
            "b": [{"text": EVIL, "usage": usage(5)}],
            "c": [{"error": "overloaded"}],
        },
        "routes": {"a": ["b", "c"]},
    },
    "input": {"who": EVIL, EVIL: [1, {"deep": EVIL}]},
}


ASKING = """\
# Order

Asks a person.

## STEP 1: Choose

@elicit(select, "Which carrier takes it?", "North", "South", "East", "West", "Post")
@output(carrier)
"""

WITH_INPUTS = json.dumps(
    workflow(
        {"a": {}},
        inputs={
            "service": {"type": "string", "required": True, "description": "What is down"},
            "severity": {"type": "string", "enum": ["low", "high"], "default": "low"},
            "count": {"type": "number"},
        },
    )
)


@dataclass
class Stage:
    """A browser, and the server that it looks at."""

    browser: Reused
    client: httpx2.AsyncClient
    connection: Connection
    open: set[str] = field(default_factory=set[str])
    """Runs that the test which looks at it has started, and whose end it has not waited for."""

    def url(self, path: str = "") -> str:
        return str(self.client.base_url.join(f"/t/acme/{path}"))

    async def start(self, run: str, start: dict[str, Any] = LOOP, *, end: bool = True) -> list[dict[str, Any]]:
        """Start a run; return its events when it has ended."""
        answer = await self.client.post("/runs", json={**start, "run_id": run})
        assert answer.status_code == 202, answer.text
        if not end:
            self.open.add(run)
            return []
        await self.client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})
        return (await self.client.get(f"/runs/{run}/events", params={"limit": 1_000})).json()["events"]

    async def kill(self, run: str) -> None:
        """Have a run that waits end: what it asks is not to stand in the inbox any more."""
        self.open.discard(run)
        await self.client.post(f"/runs/{run}/kill", json={})
        await self.client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """See to it that the pages of a test complain of nothing; leave neither them nor its runs to other tests."""
        self.browser.complaints.clear()
        self.open.clear()
        try:
            yield
        finally:
            await self.browser.close_pages()
            async with anyio.create_task_group() as tasks:
                for run in [*self.open]:
                    tasks.start_soon(self.kill, run)
        assert self.browser.complaints == [], self.browser.complaints


Furnish = Callable[[Reused, Path], AbstractAsyncContextManager[Stage]]


@asynccontextmanager
async def furnished(browser: Reused, home: Path, **settings: Any) -> AsyncGenerator[Stage]:
    """A stage with a server and a store of its own."""
    async with served(home, **settings) as (client, connection):
        yield Stage(browser, client, connection)


TENANT = "acme"
AT_ONCE = 500
"""Events that are appended together."""


async def put(log: EventLog, run: str, events: Sequence[Event], after: int = 0) -> int:
    """Append events to a run that nobody performs; return the sequence of the last one."""
    for start in range(0, len(events), AT_ONCE):
        part = events[start : start + AT_ONCE]
        entries = [
            Entry(one.n, one.epoch, one.type, one.definition, f"{run}.{one.n}", encode_event(one)) for one in part
        ]
        after = await append(log, RunRef(TENANT, run), entries, after)
    return after


def long_run(name: str, loops: int) -> Sequence[Event]:
    """A run whose one node is entered again and again, with three turns of a model each time: eight events."""
    log = Log(name, "long").started(Outline([OutlineNode("loop")]))
    for visit in range(1, loops + 1):
        log.enter("loop", visit)
        for turn in range(3):
            log.add(ModelCall("turn", "scripted", "00"), "loop", visit, 1, f"turn.{turn}")
            log.add(ModelResult(text="so", usage=Usage(120, 20)), "loop", visit, 1, f"turn.{turn}")
        log.exit("loop", iteration=visit)
    log.add(RunEnd("completed"))
    return log.events


FAILED = (7, 41)
"""The items of a fan-out that fail."""


def fan_out(run: str, items: int, *, left: int = 0) -> Log:
    """A run that asks a model about each item; some fail, and ``left`` are still being worked on."""
    log = Log(run, "scores").started(Outline([OutlineNode("score", "Score"), OutlineNode("sum", "Sum")]))
    log.enter("score")
    for item in range(items):
        path = f"score[{item}]"
        log.add(NodeEnter("node", "score", "Score", input={"item": item, "text": f"review {item}"}), path, 1, 1)
        log.add(ModelCall("turn", "scripted", "00"), path, 1, 1, "turn.1")
        if item >= items - left:
            continue
        log.time += dt.timedelta(seconds=item % 5)
        log.add(ModelResult(text="so", usage=Usage(100 + item, 20)), path, 1, 1, "turn.1")
        if item in FAILED:
            log.add(NodeExit("failed", None, Failure("score.negative", f"item {item} has the score -3")), path, 1, 1)
        else:
            log.exit(path, result=item)
    if not left:
        log.exit("score", result={"scored": items})
        log.enter("sum")
        log.exit("sum")
        log.ended(output={"scored": items})
    return log


async def asked(page: Page, script: str, argument: Any = None) -> Any:
    """Ask the page itself; what a handle names is let go with it."""
    return await page.evaluate(script, argument)


async def held(page: Page, urls: str) -> anyio.Event:
    """Hold back what a page asks at some addresses, until what is returned is set."""
    let_go = anyio.Event()

    async def hold(route: Route) -> None:
        await let_go.wait()
        await route.continue_()

    await page.route(urls, hold)
    return let_go


class Killed:
    """`callboard http` over the store of a deployment, at one port whoever dies."""

    def __init__(self, stage: Stage, stack: ExitStack) -> None:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        home = stage.connection.config.data_dir
        self.root = f"http://{listen}/"
        self.url = f"{self.root}t/{TENANT}/"
        self._command = ("http", "--json", "--listen", listen, "--data-dir", str(home), "--tenant", TENANT)
        self._env = {"CALLBOARD_PARTITIONS": str(stage.connection.log.partitions)}
        self._place, self._stack = Place(home), stack

    def begin(self) -> None:
        self._process = self._stack.enter_context(self._place.process(*self._command, env=self._env))
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert "url" in json.loads(said), said

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
