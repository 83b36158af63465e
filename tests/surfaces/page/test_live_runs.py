"""Running runs in a real browser: following, answering, starting and stepping them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from playwright.async_api import expect

from callboard.bus.subjects import RunRef
from callboard.surfaces.http.address import listening, url_of
from callboard.surfaces.http.http_server import serve_app
from tests.support.browser import Opened, go
from tests.support.http_application import PATIENCE_S, application, served
from tests.support.page_server import ASKING, EVIL, LOOP, TENANT, WITH_INPUTS, PageServer, evaluate
from tests.support.patience import until

TOKEN = "t0ken"


async def test_a_running_run_is_followed_without_a_gap(server: PageServer) -> None:
    turns = {"a": [{"text": "x"}], "b": [{"text": "y", "progress": ["almost"], "delay_ms": 600_000}]}
    slow = {**LOOP, "script": {"turns": turns, "routes": {"a": ["b"]}}, "breakpoints": ["b"]}
    await server.start("goes-on", slow, end=False)
    page = await server.open_page("runs/goes-on?tab=output")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".speaking")).to_have_text("almost")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_label("at once").check()
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.locator(".run-title .status")).to_contain_text("cancelled")
    await server.check_rows(page, "goes-on")


async def test_a_tab_that_opens_during_an_answer_shows_it_from_its_beginning(server: PageServer) -> None:
    turns = {"a": [{"text": "x", "progress": ["To be, ", "or not", "to be"], "delay_ms": 3_600_000}]}
    calls: list[int] = []
    await server.start("half-said", {**LOOP, "script": {"turns": turns}}, end=False)

    async def answer_has_begun() -> bool:
        events = await server.events("half-said")
        for n in (one["event"]["n"] for one in events if one["event"]["type"] == "model.call"):
            if ((await server.client.get(f"/runs/half-said/partial/{n}")).json() or {}).get("text") == "To be, ":
                calls.append(n)
        return bool(calls)

    await until(answer_has_begun)
    first = await server.open_page("runs/half-said?tab=output")
    # The second tab joins the shared connection late.
    for page in (first, await server.browser.tab(first.context, server.url("runs/half-said?tab=output"))):
        await expect(page.locator(".speaking")).to_have_text("To be, ")
        await expect(page.locator(".outcome .speaking-end")).to_have_text("To be, ")
        await expect(page.locator(".lacks")).to_be_hidden()
    log = server.connection.log
    live = log.subjects.live(RunRef(TENANT, "half-said"), "w", "model.delta")
    await log.nc.publish(live, json.dumps({"n": calls[0], "epoch": 1, "k": 2, "path": "a", "text": "to be"}).encode())
    await expect(first.locator(".speaking")).to_have_text("To be,  … to be")
    await expect(first.locator(".lacks")).to_be_visible()
    await server.kill("half-said")


@asynccontextmanager
async def serve_again(server: PageServer, port: int = 0) -> AsyncGenerator[str]:
    """Serve the application once more; yields its address."""
    with listening("127.0.0.1", port, "http") as bound:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_app, application(server.connection, tasks), bound)
            yield url_of(bound)
            tasks.cancel_scope.cancel()


async def test_a_server_restart_leaves_no_gap_and_no_duplicate(server: PageServer) -> None:
    start = {**LOOP, "breakpoints": ["b"]}
    await server.start("gone", start, end=False)
    async with serve_again(server) as url:
        run = await server.browser.page(f"{url}/t/acme/runs/gone")
        runs = await server.browser.tab(run.context, f"{url}/t/acme/runs")
        await expect(run.locator(".run-title .status")).to_contain_text("paused")
        await expect(runs.get_by_role("row").filter(has_text="gone")).to_contain_text("paused")
        for page in (run, runs):
            await expect(page.locator(".live .live")).to_be_visible()
            await evaluate(page, "() => { window.loaded = 'once' }")
    for page in (run, runs):
        await expect(page.locator(".live .away")).to_be_visible()
    await server.resume("gone")
    await server.start("born-meanwhile")
    await server.result("gone")
    async with serve_again(server, httpx2.URL(url).port or 0):
        await expect(run.locator(".run-title .status")).to_contain_text("failed")
        for name in ("gone", "born-meanwhile"):
            await expect(runs.get_by_role("row").filter(has_text=name)).to_contain_text("failed")
            await expect(runs.get_by_role("row").filter(has_text=name)).to_have_count(1)
        await server.check_rows(run, "gone")
        for page in (run, runs):
            assert await evaluate(page, "() => window.loaded") == "once"
        await server.browser.close_pages()
        await server.browser.leave()


JOINED = """async ([url, topic, sequences]) => {
    const {Stream} = await import('/static/lib/stream.js')
    const stream = new Stream(url, () => {})
    const heard = async (after) => {
        const told = []
        stream.follow({topic, after, tell: (some) => told.push(...some.map((one) => one.sequence))})
        while (told.at(-1) !== sequences.at(-1)) await new Promise((done) => setTimeout(done, 5))
        return told
    }
    return [await heard(sequences[0]), await heard(sequences[3])]
}"""


async def test_a_late_follower_receives_the_events_after_its_sequence(server: PageServer) -> None:
    recorded = await server.start("joined")
    page = await server.open_page("runs")
    sequences = [one["sequence"] for one in recorded]
    with anyio.fail_after(PATIENCE_S):
        output = await evaluate(page, JOINED, [f"{server.client.base_url}live", "run:joined", sequences])
    assert output == [sequences[1:], sequences[4:]]


async def test_a_token_in_the_address_becomes_a_cookie(
    browser: Opened, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with served(tmp_path_factory.mktemp("token"), TOKEN) as (client, _):
        run = await browser.page(str(client.base_url.join("/t/acme/runs/some")))
        await expect(run.get_by_text("A token is needed")).to_be_visible()
        await expect(run.locator("cb-run")).to_have_count(0)
        page = await browser.page(str(client.base_url.join("/t/acme/runs")))
        await page.get_by_label("Token").fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("This token is invalid or expired.")
        await expect(page.get_by_text("A token is needed")).to_be_visible()
        again = await browser.tab(page.context, str(client.base_url.join(f"/t/acme/runs#token={TOKEN}")))
        await expect(again.get_by_text("No runs yet")).to_be_visible()
        await expect(again.locator(".live .live")).to_be_visible()
        assert "token" not in again.url
        [cookie] = await again.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
        await browser.close_pages()


async def test_a_question_is_answered_with_keys_only(server: PageServer) -> None:
    page = await server.open_page("runs")
    await expect(page.locator(".live .live")).to_be_visible()
    await server.start("order", {"definition": {"source": ASKING}}, end=False)
    await expect(page.get_by_role("link", name="Inbox 1")).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("i")
    await expect(page.get_by_role("heading", name="Which carrier takes it?")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("fieldset .problem")).to_contain_text("choose one")
    await page.keyboard.press("Space")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_text("answered order")).to_be_visible()
    result = await server.result("order")
    assert result["status"] == "completed"
    answered = await server.events("order", "human.answered")
    assert [one["event"]["payload"]["user_response"] for one in answered] == ["North"]


async def test_a_run_with_a_question_links_to_it(server: PageServer) -> None:
    for run in ("asks-first", "asks-then"):
        await server.start(run, {"definition": {"source": ASKING.replace("Which", f"{run}: which")}}, end=False)
    page = await server.open_page("runs/asks-then")
    await page.get_by_role("link", name="Answer…").click()
    await expect(page.get_by_role("heading", name="asks-then: which carrier takes it?")).to_be_visible()
    await page.get_by_text("South").click()
    await page.get_by_role("button", name="Answer").click()
    await go(page, server.url("runs/asks-then"))
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    await expect(page.get_by_role("link", name="Answer…")).to_have_count(0)
    await server.kill("asks-first")


async def test_a_run_is_started_with_a_form_of_the_inputs_of_its_definition(server: PageServer) -> None:
    await server.register("wanting", WITH_INPUTS)
    page = await server.open_page("definitions")
    await page.get_by_role("row").filter(has_text="wanting").get_by_role("link", name="Start").click()
    await expect(page.get_by_label("service")).to_be_visible()
    await page.get_by_label("count").fill("many")
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator(".problem").filter(has_text="expected a number")).to_be_visible()
    await expect(page.get_by_label("service")).to_be_focused()
    await page.get_by_label("service").fill(EVIL)
    await page.get_by_label("count").fill("3")
    await page.get_by_text("high").click()
    await page.get_by_text("Model or script", exact=True).click()
    await page.get_by_label("Model").fill("scripted")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Other members").fill('{"script": {"default": {"text": "ok"}}}')
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator(".run-title")).to_be_visible()
    run = httpx2.URL(page.url).path.rpartition("/")[2]
    accepted = (await server.client.get(f"/runs/{run}/events", params={"limit": 1})).json()["events"][0]["event"]
    assert accepted["payload"]["start"]["input"] == {"service": EVIL, "severity": "high", "count": 3}


PAUSED = """(times) => {
    const paused = document.querySelector('cb-run')?.run.rows.filter((row) => row.type === 'run.paused')
    return paused?.length === times
}"""


async def test_a_paused_run_is_stepped_through(server: PageServer) -> None:
    await server.start("steps", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await server.open_page("runs/steps")
    for performed in (1, 2, 3):  # before b, the second a, and c
        await page.wait_for_function(PAUSED, arg=performed)
        found = await server.events("steps")
        assert sum(one["event"]["type"] == "node.exit" for one in found) == performed
        await page.get_by_role("button", name="Step").click()
    await expect(page.locator(".run-title .status")).to_contain_text("failed")
    await expect(page.get_by_role("button", name="Step")).to_have_count(0)
