"""The page in a browser: how soon it shows long lists and long runs, how smoothly, and how soon what is appended.

``make bench-page``; needs the browser of the tests. Times are of the whole way, from the log to what is drawn, taken
warm unless it says cold: the median of `TIMES`.
"""

import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from playwright.async_api import Page

from benchmarks.staffed import quiet
from callboard.bus.log import EventLog
from callboard.runtime.api.connection import open_connection
from callboard.runtime.http.address import listening, url_of
from callboard.runtime.http.serving import serve_app
from callboard.runtime.settings.config import load
from tests.browser import Opened, opened
from tests.http_house import application
from tests.logs import Log
from tests.page_stage import TENANT, long_run, put

LOOPS = 12_500
"""Of the long run: each is eight events."""

RUNS = 10_000
TIMES = 5
TABS = 12
APPENDED = 40
SCROLLED_S = 5

LIVE = "live"
LONG = "long"

FIRST_ROW = """(list) => {
    const box = document.querySelector(list)?.getBoundingClientRect()
    if (!box) return false
    return Boolean(document.elementFromPoint(box.left + 60, box.top + 60)?.closest('.list-row'))
}"""
"""Whether a row is really seen: what a virtual list says of itself can be wrong."""


NOTED = """() => {
    window.noted = {}
    const place = document.querySelector('cb-run .where')
    const note = () => { window.noted[place.textContent.split(' ')[1]] ??= Date.now() }
    new MutationObserver(note).observe(place, {childList: true, characterData: true, subtree: true})
}"""
"""Has a page note when it tells that it has come to an event."""


@asynccontextmanager
async def stage(home: Path) -> AsyncGenerator[tuple[EventLog, str]]:
    """A server with the application over it; yields its log and its address."""
    config = load({"data_dir": home, "sync": "1s", "tenant": TENANT}, env={}, cwd=home)
    with listening("127.0.0.1", 0, "http") as bound:
        async with open_connection(config, "bench") as connection, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_app, application(connection, tasks), bound)
            yield connection.log, f"{url_of(bound)}/t/{TENANT}"
            tasks.cancel_scope.cancel()


async def until(page: Page, script: str, argument: object = None) -> float:
    """Wait until something holds in a page; return how many ms that is from when its address was gone to."""
    return await page.evaluate(
        f"""async (given) => {{
            while (!(({script})(given))) await new Promise((done) => setTimeout(done, 4))
            return performance.now()
        }}""",
        argument,
    )


async def median_ms(measured: Callable[[], Awaitable[float]]) -> float:
    return statistics.median([await measured() for _ in range(TIMES)])


async def seen_ms(page: Page, url: str, script: str, argument: object = None) -> float:
    """How long it takes from going to an address until something holds there."""
    await page.goto("about:blank")
    await page.goto(url, wait_until="commit")
    return await until(page, script, argument)


def told(what: str, value: float, unit: str, bound: float) -> None:
    print(f"{what:<58} {value:>9.1f} {unit:<6} (at most {bound:g})", flush=True)


async def report() -> None:
    """Print all figures."""
    quiet()
    with TemporaryDirectory() as home:
        async with stage(Path(home)) as (log, url):
            for number in range(RUNS):
                await put(log, f"run-{number:06}", [Log(f"run-{number:06}", "short").accepted()])
            events = long_run(LONG, LOOPS)
            await put(log, LONG, events)
            async for browser in opened():
                await lists(browser, url)
                await runs(browser, url, len(events))
                await news(browser, log, url)


async def lists(browser: Opened, url: str) -> None:
    page = await browser.page(f"{url}/runs")
    await until(page, FIRST_ROW, ".list")
    first = await median_ms(lambda: seen_ms(page, f"{url}/runs", FIRST_ROW, ".list"))
    told(f"{RUNS:,} runs: first row", first, "ms", 200)
    await browser.close_pages()


async def runs(browser: Opened, url: str, count: int) -> None:
    page = await browser.page("about:blank", width=1440, height=900)
    rows = f"{url}/runs/{LONG}"
    whole = f"() => document.querySelector('cb-run')?.run?.last === {count}"
    events = "[data-pane=events] .list"
    told(f"{count:,} events, cold: first row", await seen_ms(page, rows, FIRST_ROW, events), "ms", 400)
    await until(page, whole)
    told(f"{count:,} events: first row", await median_ms(lambda: seen_ms(page, rows, FIRST_ROW, events)), "ms", 200)
    told(f"{count:,} events: waterfall whole", await median_ms(lambda: seen_ms(page, rows, whole)), "ms", 500)
    frames: list[float] = await page.evaluate(
        f"""async () => {{
            const list = document.querySelector({events!r}), found = []
            let last = performance.now(), end = last + {SCROLLED_S * 1_000}
            while (last < end) {{
                list.scrollTop += 400
                const now = await new Promise(requestAnimationFrame)
                found.push(now - last)
                last = now
            }}
            return found
        }}"""
    )
    told("scrolling: p95 of a frame", statistics.quantiles(frames, n=20)[-1], "ms", 20)
    nodes = await page.evaluate("() => document.querySelectorAll('body *').length")
    told("elements", nodes, "", 600)
    steps: list[float] = await page.evaluate(
        """() => Array.from({length: 50}, (_, i) => {
            const view = document.querySelector('cb-run'), began = performance.now()
            view.n = 1 + (i * 7919) % view.run.last
            view.draw()
            return performance.now() - began
        })"""
    )
    told("scrubber: slowest of 50 steps", max(steps), "ms", 50)
    await browser.close_pages()


async def news(browser: Opened, log: EventLog, url: str) -> None:
    """An event that is appended is seen; so it is in many tabs."""
    grown = long_run(LIVE, APPENDED)
    after = await put(log, LIVE, grown[:3])
    page = await browser.page(f"{url}/runs/{LIVE}")
    await until(page, "() => document.querySelector('.live .live')")
    await page.evaluate(NOTED)
    acknowledged: dict[int, float] = {}
    for event in grown[3 : 3 + APPENDED]:
        after = await put(log, LIVE, [event], after)
        acknowledged[event.n] = time.time() * 1_000
        await until(page, "(n) => n in window.noted", event.n)
    noted: dict[str, float] = await page.evaluate("() => window.noted")
    delays = [noted[str(n)] - then for n, then in acknowledged.items()]
    told("an appended event is seen: p95", statistics.quantiles(delays, n=20)[-1], "ms", 250)
    began = time.perf_counter()

    async def follow() -> None:
        tab = await browser.tab(page.context, f"{url}/runs/{LIVE}")
        await until(tab, f"() => document.querySelector('cb-run')?.run?.last >= {3 + APPENDED}")

    async with anyio.create_task_group() as tasks:
        for _ in range(TABS - 1):
            tasks.start_soon(follow)
    told(f"{TABS} tabs are loaded", (time.perf_counter() - began) * 1_000, "ms", 2_000)
    await put(log, LIVE, [grown[3 + APPENDED]], after)
    for tab in page.context.pages:
        await until(tab, f"() => document.querySelector('cb-run').run.last === {4 + APPENDED}")
    await browser.close_pages()


if __name__ == "__main__":
    anyio.run(report)
