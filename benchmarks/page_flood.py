"""Floods: the page while thousands of events per second arrive, and the cost of a viewer that reads nothing."""

import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio import to_process
from playwright.async_api import Page

from benchmarks.page_store import many_runs, publish
from callboard.bus.effects import Usage
from callboard.bus.events import Event, ModelCall, ModelResult
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from tests.support.browser import Opened
from tests.support.event_logs import Log
from tests.support.page_server import TENANT, append_events, long_run

EVENTS_PER_S = 5_000
FLOOD_S = 6
STEP_S = 0.1
TASK_MS = 50

IDLE_S = 60
ALONE_S = 5
APPENDS_PER_S = 20
SAID_CHARS = 20_000
WORDY = "wordy"

Tell = Callable[[str, float, str, float], None]

LONG_TASKS = """() => {
    window.tasks = [0]
    new PerformanceObserver((seen) => window.tasks.push(...seen.getEntries().map((one) => one.duration)))
        .observe({type: 'longtask'})
}"""
"""Has a page record its tasks that take longer than 50 ms."""


async def floods(browser: Opened, log: JetStreamLog, url: str, tell: Tell, times: int) -> None:
    """Measure a run that grows and a list in which runs begin and end, each ``times`` times."""
    runs = [await _run_flooded(browser, log, url, f"flood-{time}") for time in range(times)]
    _print_paces(tell, "a run", runs)
    lists = [await _list_flooded(browser, log, url, f"burst-{time}") for time in range(times)]
    _print_paces(tell, "a list", lists)


async def _run_flooded(browser: Opened, log: JetStreamLog, url: str, run: str) -> tuple[float, float]:
    """Return the events per second that a run received, and the milliseconds of the longest task of its page."""
    grown = long_run(run, EVENTS_PER_S * FLOOD_S // 8)
    await append_events(log, run, grown[:3])
    page = await _watching(browser, f"{url}/runs/{run}")
    took = await _flood(log, grown[3:])
    await _wait_until_arrived(page, "() => document.querySelector('cb-run').run.last", len(grown))
    return len(grown) / took, await _longest_ms(page)


async def _list_flooded(browser: Opened, log: JetStreamLog, url: str, prefix: str) -> tuple[float, float]:
    """Measure a list, as `_run_flooded` measures a run."""
    page = await _watching(browser, f"{url}/runs")
    count = EVENTS_PER_S * FLOOD_S // 4
    events = list(many_runs(count, prefix))
    took = await _flood(log, events)
    last = f"{prefix}-{count - 1:06}"
    await _wait_until_arrived(page, f"() => document.querySelector('cb-runs').rows[0].run === '{last}' ? 1 : 0", 1)
    return len(events) / took, await _longest_ms(page)


async def _watching(browser: Opened, url: str) -> Page:
    page = await browser.page(url, width=1440, height=900)
    await page.locator(".live .live").wait_for()
    await page.locator(".list-row .glyph").first.wait_for()
    await page.evaluate(LONG_TASKS)
    return page


async def _flood(log: JetStreamLog, events: Sequence[Event]) -> float:
    """Store events at a pace; return how long that took."""
    began, step = time.perf_counter(), int(EVENTS_PER_S * STEP_S)
    for start in range(0, len(events), step):
        await publish(log, iter(events[start : start + step]))
        due = began + (start + step) / EVENTS_PER_S
        await anyio.sleep(max(0, due - time.perf_counter()))
    return time.perf_counter() - began


async def _wait_until_arrived(page: Page, what: str, wanted: int) -> None:
    await page.evaluate(
        f"async (wanted) => {{ while ((({what})()) < wanted) await new Promise((done) => setTimeout(done, 50)) }}",
        wanted,
    )


async def _longest_ms(page: Page) -> float:
    tasks: list[float] = await page.evaluate("() => window.tasks")
    await page.context.close()
    return max(tasks)


def _print_paces(tell: Tell, what: str, seen: Sequence[tuple[float, float]]) -> None:
    paces, longest = zip(*seen, strict=True)
    tell(f"{what} of {statistics.median(paces):,.0f} events/s: longest task", statistics.median(longest), "ms", TASK_MS)


async def idle_viewer(log: JetStreamLog, url: str, tell: Tell) -> None:
    """Measure the cost of a viewer that follows a run and reads nothing, while another process appends to the run."""
    connected = log.nc.connected_url
    assert connected is not None
    server = connected.geturl()
    first, last = ALONE_S * APPENDS_PER_S, (ALONE_S + IDLE_S) * APPENDS_PER_S
    alone = await to_process.run_sync(_append, server, 0, first)
    before = _resident_bytes()
    with _follower(url, WORDY):
        beside = await to_process.run_sync(_append, server, first, last)
        grown = _resident_bytes() - before
    # The speed of the machine may have changed by now, so the baseline is measured before and after.
    alone += await to_process.run_sync(_append, server, last, last + first)
    tell(f"a viewer that reads nothing for {IDLE_S} s: memory", grown / 2**20, "MiB", 16)
    share = statistics.median(beside) / statistics.median(alone)
    tell("an append with that viewer, relative to one without", share * 100, "%", 120)


def _append(server: str, first: int, last: int) -> list[float]:
    """Append events of a run with long texts, one by one at a steady pace; return the seconds that each took."""
    return anyio.run(_append_paced, server, first, last)


async def _append_paced(server: str, first: int, last: int) -> list[float]:
    made = Log(WORDY, WORDY).started()
    for turn in range(last // 2):
        made.add(ModelCall("turn", "scripted", "00"), "loop", 1, 1, f"turn.{turn}")
        made.add(ModelResult(text="x" * SAID_CHARS, usage=Usage(120, 20)), "loop", 1, 1, f"turn.{turn}")
    took: list[float] = []
    config = load({"nats_url": server, "tenant": TENANT}, env={}, cwd=Path.cwd())
    async with open_connection(config, "appends") as connection:
        before = await connection.log.last(RunRef(TENANT, WORDY))
        after = before.sequence if before is not None else 0
        for event in made.events[first:last]:
            began = time.perf_counter()
            after = await append_events(connection.log, WORDY, [event], after)
            took.append(time.perf_counter() - began)
            await anyio.sleep(max(0, 1 / APPENDS_PER_S - took[-1]))
    return took


def _follower(url: str, run: str) -> socket.socket:
    """Open a connection that requests live events, and reads nothing."""
    parts = urlsplit(url)
    found = socket.create_connection((parts.hostname, parts.port))
    asked = f"/api{parts.path.removeprefix('/t')}/live?topics=run:{run}"
    found.sendall(f"GET {asked} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    return found


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
