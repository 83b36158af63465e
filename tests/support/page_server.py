"""A server with the page, the browser that shows it, and runs for it to show."""

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
from tests.support.event_logs import Log
from tests.support.http_application import PATIENCE_S, served
from tests.support.ports import free_ports
from tests.support.workdir import Workdir
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


def numbers_of(recorded: list[dict[str, Any]], type: str) -> list[int]:
    """The numbers of the events of a type."""
    return [one["event"]["n"] for one in recorded if one["event"]["type"] == type]


@dataclass
class PageServer:
    """A server with the page, and the browser that shows it."""

    browser: Reused
    client: httpx2.AsyncClient
    connection: Connection
    open: set[str] = field(default_factory=set[str])
    """Runs that the current test has started and not seen end."""

    def url(self, path: str = "") -> str:
        return str(self.client.base_url.join(f"/t/acme/{path}"))

    async def open_page(self, path: str = "", **options: Any) -> Page:
        """Open a view in the browser."""
        return await self.browser.page(self.url(path), **options)

    async def start(self, run: str, start: dict[str, Any] = LOOP, *, end: bool = True) -> list[dict[str, Any]]:
        """Start a run; return its events when it has ended."""
        answer = await self.client.post("/runs", json={**start, "run_id": run})
        assert answer.status_code == 202, answer.text
        if not end:
            self.open.add(run)
            return []
        await self.result(run)
        return await self.events(run)

    async def result(self, run: str) -> dict[str, Any]:
        """Wait for the end of a run; return its result."""
        return (await self.client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})).json()

    async def events(self, run: str, types: str | None = None) -> list[dict[str, Any]]:
        """The events of a run with their sequences; ``types`` selects some, separated by commas."""
        selection = {"limit": 1_000} if types is None else {"limit": 1_000, "types": types}
        return (await self.client.get(f"/runs/{run}/events", params=selection)).json()["events"]

    async def check_rows(self, page: Page, run: str) -> None:
        """Check that a page has each event of a run once, in order."""
        script = "() => document.querySelector('cb-run').run.rows.map((row) => [row.n, row.sequence])"
        expected = [[one["event"]["n"], one["sequence"]] for one in await self.events(run)]
        assert await evaluate(page, script) == expected

    async def resume(self, run: str) -> None:
        await self.client.post(f"/runs/{run}/resume", json={})

    async def kill(self, run: str) -> None:
        """End a run that waits, so that its question leaves the inbox."""
        self.open.discard(run)
        await self.client.post(f"/runs/{run}/kill", json={})
        await self.result(run)

    async def register(self, name: str, source: str) -> None:
        """Register a definition."""
        answer = await self.client.post("/definitions", json={"name": name, "source": source})
        assert answer.status_code == 200, answer.text

    async def append(self, run: str, events: Sequence[Event], after: int = 0) -> int:
        """Append events to a run that no worker performs; return the sequence of the last one."""
        return await append_events(self.connection.log, run, events, after)

    async def append_log(self, log: Log) -> None:
        """Append the events of a whole log."""
        await self.append(log.run, log.events)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Check that the pages of a test report no errors; close them and end the runs of the test."""
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


OpenPageServer = Callable[[Reused, Path], AbstractAsyncContextManager[PageServer]]

PRICES = {"scripted": {"input": 2, "output": 10}}


@asynccontextmanager
async def open_page_server(browser: Reused, home: Path) -> AsyncGenerator[PageServer]:
    """A page server with its own store."""
    async with served(home, prices=PRICES) as (client, connection):
        yield PageServer(browser, client, connection)


TENANT = "acme"
BATCH = 500
"""Events that are appended together."""


async def append_events(log: EventLog, run: str, events: Sequence[Event], after: int = 0) -> int:
    """Append events to a run that no worker performs; return the sequence of the last one."""
    for start in range(0, len(events), BATCH):
        part = events[start : start + BATCH]
        entries = [
            Entry(one.n, one.epoch, one.type, one.definition, f"{run}.{one.n}", encode_event(one)) for one in part
        ]
        after = await append(log, RunRef(TENANT, run), entries, after)
    return after


def long_run(name: str, loops: int) -> Sequence[Event]:
    """A run that enters its only node repeatedly, with three turns of a model each time: eight events."""
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
    """A run that asks a model about each item; some fail, and ``left`` are still running."""
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


async def evaluate(page: Page, script: str, argument: Any = None) -> Any:
    """Evaluate a script in the page."""
    return await page.evaluate(script, argument)


@dataclass
class HeldRequests:
    """Requests that are held back until ``release`` is set."""

    release: anyio.Event = field(default_factory=anyio.Event)
    begun: anyio.Event = field(default_factory=anyio.Event)
    urls: list[str] = field(default_factory=list[str])

    async def hold(self, route: Route) -> None:
        self.urls.append(route.request.url)
        self.begun.set()
        await self.release.wait()
        await route.continue_()


async def hold_back(page: Page, urls: str) -> HeldRequests:
    """Hold back the requests of a page to some addresses."""
    held = HeldRequests()
    await page.route(urls, held.hold)
    return held


class KillableServer:
    """`callboard http` over the store of a page server; a new process listens at the same port."""

    def __init__(self, server: PageServer, stack: ExitStack) -> None:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        home = server.connection.config.data_dir
        self.root = f"http://{listen}/"
        self.url = f"{self.root}t/{TENANT}/"
        self._command = ("http", "--json", "--listen", listen, "--data-dir", str(home), "--tenant", TENANT)
        self._env = {"CALLBOARD_PARTITIONS": str(server.connection.log.partitions)}
        self._workdir, self._stack = Workdir(home), stack

    def begin(self) -> None:
        self._process = self._stack.enter_context(self._workdir.process(*self._command, env=self._env))
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        assert "url" in json.loads(first), first

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
