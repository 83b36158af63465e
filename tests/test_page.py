"""The page in a real browser: what a person sees of runs, and that nothing recorded does anything there."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.async_api import Page, Request, expect

from callboard.bus.events import decode_event
from callboard.projections.projection import fold
from callboard.projections.run_result import Results
from callboard.runtime.page import shell
from tests.browser import Opened, opened
from tests.http_house import PATIENCE_S, served
from tests.workflows import document as workflow

SHELL_BYTES_MAX = 150_000
LOOKED_AT = 50
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


class Stage(NamedTuple):
    """A browser, and the server that it looks at."""

    browser: Opened
    client: httpx.AsyncClient

    def url(self, path: str = "") -> str:
        return str(self.client.base_url.join(f"/t/acme/{path}"))

    async def start(self, run: str, start: dict[str, Any] = LOOP, *, end: bool = True) -> list[dict[str, Any]]:
        """Start a run; return its events when it has ended."""
        answer = await self.client.post("/runs", json={**start, "run_id": run})
        assert answer.status_code == 202, answer.text
        if not end:
            return []
        await self.client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})
        return (await self.client.get(f"/runs/{run}/events", params={"limit": 1_000})).json()["events"]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """For fixtures that last as long as the module."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Opened]:
    async for one in opened():
        yield one


