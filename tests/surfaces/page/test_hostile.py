"""Hostile texts on the page: wherever one can stand, it is shown as the text that it is, and does nothing."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, Route, expect

from tests.support.browser import Reused, go
from tests.support.event_logs import everything
from tests.support.page_stage import ASKING, EVIL, LOOP, WITH_INPUTS, Furnish, Stage, asked, furnished, put
from tests.support.patience import until

LINK = "javascript:window.hacked=1"
MARK = "<script>window.hacked"

WORDS = frozenset(
    {"type", "status", "outcome", "types", "outcomes", "language", "role", "time", "until", "since", "due"}
)
NAMES = frozenset(
    {"shape", "kind", "d", "head", "direction", "hash", "sha256", "outline", "key", "keys", "slots", "id", "from", "to"}
)
"""Members whose values are not of somebody's choosing, or by which one thing finds another."""

PRICES = {"scripted": {"input": 2, "output": 10}}
"""Prices, so that the runs have costs to show."""

PATHS = frozenset({"path", "paths"})


@asynccontextmanager
async def hostile(browser: Reused, home: Path) -> AsyncGenerator[Stage]:
    """A stage on which everything has a hostile name, and says hostile things."""
    async with furnished(browser, home, prices=PRICES) as stage:
        words = {"name": EVIL, "instruction": EVIL}
        source = json.loads(LOOP["definition"]["source"])
        nodes = {name: {**node, **words} for name, node in source["nodes"].items()}
        source = {**source, "name": EVIL, "description": LINK, "nodes": nodes}
        script = {
            **LOOP["script"],
            "turns": {
                "a": [{"text": EVIL, "usage": {"input_tokens": 7}}],
                "b": [{"error": {"code": "refused", "message": EVIL}}],
            },
        }
        whole = {"definition": {"source": json.dumps(source)}, "script": script, "tags": {"customer": EVIL[:60]}}
        for run in ("hostile", "beside"):
            await stage.start(run, {**LOOP, **whole, "input": {EVIL: [EVIL, LINK]}})
        await stage.start(
            "asks", {"definition": {"source": ASKING.replace("Which carrier", EVIL.replace('"', "'"))}}, end=False
        )
        await stage.client.post("/definitions", json={"name": "wanting", "source": WITH_INPUTS, "by": EVIL[:60]})
        await put(stage.connection.log, "everything", [*everything().events])

        async def are_known() -> bool:
            return bool((await stage.client.get("/costs")).json()["costs"])

        # The costs of a run are known a moment after its end.
        await until(are_known)
        yield stage


@pytest.fixture(scope="module")
def furnish() -> Furnish:
    return hostile


def evil(value: Any, name: str = "") -> Any:
    """The same with a hostile text behind every text of it."""
    if isinstance(value, Mapping):
        members: Mapping[str, Any] = value
        return {key + (EVIL if name == "properties" else ""): evil(one, key) for key, one in members.items()}
    if isinstance(value, list):
        items: list[Any] = value
        return [evil(one, name) for one in items]
    if not isinstance(value, str) or name in WORDS | NAMES or name.endswith("_at"):
        return value
    return value + quote(EVIL, safe="") if name in PATHS and value else value + EVIL


async def worsen(route: Route) -> None:
    """Answer what the server answers, every text of it made hostile."""
    answer = await route.fetch()
    # Days are not of somebody's choosing.
    if "application/json" not in answer.headers.get("content-type", "") or "by=day" in route.request.url:
        await route.fulfill(response=answer)
        return
    await route.fulfill(response=answer, json=evil(await answer.json()))


@asynccontextmanager
async def worsened(stage: Stage, path: str) -> AsyncGenerator[Page]:
    page = await stage.browser.page(stage.url("nowhere"))
    await page.route("**/api/acme/**", worsen)
    await go(page, stage.url(path))
    yield page
    await page.unroute_all(behavior="ignoreErrors")


BAD = "img[src=x], body script, a[href^=javascript], [onerror], iframe, object"
"""What there would be of a text that was taken for markup or an address."""


