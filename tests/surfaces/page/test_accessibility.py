"""Accessibility in a real browser: every view, light and dark, without colours, on a phone."""

import re
from typing import get_args
from urllib.parse import quote

from playwright.async_api import expect

from callboard.bus.events import NodeOutcome
from callboard.projections.run.status import RunStatus
from tests.support.accessibility import find_barriers, find_wider
from tests.support.browser import go
from tests.support.page_server import ASKING, EVIL, FAILED, LOOP, WITH_INPUTS, PageServer, evaluate, fan_out


async def test_every_view_is_accessible(server: PageServer) -> None:
    name = f"narrow-{EVIL}"[:60]
    await server.start(name)
    await server.start("beside-it", {**LOOP, "input": {"who": f"{EVIL} and others"}})
    await server.start("pauses", {**LOOP, "breakpoints": ["a"]}, end=False)
    await server.start("asks", {"definition": {"source": ASKING}}, end=False)
    await server.register("for-all", WITH_INPUTS)
    fans = fan_out("fans-out", 1_000)
    await server.append_log(fans)
    failed = next(event.n for event in fans.events if event.path == f"score[{FAILED[1]}]")
    run = f"runs/{quote(name, safe='')}"
    shown = {
        "": "cb-home :is(.list, .nothing, h1)",
        "runs": ".run-row .status.paused",
        run: "cb-run .gnode .glyph",
        "inbox": ".inbox-row",
        f"{run}?n=3": ".outcome .code",
        "definitions": "cb-definitions td",
        f"runs/fans-out?at={failed}&pane=spans": ".executions .list-row",
        "definitions/for-all": "cb-definition .gnode",
        "runs/asks": ".outcome .asking",
        "start/for-all": "fieldset, .field",
        f"{run}?tab=error&n=1": ".inspector-body > *",
        "workers": "cb-workers :is(table, .list-row, .nothing)",
        f"{run}/diff/pauses": "cb-diff .status.paused",
        f"{run}/diff/beside-it": "cb-diff ins",
        "inbox?show=closed": "cb-inbox :is(table, .nothing)",
        "schedules": "cb-schedules :is(table, .nothing)",
        "costs": "cb-costs :is(.chart, .nothing)",
        "keys": "cb-keys h2",
    }
    barriers: list[str] = []
    page = await server.open_page("nowhere")
    for path, seen in shown.items():
        await go(page, server.url(path))
        await expect(page.locator(seen).first).to_be_visible()
        barriers += await find_barriers(server.browser, page, re.sub(r"\W+", "-", path) or "home")
    # On a phone a run is seen one pane at a time.
    await go(page, server.url(run))
    for pane in ("outcome", "graph", "spans", "events", "inspector"):
        await go(page, server.url(f"{run}?pane={pane}"))
        await expect(page.locator(f"cb-run[data-pane={pane}] .run-title .status")).to_be_visible()
        barriers += await find_wider(page, pane, "phone", "tablet")
    assert barriers == [], "\n".join(barriers)


async def test_every_status_has_a_shape_and_a_word(server: PageServer) -> None:
    page = await server.open_page("nowhere")
    known = [*get_args(RunStatus), *get_args(NodeOutcome)]
    looks = await evaluate(page, "async (all) => all.map((await import('/static/lib/status.js')).look)", known)
    assert all(glyph not in ("", "·") and word for _, glyph, word in looks)
    shapes = {(glyph, kind) for kind, glyph, _ in looks if kind != "plain"}
    assert len({glyph for glyph, _ in shapes}) == len(shapes)