@pytest.fixture(scope="module")
async def house(browser: Opened, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with served(tmp_path_factory.mktemp("page")) as (client, _):
        yield Stage(browser, client)


@pytest.fixture
async def stage(house: Stage) -> AsyncIterator[Stage]:
    """Whose pages complain of nothing."""
    house.browser.complaints.clear()
    yield house
    await house.browser.close_pages()
    assert house.browser.complaints == []


async def asked(page: Page, script: str, argument: Any = None) -> Any:
    """Ask the page itself; what a handle names is let go with it."""
    return await page.evaluate(script, argument)


# -- the shell ---------------------------------------------------------------------------------------------------------


def test_the_shell_is_small_and_names_no_other_place() -> None:
    files = sorted((Path(shell.__file__).parent / "static").rglob("*.*"))
    assert len(files) > 20
    assert sum(file.stat().st_size for file in files) <= SHELL_BYTES_MAX
    for file in files:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        assert not [word for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(") if word in text]


async def test_nothing_but_the_page_itself_is_asked_for(stage: Stage) -> None:
    page = await stage.browser.page("about:blank")
    hosts: set[str] = set()

    def note(request: Request) -> None:
        hosts.add(httpx.URL(request.url).netloc.decode())

    page.on("request", note)
    await page.goto(stage.url())
    await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    assert hosts == {stage.client.base_url.netloc.decode()}


# -- runs --------------------------------------------------------------------------------------------------------------


async def test_a_run_is_listed_as_soon_as_it_begins_and_as_it_goes(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs?definition=w"))
    await expect(page.locator(".live .live")).to_be_visible()
    await stage.start("pushed-1")
    row = page.get_by_role("row").filter(has_text="pushed-1")
    await expect(row).to_contain_text("failed")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="pushed-1", level=1)).to_be_visible()
    await page.go_back()
    await expect(row).to_be_visible()
    assert await page.get_by_label("Definition").input_value() == "w"


async def test_behind_any_event_it_stands_as_the_log_says(stage: Stage) -> None:
    """The page folds for itself; so does Python."""
    recorded = await stage.start("scrubbed")
    events = [decode_event(json.dumps(one["event"]).encode()) for one in recorded]
    page = await stage.browser.page(stage.url("runs/scrubbed"))
    await expect(page.get_by_text(f"event {len(events)} of {len(events)}")).to_be_visible()
    drawn = Random(0)
    for n in {1, len(events), *(drawn.randint(1, len(events)) for _ in range(LOOKED_AT))}:
        view = fold(Results(), events[:n])
        nodes = {f"{node.path}#{node.iteration}": node.outcome or "running" for node in view.nodes.values()}
        script = """n => {
            const {run} = document.querySelector('cb-run')
            const nodes = [...run.latest.values()].map((one) =>
                run.byPath.get(one.path).findLast((same) => same.n0 <= n)).filter(Boolean)
            return [run.statusAt(n), run.tokensAt(n),
                    Object.fromEntries(nodes.map((one) => [`${one.path}#${one.iteration}`, run.outcomeAt(one, n)]))]
        }"""
        spent = view.usage.input_tokens + view.usage.output_tokens
        assert await asked(page, script, n) == [view.status, spent, nodes], n


async def test_what_is_pushed_is_folded_as_what_is_fetched(stage: Stage) -> None:
    recorded = await stage.start("twice")
    page = await stage.browser.page(stage.url("runs/twice"))
    index = (await stage.client.get("/runs/twice/index")).json()
    script = """async ([recorded, index]) => {
        const {rowOf, rowsOf} = await import('/static/lib/rows.js')
        return [recorded.map((one) => rowOf(one.event, one.sequence)), rowsOf(index)]
    }"""
    pushed, fetched = await asked(page, script, [recorded, index])
    assert pushed == fetched


async def test_nothing_recorded_is_executed(stage: Stage) -> None:
    hostile = f"hostile-{EVIL}"[:60]
    await stage.start(hostile)
    page = await stage.browser.page(stage.url("runs"))
    await page.get_by_role("link", name=hostile, exact=True).click()
    await expect(page.get_by_role("heading", level=1, name=hostile)).to_be_visible()
    for tab in ("Saw", "Said", "Raw", "Error"):
        for n in range(1, 12):
            await asked(page, "n => document.querySelector('cb-run').choose(n)", n)
        await page.get_by_role("tab", name=tab).click()
        await expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        await expect(page.locator(".inspector-body")).not_to_have_attribute("aria-busy", "true")
    assert await asked(page, "() => [window.hacked, document.querySelectorAll('img[src=x], main script').length]") == [
        None,
        0,
    ]


async def test_reload_restores_what_was_looked_at(stage: Stage) -> None:
    await stage.start("again")
    page = await stage.browser.page(stage.url("runs/again"))
    await page.get_by_role("row").filter(has_text="model.call").first.click()
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.get_by_text("payload", exact=True)).to_be_visible()
    before = page.url
    assert {"n", "tab"} <= set(httpx.URL(before).params)
    await page.reload()
    await expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    assert page.url == before


@pytest.mark.parametrize("path", ["runs", "runs/narrow", "runs/narrow?pane=events", "runs/narrow?pane=graph"])
async def test_on_a_phone_nothing_is_wider_than_it(stage: Stage, path: str) -> None:
    if path == "runs":
        await stage.start("narrow")
    page = await stage.browser.page(stage.url(path), width=390, height=844)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert await asked(page, "() => document.documentElement.scrollWidth") == 390


# -- the stream --------------------------------------------------------------------------------------------------------


async def test_a_run_is_told_without_a_gap_while_it_goes_on(stage: Stage) -> None:
    turns = {"a": [{"text": "x"}], "b": [{"text": "y", "progress": ["al", "most"], "delay_ms": 600_000}]}
    slow = {**LOOP, "script": {"turns": turns, "routes": {"a": ["b"]}}, "breakpoints": ["b"]}
    await stage.start("goes-on", slow, end=False)
    page = await stage.browser.page(stage.url("runs/goes-on?tab=said"))
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".speaking")).to_have_text("almost")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_label("at once").check()
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.locator(".run-title .status")).to_contain_text("cancelled")
    whole = (await stage.client.get("/runs/goes-on/events", params={"limit": 1_000})).json()["events"]
    rows = await asked(page, "() => document.querySelector('cb-run').run.rows.map((row) => [row.n, row.sequence])")
    assert rows == [[one["event"]["n"], one["sequence"]] for one in whole]