async def harmless(page: Page) -> None:
    """See to it that hostile texts are shown, and that none of them is anything else."""
    await expect(page.locator("body")).to_contain_text(MARK)
    found = await asked(page, "(bad) => [window.hacked ?? null, document.querySelectorAll(bad).length]", BAD)
    assert found == [None, 0]


VIEWS = {
    "": ".card-row",
    "runs": ".run-row .glyph",
    "runs?q=%3Cimg src=x onerror=window.hacked=1%3E": ".failure",
    "inbox": ".inbox-row",
    "definitions": "td",
    "definitions/wanting": ".gnode",
    "start/wanting": ".field",
    "start?like=hostile": ".field",
    "workers": "table, .nothing",
    "costs": ".chart, .nothing",
    "runs/hostile/diff/beside": ".sides",
}


@pytest.mark.parametrize("path", VIEWS)
async def test_no_view_takes_a_text_for_anything_else(stage: Stage, path: str) -> None:
    async with worsened(stage, path) as page:
        await expect(page.locator(VIEWS[path]).first).to_be_visible()
        await harmless(page)


LOOKED = """async (bad) => {
    const view = document.querySelector('cb-run'), body = view.querySelector('.inspector-body')
    const settled = async () => {
        do await new Promise(requestAnimationFrame)
        while (body.getAttribute('aria-busy') || !body.hasChildNodes())
    }
    const found = [], types = new Set()
    for (let n = 1; n <= view.run.last; n++) {
        const {type} = view.run.rows[n - 1]
        if (types.has(type)) continue
        types.add(type)
        // Whatever an event is of, all of it is shown in the same way.
        for (const tab of ['input', 'output', 'error', ...(types.size === 1 ? ['raw'] : [])]) {
            view.inspector.filled = 0
            view.look({n, tab})
            await settled()
            if (window.hacked || document.querySelector(bad)) found.push([n, tab])
        }
    }
    return [types.size, found]
}"""
"""Looks at an event of each type in every way; says of which a text was taken for something else."""


async def test_no_event_of_a_run_is_taken_for_anything_else(stage: Stage) -> None:
    async with worsened(stage, "runs/everything?tab=raw") as page:
        await expect(page.locator(".event-row.list-row").first).to_be_visible()
        types, found = await asked(page, LOOKED, BAD)
        assert (types > 30, found) == (True, [])
        await harmless(page)


async def test_what_is_recorded_is_a_text_as_the_server_tells_it(stage: Stage) -> None:
    """Without anybody between: names of nodes, tags, input, answers, and errors as they are."""
    page = await stage.browser.page(stage.url("runs/hostile?tab=raw&n=1"))
    await expect(page.locator(".gnode .label").first).to_contain_text("<img")
    await expect(page.locator(".inspector-body")).to_contain_text(LINK)
    _, found = await asked(page, LOOKED, BAD)
    assert found == []
    await harmless(page)
    await go(page, stage.url("inbox"))
    await harmless(page)


async def test_what_a_server_refuses_is_a_text(stage: Stage) -> None:
    async with worsened(stage, "start/wanting") as page:
        await page.get_by_label("service").fill(EVIL)
        await page.get_by_text("More", exact=True).click()
        await page.get_by_label("Other members").fill('{"model": 7}')
        await page.get_by_role("button", name="Start").click()
        await expect(page.locator(".failure").first).to_contain_text(MARK)
        await harmless(page)


async def test_no_dialog_takes_a_text_for_anything_else(stage: Stage) -> None:
    async with worsened(stage, "runs") as page:
        await page.locator(".run-row .glyph").first.wait_for()
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        for name, leave in (("Cancel…", "Keep them running"), ("Retry…", "Cancel")):
            await page.get_by_role("button", name=name).click()
            await expect(page.locator("dialog")).to_contain_text(MARK)
            await harmless(page)
            await page.get_by_role("button", name=leave, exact=True).click()
        await page.keyboard.press("Control+k")
        await expect(page.locator("dialog li .stretch").first).to_contain_text(MARK)
        await harmless(page)
