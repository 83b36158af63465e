"""The page in a browser: how soon and how smoothly it shows long lists and long runs, and how soon it shows new events.

``make bench-page``; needs the browser of the tests. Times are for the whole way from the log to the screen, warm unless
marked as cold. Each figure is the median of `TIMES` loads, each from another view of the page.
"""

import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from playwright.async_api import Page

from benchmarks.page_flood import floods, idle_viewer
from benchmarks.page_store import many_runs, publish, stage
from benchmarks.staffed import quiet
from callboard.bus.events import HumanAsked, Outline, OutlineEdge, OutlineNode
from callboard.bus.log.port import EventLog
from callboard.projections.drawing.geometry import geometry
from tests.support.browser import Opened, opened
from tests.support.event_logs import Log
from tests.support.page_server import append_events, long_run

LOOPS = 12_500
"""Loops of the long run: each is eight events."""

RUNS = 100_000
TIMES = 5
TABS = 12
APPENDED = 40
ASKED = 10
NODES = 500
SCROLLED_S = 5
SETTLED_S = 1

LIVE = "live"
LONG = "long"

FIRST_ROW = """(list) => {
    const box = document.querySelector(list)?.getBoundingClientRect()
    if (!box) return false
    return Boolean(document.elementFromPoint(box.left + 60, box.top + 60)?.closest('.list-row'))
}"""
"""Whether a row is visible on the screen: the state of a virtual list can be wrong."""


NOTED = """() => {
    window.noted = {}
    const place = document.querySelector('cb-run .where')
    const note = () => { window.noted[place.textContent.split(' ')[1]] ??= Date.now() }
    new MutationObserver(note).observe(place, {childList: true, characterData: true, subtree: true})
}"""
"""Has a page record when it reports that it has reached an event."""


SHOWS = "(n) => document.querySelector('cb-run .where')?.textContent.startsWith(`event ${n} of ${n}`)"
"""Whether a run is drawn up to an event."""


async def until(page: Page, script: str, argument: object = None) -> float:
    """Wait until a condition holds in a page; return the milliseconds since the navigation to its address."""
    return await page.evaluate(
        f"""async (given) => {{
            while (!(({script})(given))) await new Promise((done) => setTimeout(done, 4))
            return performance.now()
        }}""",
        argument,
    )


async def median_ms(measured: Callable[[], Awaitable[float]]) -> float:
    return statistics.median([await measured() for _ in range(TIMES)])


async def seen_ms(page: Page, url: str, script: str, argument: object = None, *, at: str = "about:blank") -> float:
    """Return the time from the navigation to an address until a condition holds, starting ``at`` another address."""
    await page.goto(at)
    await page.goto(url, wait_until="commit")
    return await until(page, script, argument)


def print_figure(what: str, value: float, unit: str, bound: float) -> None:
    print(f"{what:<58} {value:>9.1f} {unit:<6} (at most {bound:g})", flush=True)


async def report() -> None:
    """Print all figures."""
    quiet()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: other load here affects every figure", flush=True)
    drawing()
    with TemporaryDirectory() as home:
        async with stage(Path(home)) as (log, url):
            began = time.perf_counter()
            await publish(log, many_runs(RUNS))
            print(f"{RUNS:,} runs stored in {time.perf_counter() - began:.0f} s", flush=True)
            events = long_run(LONG, LOOPS)
            await append_events(log, LONG, events)
            async for browser in opened():
                await lists(browser, url)
                await runs(browser, url, len(events))
                await news(browser, log, url)
                await questions(browser, log, url)
                await floods(browser, log, url, print_figure, TIMES)
            await idle_viewer(log, url, print_figure)


def drawing() -> None:
    """Measure the layout of a large graph."""
    nodes = [OutlineNode(f"n{i}", f"Node {i}") for i in range(NODES)]
    edges = [OutlineEdge(f"n{i // 2 if i % 3 else max(0, i - 7)}", f"n{i}") for i in range(1, NODES)]
    edges += [OutlineEdge(f"n{i}", f"n{min(NODES - 1, i + 11)}") for i in range(0, NODES - 1, 3)]
    took: list[float] = []
    for _ in range(TIMES):
        began = time.process_time()
        geometry(Outline(nodes, edges))
        took.append(time.process_time() - began)
    print_figure(f"drawing of {NODES} nodes", statistics.median(took) * 1_000, "ms", 500)


async def lists(browser: Opened, url: str) -> None:
    # A sorted list waits for the index. The usual one does not, and would be measured while the index is made.
    page = await browser.page(f"{url}/runs?order=run", width=1440, height=900)
    took = await until(page, FIRST_ROW, ".list")
    print(f"{RUNS:,} runs, the index is made: first row {took / 1_000:.1f} s", flush=True)
    at = f"{url}/workers"
    first = await median_ms(lambda: seen_ms(page, f"{url}/runs", FIRST_ROW, ".list", at=at))
    print_figure(f"{RUNS:,} runs: first row", first, "ms", 200)
    failed = await median_ms(lambda: seen_ms(page, f"{url}/runs?status=failed", FIRST_ROW, ".list", at=at))
    print_figure(f"{RUNS:,} runs, those that failed: first row", failed, "ms", 200)
    nodes = await page.evaluate("() => document.querySelectorAll('body *').length")
    print_figure("elements", nodes, "", 600)
    await browser.close_pages()


