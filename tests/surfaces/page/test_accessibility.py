"""Accessibility in a real browser: nobody is barred from a view, light or dark, without colours, on a phone."""

import re
from typing import get_args
from urllib.parse import quote

from playwright.async_api import expect

from callboard.bus.events import NodeOutcome
from callboard.projections.run.status import RunStatus
from tests.support.accessibility import find_barriers, find_wider
from tests.support.browser import go
from tests.support.page_stage import ASKING, EVIL, FAILED, LOOP, WITH_INPUTS, Stage, asked, fan_out, put


async def test_nobody_is_barred_from_any_view(stage: Stage) -> None:
    name = f"narrow-{EVIL}"[:60]
    await stage.start(name)
    await stage.start("beside-it", {**LOOP, "input": {"who": f"{EVIL} and others"}})
    await stage.start("pauses", {**LOOP, "breakpoints": ["a"]}, end=False)
    await stage.start("asks", {"definition": {"source": ASKING}}, end=False)
    await stage.client.post("/definitions", json={"name": "for-all", "source": WITH_INPUTS})
    fans = fan_out("fans-out", 1_000)
    await put(stage.connection.log, fans.run, fans.events)
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
    barred: list[str] = []
    page = await stage.browser.page(stage.url("nowhere"))
    for path, seen in shown.items():
        await go(page, stage.url(path))
        await expect(page.locator(seen).first).to_be_visible()
        barred += await find_barriers(stage.browser, page, re.sub(r"\W+", "-", path) or "home")
    # On a phone a run is seen one pane at a time.
    await go(page, stage.url(run))
    for pane in ("outcome", "graph", "spans", "events", "inspector"):
        await go(page, stage.url(f"{run}?pane={pane}"))
        await expect(page.locator(f"cb-run[data-pane={pane}] .run-title .status")).to_be_visible()
        barred += await find_wider(page, pane, "phone", "tablet")
    assert barred == [], "\n".join(barred)


async def test_every_status_has_a_shape_and_a_word(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("nowhere"))
    known = [*get_args(RunStatus), *get_args(NodeOutcome)]
    looks = await asked(page, "async (all) => all.map((await import('/static/lib/status.js')).look)", known)
    assert all(glyph not in ("", "·") and word for _, glyph, word in looks)
    shapes = {(glyph, kind) for kind, glyph, _ in looks if kind != "plain"}
    assert len({glyph for glyph, _ in shapes}) == len(shapes)
