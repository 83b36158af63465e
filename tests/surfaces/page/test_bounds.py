"""Bounds of the page with much data: rows that it requests, elements, and connections."""

from urllib.parse import urlsplit

import anyio
import pytest
from playwright.async_api import Page, Request, Route, expect

from callboard.bus.effects import Usage
from callboard.bus.events import RunEnd
from callboard.surfaces.http import app as module
from callboard.surfaces.http import live
from callboard.surfaces.page.shell import first_asked
from tests.support.browser import go
from tests.support.event_logs import Log
from tests.support.http_application import PATIENCE_S
from tests.support.page_server import LOOP, PageServer, evaluate, fan_out, long_run
from tests.support.patience import until

ELEMENTS_MAX = 600
RUNS = 700
PAGE_RUNS = 200
"""As many as the list asks for at once."""

APPENDED_AT_ONCE = 32
TABS = 7
"""A browser has six connections to a server."""


async def count_elements(page: Page) -> int:
    return await evaluate(page, "() => document.querySelectorAll('body *').length")


async def test_a_list_requests_pages_and_has_elements_for_visible_rows(server: PageServer) -> None:
    room = anyio.CapacityLimiter(APPENDED_AT_ONCE)

    async def add(name: str) -> None:
        async with room:
            log = Log(name, "many")
            log.accepted()
            log.add(RunEnd("completed", usage=Usage(100, 20)))
            await server.append(name, log.events)

    async with anyio.create_task_group() as tasks:
        for number in range(RUNS):
            tasks.start_soon(add, f"many-{number:04}")
    page = await server.browser.page("about:blank", width=1440, height=900, alone=True)
    limits: list[str] = []

    def note(request: Request) -> None:
        if "/api/acme/runs?" in request.url:
            limits.append(request.url.partition("limit=")[2].partition("&")[0])

    page.on("request", note)
    await page.goto(server.url("runs?q=many-"))
    await expect(page.locator(".run-row .glyph").first).to_be_visible()
    # Once it follows the stream, it requests the list again, because of events in between.
    await until(lambda: len(limits) == 2)
    assert (limits, await count_elements(page) <= ELEMENTS_MAX) == ([str(PAGE_RUNS)] * 2, True)
    limits.pop()
    seen = 0
    while seen < RUNS:
        await page.locator(".list").press("End")
        await page.wait_for_function("(seen) => document.querySelector('cb-runs').rows.length > seen", arg=seen)
        seen = await evaluate(page, "() => document.querySelector('cb-runs').rows.length")
        assert await count_elements(page) <= ELEMENTS_MAX
    await page.locator(".list").press("End")
    await expect(page.locator(f".list-row[aria-rowindex='{RUNS}']")).to_be_visible()
    assert (set(limits), len(limits)) == ({str(PAGE_RUNS)}, -(-RUNS // PAGE_RUNS))
    names = await evaluate(page, "() => document.querySelector('cb-runs').rows.map((one) => one.run)")
    assert sorted(names) == [f"many-{number:04}" for number in range(RUNS)]


async def test_a_view_uses_the_request_that_its_document_preloads(server: PageServer) -> None:
    await server.append("first-1", long_run("first-1", 3))
    page = await server.browser.page("about:blank", alone=True)
    requests: list[str] = []

    def note(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.path.startswith("/api/acme/runs"):
            requests.append(f"{parts.path}?{parts.query}")

    page.on("request", note)
    for path, shown in [("runs?status=completed&q=first-", ".run-row .glyph"), ("runs/first-1", ".event-row.list-row")]:
        requests.clear()
        url = urlsplit(server.url(path))
        await page.goto(url.geturl())
        await expect(page.locator(shown).first).to_be_visible()
        first = first_asked(url.path, url.query)
        assert (requests[0], requests.count(requests[0])) == (first, 1)


UNSCANNED = """async ([running, ended]) => {
    const never = () => { throw new Error('all of them are looked at') }
    const {Run} = await import('/static/lib/run.js')
    const view = document.querySelector('cb-run'), {run} = view, other = new Run()
    other.open.values = other.byPath.values = other.nodes.values = never
    // The end of a run closes all open executions.
    other.take(run.rows.slice(0, -1))
    run.byPath.values = run.byPath.entries = run.byPath[Symbol.iterator] = run.nodes.values = run.ways.values = never
    run.rows.filter = never
    const chosen = []
    for (const n of [running, ended, null]) {
        view.look({n, chosen: null, node: 'score'})
        view.draw()
        chosen.push(view.inspector.looked.n)
    }
    return [chosen, run.rows.slice(0, -1).every(({n}) => run.statusAt(n) === other.statusAt(n))]
}"""
"""Draws a run at some of its events with a node selected; a scan of all executions throws."""


async def test_an_event_and_a_drawing_do_not_scan_all_executions(server: PageServer) -> None:
    log = fan_out("unscanned", 30)
    await server.append_log(log)
    page = await server.open_page("runs/unscanned")
    await expect(page.locator(".gnode.ok").first).to_be_visible()
    begun = [event.n for event in log.events if event.type == "node.enter" and event.path.startswith("score[")]
    chosen, same = await evaluate(page, UNSCANNED, [begun[4] + 1, begun[9] + 1])
    assert (chosen, same) == ([begun[4], begun[9], begun[-1]], True)


TICKED = """async () => {
    const frame = () => new Promise(requestAnimationFrame)
    const view = document.querySelector('cb-run'), {lines, list, n} = view.waterfall
    for (let seen = [], calm = 0; calm < 5;) {
        await frame()
        const now = [...list.made.values()]
        calm = now.length === seen.length && now.every((row, i) => row === seen[i]) ? calm + 1 : 0
        seen = now
    }
    const rows = new Map(list.made)
    view.tick()
    for (let i = 0; i < 2; i++) await frame()
    return [...rows].map(([index, row]) => [lines[index].n1 > n, list.made.get(index) !== row])
}"""
"""For each row of the drawn waterfall: whether it is open, and whether a tick replaced it."""


async def test_a_tick_redraws_the_rows_of_open_executions_only(server: PageServer) -> None:
    await server.append("goes-on", long_run("goes-on", 5)[:-3])
    page = await server.open_page("runs/goes-on")
    await expect(page.locator(".live .live")).to_be_visible()
    await expect(page.locator(".span-row.list-row").first).to_be_visible()
    rows = await evaluate(page, TICKED)
    assert {is_open for is_open, _ in rows} == {True, False}
    assert all(is_open == replaced for is_open, replaced in rows), rows


SEEN_WHOLE = """async () => {
    for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame)
    const {element, made, active} = document.querySelector('cb-run').list
    const box = element.getBoundingClientRect(), row = made.get(active)?.getBoundingClientRect()
    return Boolean(row) && row.top >= box.top && row.bottom <= box.bottom + 1
}"""
"""Whether the active row is wholly visible."""


async def test_the_active_row_stays_visible_when_its_list_shrinks(server: PageServer) -> None:
    await server.append("shrinks", long_run("shrinks", 30))
    page = await server.open_page("runs/shrinks?n=150", width=1440, height=900)
    await expect(page.locator(".event-row.list-row").first).to_be_visible()
    await until(lambda: evaluate(page, SEEN_WHOLE))
    for height in (880, 860, 840, 820):
        await page.set_viewport_size({"width": 1440, "height": height})
        await until(lambda: evaluate(page, SEEN_WHOLE))


async def test_a_list_that_a_person_and_the_page_scroll_at_once_shows_rows(server: PageServer) -> None:
    await server.append("scrolls", long_run("scrolls", 250))
    page = await server.open_page("runs/scrolls", width=1440, height=900)
    await expect(page.locator(".live .live")).to_be_visible()
    await expect(page.locator(".inspector-body")).not_to_be_empty()
    rows = """() => {
        const {list} = document.querySelector('cb-run'), box = list.element.getBoundingClientRect()
        return Boolean(document.elementFromPoint(box.left + 60, box.top + 60)?.closest('.list-row'))
    }"""
    both = """async () => {
        const {list} = document.querySelector('cb-run')
        list.scroll(9_000)
        list.draw()
        list.element.scrollTop = 2_000
        for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame)
    }"""
    await evaluate(page, both)
    await until(lambda: evaluate(page, rows))
    assert await evaluate(page, "() => document.querySelector('cb-run').list.element.scrollTop") == 2_000


async def test_a_long_run_has_elements_for_visible_rows(server: PageServer) -> None:
    events = long_run("long", 250)
    await server.append("long", events)
    page = await server.open_page("runs/long", width=1440, height=900)
    await expect(page.get_by_text(f"event {len(events)} of {len(events)}")).to_be_visible()
    await expect(page.locator(".gnode .glyph").first).not_to_be_empty()
    scrolled = """async (share) => {
        for (const list of document.querySelectorAll('cb-run .list')) list.scrollTop = share * list.scrollHeight
        for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame)
    }"""
    for share in (0, 0.3, 0.7, 1):
        await evaluate(page, scrolled, share)
        assert await count_elements(page) <= ELEMENTS_MAX, share
        assert await page.locator(".event-row.list-row").count() > 5


async def test_a_run_has_no_status_while_its_events_are_read(server: PageServer) -> None:
    events = long_run("read", 250)
    await server.append("read", events)
    page = await server.open_page("nowhere")
    release = anyio.Event()

    async def hold(route: Route) -> None:
        if "after=0" not in route.request.url:
            await release.wait()
        await route.continue_()

    await page.route("**/index?*", hold)
    await go(page, server.url("runs/read"))
    await expect(page.locator(".run-title")).to_contain_text("reading…")
    await expect(page.locator(".event-row.list-row").first).to_be_visible()
    assert await page.locator(".run-title .status, .run-title .verbs").count() == 0
    release.set()
    await expect(page.locator(".run-title .status")).to_contain_text("completed")


async def test_many_tabs_share_a_stream_and_all_receive(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    open_streams: set[int] = set()
    closing = anyio.Condition()

    class Noted(live.Live):
        async def __call__(self, *args: object) -> None:
            open_streams.add(id(self))
            try:
                await super().__call__(*args)  # type: ignore[arg-type]
            finally:
                open_streams.discard(id(self))
                with anyio.CancelScope(shield=True):
                    async with closing:
                        closing.notify_all()

    monkeypatch.setattr(module, "Live", Noted)
    await server.start("shared", {**LOOP, "breakpoints": ["c"]}, end=False)
    first = await server.open_page("runs/shared", alone=True)
    async with anyio.create_task_group() as tasks:
        for _ in range(TABS - 1):
            tasks.start_soon(server.browser.tab, first.context, server.url("runs/shared"))
    tabs = first.context.pages
    assert len(tabs) == TABS
    for tab in tabs:
        await expect(tab.locator(".run-title .status")).to_contain_text("paused")
        await expect(tab.locator(".live .live")).to_be_visible()
    await server.resume("shared")
    for tab in tabs:
        # A tab in the background draws only in the front.
        final = """async () => {
            const {run} = document.querySelector('cb-run')
            while (!run.final) await new Promise((done) => setTimeout(done, 20))
            return run.final
        }"""
        with anyio.fail_after(PATIENCE_S):
            assert await evaluate(tab, final) == "failed"
    await expect(tabs[-1].locator(".run-title .status")).to_contain_text("failed")
    # The server needs a moment to notice that a stream was replaced by one that begins earlier.
    with anyio.fail_after(PATIENCE_S):
        async with closing:
            while len(open_streams) > 1:
                await closing.wait()
    assert len(open_streams) == 1
