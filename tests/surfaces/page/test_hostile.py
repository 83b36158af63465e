"""Hostile texts on the page are shown as texts at every place, and do nothing."""

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
from tests.support.page_server import (
    ASKING,
    EVIL,
    LOOP,
    WITH_INPUTS,
    OpenPageServer,
    PageServer,
    evaluate,
    open_page_server,
)
from tests.support.patience import until

LINK = "javascript:window.hacked=1"
MARK = "<script>window.hacked"

WORDS = frozenset(
    {"type", "status", "outcome", "types", "outcomes", "language", "role", "time", "until", "since", "due"}
)
NAMES = frozenset(
    {"shape", "kind", "d", "head", "direction", "hash", "sha256", "outline", "key", "keys", "slots", "id", "from", "to"}
)
"""Members whose values no user chooses, or that are references."""


PATHS = frozenset({"path", "paths"})


@asynccontextmanager
async def open_hostile_server(browser: Reused, home: Path) -> AsyncGenerator[PageServer]:
    """A server whose runs and definitions have hostile names and texts."""
    async with open_page_server(browser, home) as server:
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
            await server.start(run, {**LOOP, **whole, "input": {EVIL: [EVIL, LINK]}})
        await server.start(
            "asks", {"definition": {"source": ASKING.replace("Which carrier", EVIL.replace('"', "'"))}}, end=False
        )
        await server.client.post("/definitions", json={"name": "wanting", "source": WITH_INPUTS, "by": EVIL[:60]})
        await server.append("everything", [*everything().events])

        async def are_known() -> bool:
            return bool((await server.client.get("/costs")).json()["costs"])

        # The costs of a run are known shortly after its end.
        await until(are_known)
        yield server


@pytest.fixture(scope="module")
def open_server() -> OpenPageServer:
    return open_hostile_server


def make_hostile(value: Any, name: str = "") -> Any:
    """Append a hostile text to every text in a value."""
    if isinstance(value, Mapping):
        members: Mapping[str, Any] = value
        return {key + (EVIL if name == "properties" else ""): make_hostile(one, key) for key, one in members.items()}
    if isinstance(value, list):
        items: list[Any] = value
        return [make_hostile(one, name) for one in items]
    if not isinstance(value, str) or name in WORDS | NAMES or name.endswith("_at"):
        return value
    return value + quote(EVIL, safe="") if name in PATHS and value else value + EVIL


async def answer_with_hostile_texts(route: Route) -> None:
    """Answer as the server does, with hostile texts."""
    answer = await route.fetch()
    # No user chooses the name of a day.
    if "application/json" not in answer.headers.get("content-type", "") or "by=day" in route.request.url:
        await route.fulfill(response=answer)
        return
    await route.fulfill(response=answer, json=make_hostile(await answer.json()))


@asynccontextmanager
async def open_hostile_page(server: PageServer, path: str) -> AsyncGenerator[Page]:
    page = await server.open_page("nowhere")
    await page.route("**/api/acme/**", answer_with_hostile_texts)
    await go(page, server.url(path))
    yield page
    await page.unroute_all(behavior="ignoreErrors")


BAD = "img[src=x], body script, a[href^=javascript], [onerror], iframe, object"
"""Elements that exist only if a hostile text was interpreted as markup or as an address."""


async def check_harmless(page: Page) -> None:
    """Check that hostile texts are shown, and that none was interpreted."""
    await expect(page.locator("body")).to_contain_text(MARK)
    found = await evaluate(page, "(bad) => [window.hacked ?? null, document.querySelectorAll(bad).length]", BAD)
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
async def test_no_view_interprets_a_hostile_text(server: PageServer, path: str) -> None:
    async with open_hostile_page(server, path) as page:
        await expect(page.locator(VIEWS[path]).first).to_be_visible()
        await check_harmless(page)


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
        // The raw tab is the same for all types of events.
        for (const tab of ['input', 'output', 'error', ...(types.size === 1 ? ['raw'] : [])]) {
            view.inspector.filled = 0
            view.look({n, tab})
            await settled()
            if (window.hacked || document.querySelector(bad)) found.push([n, tab])
        }
    }
    return [types.size, found]
}"""
"""Opens an event of each type in every tab; returns those in which a text was interpreted."""


async def test_no_event_interprets_a_hostile_text(server: PageServer) -> None:
    async with open_hostile_page(server, "runs/everything?tab=raw") as page:
        await expect(page.locator(".event-row.list-row").first).to_be_visible()
        types, found = await evaluate(page, LOOKED, BAD)
        assert (types > 30, found) == (True, [])
        await check_harmless(page)


async def test_recorded_hostile_texts_are_shown_as_texts(server: PageServer) -> None:
    """Names of nodes, tags, input, answers and errors, as the server sends them."""
    page = await server.open_page("runs/hostile?tab=raw&n=1")
    await expect(page.locator(".gnode .label").first).to_contain_text("<img")
    await expect(page.locator(".inspector-body")).to_contain_text(LINK)
    _, found = await evaluate(page, LOOKED, BAD)
    assert found == []
    await check_harmless(page)
    await go(page, server.url("inbox"))
    await check_harmless(page)


async def test_a_refusal_with_a_hostile_text_is_shown_as_a_text(server: PageServer) -> None:
    async with open_hostile_page(server, "start/wanting") as page:
        await page.get_by_label("service").fill(EVIL)
        await page.get_by_text("More", exact=True).click()
        await page.get_by_label("Other members").fill('{"model": 7}')
        await page.get_by_role("button", name="Start").click()
        await expect(page.locator(".failure").first).to_contain_text(MARK)
        await check_harmless(page)


async def test_no_dialog_interprets_a_hostile_text(server: PageServer) -> None:
    async with open_hostile_page(server, "runs") as page:
        await page.locator(".run-row .glyph").first.wait_for()
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        for name, leave in (("Cancel…", "Keep them running"), ("Retry…", "Cancel")):
            await page.get_by_role("button", name=name).click()
            await expect(page.locator("dialog")).to_contain_text(MARK)
            await check_harmless(page)
            await page.get_by_role("button", name=leave, exact=True).click()
        await page.keyboard.press("Control+k")
        await expect(page.locator("dialog li .stretch").first).to_contain_text(MARK)
        await check_harmless(page)