async def runs(browser: Opened, url: str, count: int) -> None:
    page = await browser.page("about:blank", width=1440, height=900)
    rows = f"{url}/runs/{LONG}"
    whole = f"() => document.querySelector('cb-run')?.run?.last === {count}"
    events = "[data-pane=events] .list"
    print_figure(f"{count:,} events, cold: first row", await seen_ms(page, rows, FIRST_ROW, events), "ms", 400)
    await until(page, whole)
    at = f"{url}/workers"
    first = await median_ms(lambda: seen_ms(page, rows, FIRST_ROW, events, at=at))
    print_figure(f"{count:,} events: first row", first, "ms", 200)
    print_figure(
        f"{count:,} events: waterfall whole", await median_ms(lambda: seen_ms(page, rows, whole, at=at)), "ms", 500
    )
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
    print_figure("scrolling: p95 of a frame", statistics.quantiles(frames, n=20)[-1], "ms", 20)
    nodes = await page.evaluate("() => document.querySelectorAll('body *').length")
    print_figure("elements", nodes, "", 600)
    steps: list[float] = await page.evaluate(
        """() => Array.from({length: 50}, (_, i) => {
            const view = document.querySelector('cb-run'), began = performance.now()
            view.n = 1 + (i * 7919) % view.run.last
            view.draw()
            return performance.now() - began
        })"""
    )
    print_figure("scrubber: slowest of 50 steps", max(steps), "ms", 50)
    await browser.close_pages()


async def news(browser: Opened, log: EventLog, url: str) -> None:
    """Measure how soon an appended event is visible, in one tab and in many."""
    grown = long_run(LIVE, APPENDED)
    after = await append_events(log, LIVE, grown[:3])
    page = await browser.page(f"{url}/runs/{LIVE}")
    await until(page, "() => document.querySelector('.live .live')")
    await page.evaluate(NOTED)
    acknowledged: dict[int, float] = {}
    for event in grown[3 : 3 + APPENDED]:
        after = await append_events(log, LIVE, [event], after)
        acknowledged[event.n] = time.time() * 1_000
        await until(page, "(n) => n in window.noted", event.n)
    noted: dict[str, float] = await page.evaluate("() => window.noted")
    delays = [noted[str(n)] - then for n, then in acknowledged.items()]
    print_figure("an appended event is seen: p95", statistics.quantiles(delays, n=20)[-1], "ms", 250)
    shown: list[float] = []
    empty: list[float] = []
    for _ in range(TIMES):
        empty.append(await tabs_ms(browser, page, "about:blank"))
        shown.append(await tabs_ms(browser, page, f"{url}/runs/{LIVE}", SHOWS, 3 + APPENDED))
    print_figure(f"{TABS} tabs are loaded", statistics.median(shown), "ms", 2_000)
    ratio = statistics.median(one / other for one, other in zip(shown, empty, strict=True))
    print(f"{'':<58} {ratio:>9.1f} times as long as empty ones, {statistics.median(empty):.0f} ms", flush=True)
    await append_events(log, LIVE, [grown[3 + APPENDED]], after)
    for tab in page.context.pages:
        await until(tab, f"() => document.querySelector('cb-run').run.last === {4 + APPENDED}")
    await browser.close_pages()


async def tabs_ms(browser: Opened, page: Page, url: str, shows: str = "() => true", n: int = 0) -> float:
    """Return how long `TABS` tabs take to show something at an address, including the tab that is open already."""
    for tab in page.context.pages:
        if tab is not page:
            await tab.close()
    # The process of a tab ends some time after the call that closes the tab.
    await anyio.sleep(SETTLED_S)
    began = time.perf_counter()

    async def follow() -> None:
        tab = await browser.tab(page.context, url)
        await until(tab, shows, n)

    async with anyio.create_task_group() as tasks:
        for _ in range(TABS - 1):
            tasks.start_soon(follow)
    return (time.perf_counter() - began) * 1_000


async def questions(browser: Opened, log: EventLog, url: str) -> None:
    """Measure how soon a question is in the inbox."""
    page = await browser.page(f"{url}/inbox")
    await until(page, "() => document.querySelector('.live .live')")
    delays: list[float] = []
    for number in range(1, ASKED + 1):
        asking = Log(f"asks-{number}", "asks").started(Outline([OutlineNode("ask")]))
        asking.enter("ask")
        asking.add(HumanAsked("really?", "confirm"), "ask", 1, 1, "ask")
        await append_events(log, asking.run, asking.events)
        began = time.perf_counter()
        await until(page, "(n) => document.querySelectorAll('.inbox-row').length >= n", number)
        delays.append((time.perf_counter() - began) * 1_000)
    print_figure("a question is in the inbox", statistics.median(delays), "ms", 500)
    await browser.close_pages()


if __name__ == "__main__":
    anyio.run(report)
