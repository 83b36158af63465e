"""The page in a real browser: what a person sees of runs, and that nothing recorded does anything there."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import pytest
from playwright.async_api import Page, Request, Route, expect

from callboard.bus.effects import Usage
from callboard.bus.events import ModelCall, ModelResult, Outline, OutlineNode, decode_event
from callboard.bus.subjects import RunRef
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.trace.text_renderings import step_rows
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Node
from callboard.surfaces.http.address import listening, url_of
from callboard.surfaces.http.http_server import serve_app
from callboard.surfaces.page import shell
from tests.maintenance.remedies import remedies
from tests.support.browser import Opened, go
from tests.support.event_logs import Log
from tests.support.http_application import PATIENCE_S, application, served
from tests.support.page_stage import (
    ASKING,
    EVIL,
    LOOP,
    TENANT,
    WITH_INPUTS,
    Furnish,
    Stage,
    asked,
    furnished,
    held,
    put,
)
from tests.support.patience import until
from tests.support.places import TESTS
from tests.support.workflows import document as workflow
from tests.support.workflows import scripted_skill

SHELL_BYTES_MAX = 100_000
"""What a browser receives before it asks for data, compressed."""
"""Of all files together, as they are sent."""

LOOKED_AT = 50
TOKEN = "t0ken"
PRICES = {"scripted": {"input": 2, "output": 10}}
GOLDEN = TESTS / "golden"


@pytest.fixture(scope="module")
def furnish() -> Furnish:
    return partial(furnished, prices=PRICES)


# -- the shell ---------------------------------------------------------------------------------------------------------


def test_the_shell_is_small_and_names_no_other_place() -> None:
    files = sorted((Path(shell.__file__).parent / "static").rglob("*.*"))
    assert len(files) > 20
    names = (shell.DOCUMENT, shell.SCRIPT, shell.WORKER, "style.css", "icon.svg")
    sent = [shell.static_files()[name] for name in names]
    assert sum(len(file.packed or file.plain) for file in sent) <= SHELL_BYTES_MAX
    for file in files:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        assert not [word for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(") if word in text]


async def test_what_begins_before_the_stream_does_is_seen(stage: Stage) -> None:
    page = await stage.browser.page("about:blank", alone=True)
    await page.add_init_script("delete globalThis.SharedWorker")
    let_go = await held(page, "**/live?*")
    for path in ("", "runs"):
        await page.goto(stage.url(path))
        await expect(page.locator("main > *")).to_be_visible()
    await stage.start("before-the-stream")
    let_go.set()
    await expect(page.get_by_role("row").filter(has_text="before-the-stream")).to_be_visible()


async def test_nothing_but_the_page_itself_is_asked_for(stage: Stage) -> None:
    page = await stage.browser.page("about:blank", alone=True)
    hosts: set[str] = set()

    def note(request: Request) -> None:
        hosts.add(httpx2.URL(request.url).netloc.decode())

    page.on("request", note)
    await page.goto(stage.url())
    await stage.start("at-home")
    await expect(page.get_by_role("link", name="at-home").first).to_be_visible()
    await page.get_by_role("link", name="failed in 24 h").click()
    await expect(page.get_by_role("row").filter(has_text="at-home")).to_contain_text("failed")
    assert hosts == {stage.client.base_url.netloc.decode()}


async def test_a_store_that_fills_up_is_told_on_the_front(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("nowhere"))

    async def fuller(route: Route) -> None:
        found = await (await route.fetch()).json()
        found["workers"][0]["load"]["store"] = 0.787
        await route.fulfill(json=found)

    await page.route("**/workers", fuller)
    await stage.start("stored")
    await go(page, stage.url())
    await expect(page.locator(".home .failure")).to_contain_text("The store is 78 % full.")


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


def shaped(node: Node) -> list[Any]:
    """A node of a trace as the page shows it: where it is, what it did, and the same of those inside of it."""
    inner = [(child.first_n, shaped(child)) for child in node.children]
    effects = [(effect.first_n, [effect.key, effect.outcome]) for effect in node.effects]
    return [node.path, node.iteration, [one for _, one in sorted(inner + effects, key=lambda one: one[0])]]


FOLDED = """async (recorded) => {
    const {rowOf} = await import('/static/lib/rows.js')
    const {Run} = await import('/static/lib/run.js')
    const run = new Run()
    run.parted = recorded[0].payload.forked_from?.n ?? 0
    run.take(recorded.map((event, i) => rowOf(event, i + 1)))
    const told = (outcome) => outcome === '' || outcome === 'caller' ? null : outcome
    const shaped = (one) => one.kind === 'node' || one.kind === 'run'
        ? [one.path, one.iteration, one.children.map(shaped)] : [one.key, told(one.outcome)]
    return [run.rows.map((row) => [run.statusAt(row.n), run.tokensAt(row.n)]), shaped(run.root)]
}"""


async def test_logs_of_all_languages_are_folded_as_python_folds_them(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs"))
    files = [file for file in sorted(GOLDEN.glob("*.jsonl")) if file.stem != "events"]
    assert len(files) > 8
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        events = [decode_event(line.encode()) for line in lines]
        statuses, tree = await asked(page, FOLDED, [json.loads(line) for line in lines])
        views = [fold(Results(), events[:n]) for n in range(1, len(events) + 1)]
        assert statuses == [[one.status, one.usage.input_tokens + one.usage.output_tokens] for one in views], file.stem
        assert tree == shaped(fold(TraceFold(), events).root), file.stem


DRAWN = """async (recorded) => {
    const {rowOf} = await import('/static/lib/rows.js')
    const {Run} = await import('/static/lib/run.js')
    const rows = recorded.map((event, i) => rowOf(event, i + 1)), before = new Run(), after = new Run()
    const ids = (recorded[0].payload.outline?.nodes ?? []).map((one) => one.id)
    before.draw(ids)
    before.take(rows)
    after.take(rows)
    after.draw(ids)
    const state = (run, n) => [[...run.shown(n)], [...run.takenBy(n)], ids.map((id) => run.latestOf(id, n)?.n0 ?? null)]
    return [rows.map(({n}) => state(before, n)), rows.map(({n}) => state(after, n))]
}"""


async def test_a_drawing_shows_the_same_before_and_after_the_events_were_read(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs"))
    entered = 0
    for file in sorted(GOLDEN.glob("*.jsonl")):
        if file.stem == "events":
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        before, after = await asked(page, DRAWN, [json.loads(line) for line in lines])
        assert before == after, file.stem
        _, _, latest = before[-1]
        entered += sum(one is not None for one in latest)
    assert entered > 8


async def test_what_is_pushed_is_folded_as_what_is_fetched(stage: Stage) -> None:
    recorded = await stage.start("twice")
    page = await stage.browser.page(stage.url("runs/twice"))
    index = (await stage.client.get("/runs/twice/index")).json()
    script = """async ([recorded, index]) => {
        const {endingOf, rowOf, rowsOf} = await import('/static/lib/rows.js')
        const endings = recorded.map((one) => endingOf(one.event)).filter((one) => one !== null)
        return [[recorded.map((one) => rowOf(one.event, one.sequence)), endings], [rowsOf(index), [index.ending]]]
    }"""
    pushed, fetched = await asked(page, script, [recorded, index])
    assert pushed == fetched


async def test_what_a_run_has_cost_is_told_as_it_goes_and_of_each_part(stage: Stage) -> None:
    log = Log("spends", "dear").started(Outline([OutlineNode("read")]))
    log.enter("read")
    for n, (model, tokens) in enumerate([("scripted", Usage(40_000, 500)), ("nobody", Usage(1_000, 200))], 1):
        log.add(ModelCall("turn", model, "00"), "read", 1, 1, f"turn.{n}")
        log.add(ModelResult(text="so", usage=tokens), "read", 1, 1, f"turn.{n}")
    *begun, call, result = log.events
    sequence = await put(stage.connection.log, "spends", begun)
    page = await stage.browser.page(stage.url(f"runs/spends?n={begun[-1].n}"))
    head, inspected = page.locator(".run-head"), page.locator(".inspector-head")
    await expect(head).to_contain_text("40k tok$0.0850")
    await expect(inspected).to_contain_text("40k tok$0.0850")
    await put(stage.connection.log, "spends", [call, result], sequence)
    await expect(head).to_contain_text("41k tokat least $0.0850")
    await page.get_by_role("button", name="Next event").click(click_count=2)
    await expect(inspected).to_contain_text("1.2k tokcost unknown")
    await page.get_by_role("button", name="read: running").click()
    await expect(inspected).to_contain_text("at least $0.0850")


async def test_what_the_last_day_has_cost_is_told_on_the_front(stage: Stage) -> None:
    definition = {"source": json.dumps(workflow({"a": {}}, id="dear"))}
    turns = {"a": [{"text": "so", "usage": {"input_tokens": 40_000, "output_tokens": 500}}]}
    for run in ("paid-1", "paid-2"):
        await stage.start(run, {"definition": definition, "model": "scripted", "script": {"turns": turns}})
    page = await stage.browser.page(stage.url())
    card = page.locator(".card").filter(has_text="Cost in the last 24 h: $")
    await expect(card.get_by_role("link", name="dear")).to_contain_text("2 runs · 81k tok$0.17")
    await card.get_by_role("link", name="dear").click()
    await expect(page.get_by_role("row").filter(has_text="paid-")).to_have_count(2)
    found = (await stage.client.get("/costs", params={"by": "model", "where": "definition=dear"})).json()["costs"]
    assert [(one["name"], one["runs"], one["cost"]["usd"]) for one in found] == [("scripted", 2, 0.17)]
    assert (await stage.client.get("/costs", params={"by": "hour"})).status_code == 400


async def test_saw_is_the_conversation_that_the_model_was_sent(stage: Stage) -> None:
    recorded = await stage.start("seen")
    calls = [one["event"] for one in recorded if one["event"]["type"] == "model.call"]
    page = await stage.browser.page(stage.url("runs/seen"))
    await page.locator(".inspector").get_by_role("button", name="Text", exact=True).click()
    for call in calls:
        await go(page, stage.url(f"runs/seen?n={call['n']}"))
        await expect(page.locator(".inspector-head")).to_contain_text(f"n={call['n']}")
        await expect(page.locator(".inspector-body:not([aria-busy])")).to_contain_text(
            "exactly what the model was sent"
        )
        seen = (await stage.client.get(f"/runs/seen/seen/{quote(call['key'], safe='')}")).json()
        parts = [part["text"] for one in seen["messages"] for part in one["message"]["parts"]]
        shown = await page.locator(".turn .part").all_text_contents()
        assert shown == parts
        assert "<script>window.hacked" in "".join(shown)


async def test_what_to_do_stands_behind_the_code_of_an_error(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs/nowhere"))
    await expect(page.locator(".failure code")).to_have_text("run.unknown")
    await expect(page.locator(".failure p")).not_to_be_empty()
    script = {"turns": {"a": [{"error": {"code": "refused"}}], "c": [{"text": "closed"}]}, "routes": {"a": ["c"]}}
    await stage.start("remedied", {**LOOP, "script": script})
    await go(page, stage.url("runs/remedied?tab=error"))
    told = page.locator(".inspector .wrong .remedy").first
    await expect(told).to_have_text(f"What to do: {remedies()['model.refused']}")


async def test_reload_restores_what_was_looked_at(stage: Stage) -> None:
    await stage.start("again")
    page = await stage.browser.page(stage.url("runs/again"))
    await page.get_by_role("row").filter(has_text="model.call").first.click()
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.get_by_text("payload", exact=True)).to_be_visible()
    before = page.url
    assert {"at", "tab"} <= set(httpx2.URL(before).params)
    await page.reload()
    await expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    assert page.url == before


async def test_what_goes_on_is_told_in_place(stage: Stage) -> None:
    """Whoever has come to a button, or marks a word, still has it when a second has passed, or another run begins."""
    await stage.start("stands", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await stage.browser.page(stage.url("runs/stands"))
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    await page.get_by_text("Export", exact=True).click()
    await page.get_by_role("button", name="Cancel…").focus()
    script = """() => {
        const view = document.querySelector('cb-run')
        const before = [...view.head.querySelectorAll('*')], {now} = Date
        Date.now = () => now() + 3_600_000
        view.tick()
        Date.now = now
        const after = [...view.head.querySelectorAll('*')]
        return [after.every((one, i) => one === before[i]), document.activeElement.textContent,
                view.head.querySelector('details').open, view.head.querySelector('.facts').textContent.includes('1 h')]
    }"""
    assert await asked(page, script) == [True, "Cancel…", True, True]
    await page.get_by_role("tab", name="Input").focus()
    for key, tab in (("ArrowRight", "Output"), ("ArrowRight", "Error"), ("End", "Raw"), ("ArrowRight", "Input")):
        await page.keyboard.press(key)
        await expect(page.get_by_role("tab", name=tab)).to_be_focused()
        await expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press(".")
    await expect(page.get_by_role("tab", name="Input")).to_be_focused()

    await go(page, stage.url())
    row = page.locator(".card").filter(has_text="Latest runs").get_by_role("link", name="stands")
    await row.focus()
    await stage.start("comes-in")
    await expect(page.get_by_role("link", name="comes-in").first).to_be_visible()
    await expect(row).to_be_focused()


async def test_back_restores_what_was_looked_at(stage: Stage) -> None:
    await stage.start("back-and-forth")
    page = await stage.browser.page(stage.url("runs?q=back-and&status=failed&since=86400"))
    await page.get_by_role("link", name="back-and-forth", exact=True).click()
    await page.get_by_role("row").filter(has_text="model.call").first.click()
    await page.get_by_role("tab", name="Raw").click()
    await page.locator(".gnode .hit").nth(1).click()
    await expect(page.locator(".gnode.chosen")).to_have_count(1)
    left = page.url
    assert {"at", "node", "tab"} <= set(httpx2.URL(left).params)
    chosen = await page.locator(".gnode.chosen").get_attribute("data-id")
    await page.get_by_role("link", name="Definitions").click()
    await expect(page.get_by_role("heading", name="Definitions")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    await expect(page.locator(".gnode.chosen")).to_have_attribute("data-id", chosen or "")
    assert page.url == left
    # Back undoes a selection, and then leaves the run.
    await page.go_back()
    await expect(page).not_to_have_url(re.compile("node="))
    await page.go_back()
    await expect(page).to_have_url(stage.url("runs/back-and-forth"))
    await page.go_back()
    await expect(page.get_by_label("Find runs")).to_have_value("back-and")
    await expect(page.get_by_label("Status", exact=True)).to_have_value("failed")
    await expect(page.get_by_label("Since")).to_have_value("86400")


# -- the stream --------------------------------------------------------------------------------------------------------


async def test_a_run_is_told_without_a_gap_while_it_goes_on(stage: Stage) -> None:
    turns = {"a": [{"text": "x"}], "b": [{"text": "y", "progress": ["almost"], "delay_ms": 600_000}]}
    slow = {**LOOP, "script": {"turns": turns, "routes": {"a": ["b"]}}, "breakpoints": ["b"]}
    await stage.start("goes-on", slow, end=False)
    page = await stage.browser.page(stage.url("runs/goes-on?tab=output"))
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".speaking")).to_have_text("almost")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_label("at once").check()
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.locator(".run-title .status")).to_contain_text("cancelled")
    whole = (await stage.client.get("/runs/goes-on/events", params={"limit": 1_000})).json()["events"]
    rows = await asked(page, "() => document.querySelector('cb-run').run.rows.map((row) => [row.n, row.sequence])")
    assert rows == [[one["event"]["n"], one["sequence"]] for one in whole]


async def test_who_comes_in_the_middle_of_an_answer_sees_it_from_its_beginning(stage: Stage) -> None:
    turns = {"a": [{"text": "x", "progress": ["To be, ", "or not", "to be"], "delay_ms": 3_600_000}]}
    calls: list[int] = []
    await stage.start("half-said", {**LOOP, "script": {"turns": turns}}, end=False)

    async def said() -> bool:
        events = (await stage.client.get("/runs/half-said/events")).json()["events"]
        for n in (one["event"]["n"] for one in events if one["event"]["type"] == "model.call"):
            if ((await stage.client.get(f"/runs/half-said/partial/{n}")).json() or {}).get("text") == "To be, ":
                calls.append(n)
        return bool(calls)

    await until(said)
    first = await stage.browser.page(stage.url("runs/half-said?tab=output"))
    # Of the connection that tabs share, the second one is late.
    for page in (first, await stage.browser.tab(first.context, stage.url("runs/half-said?tab=output"))):
        await expect(page.locator(".speaking")).to_have_text("To be, ")
        await expect(page.locator(".outcome .speaking-end")).to_have_text("To be, ")
        await expect(page.locator(".lacks")).to_be_hidden()
    log = stage.connection.log
    live = log.subjects.live(RunRef(TENANT, "half-said"), "w", "model.delta")
    await log.nc.publish(live, json.dumps({"n": calls[0], "epoch": 1, "k": 2, "path": "a", "text": "to be"}).encode())
    await expect(first.locator(".speaking")).to_have_text("To be,  … to be")
    await expect(first.locator(".lacks")).to_be_visible()
    await stage.kill("half-said")


@asynccontextmanager
async def standing(stage: Stage, port: int = 0) -> AsyncGenerator[str]:
    """One more server, at a port of its own; yields its address."""
    with listening("127.0.0.1", port, "http") as bound:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_app, application(stage.connection, tasks), bound)
            yield url_of(bound)
            tasks.cancel_scope.cancel()


async def test_a_server_that_was_gone_leaves_no_gap_and_no_duplicate(stage: Stage) -> None:
    start = {**LOOP, "breakpoints": ["b"]}
    await stage.start("gone", start, end=False)
    async with standing(stage) as url:
        run = await stage.browser.page(f"{url}/t/acme/runs/gone")
        runs = await stage.browser.tab(run.context, f"{url}/t/acme/runs")
        await expect(run.locator(".run-title .status")).to_contain_text("paused")
        await expect(runs.get_by_role("row").filter(has_text="gone")).to_contain_text("paused")
        for page in (run, runs):
            await expect(page.locator(".live .live")).to_be_visible()
            await asked(page, "() => { window.loaded = 'once' }")
    for page in (run, runs):
        await expect(page.locator(".live .away")).to_be_visible()
    await stage.client.post("/runs/gone/resume", json={})
    await stage.start("born-meanwhile")
    await stage.client.get("/runs/gone/result", params={"wait_s": PATIENCE_S})
    async with standing(stage, httpx2.URL(url).port or 0):
        await expect(run.locator(".run-title .status")).to_contain_text("failed")
        for name in ("gone", "born-meanwhile"):
            await expect(runs.get_by_role("row").filter(has_text=name)).to_contain_text("failed")
            await expect(runs.get_by_role("row").filter(has_text=name)).to_have_count(1)
        whole = (await stage.client.get("/runs/gone/events", params={"limit": 1_000})).json()["events"]
        rows = await asked(run, "() => document.querySelector('cb-run').run.rows.map((row) => row.sequence)")
        assert rows == [one["sequence"] for one in whole]
        for page in (run, runs):
            assert await asked(page, "() => window.loaded") == "once"
        await stage.browser.close_pages()
        await stage.browser.leave()


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


async def test_who_joins_a_stream_that_has_gone_by_is_told_what_it_lacks(stage: Stage) -> None:
    recorded = await stage.start("joined")
    page = await stage.browser.page(stage.url("runs"))
    sequences = [one["sequence"] for one in recorded]
    with anyio.fail_after(PATIENCE_S):
        told = await asked(page, JOINED, [f"{stage.client.base_url}live", "run:joined", sequences])
    assert told == [sequences[1:], sequences[4:]]


async def test_a_token_in_the_address_is_brought_once_and_seen_no_more(
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


# -- what one says -----------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_by_keys_alone(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs"))
    await expect(page.locator(".live .live")).to_be_visible()
    await stage.start("order", {"definition": {"source": ASKING}}, end=False)
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
    result = (await stage.client.get("/runs/order/result", params={"wait_s": PATIENCE_S})).json()
    assert result["status"] == "completed"
    answered = (await stage.client.get("/runs/order/events", params={"types": "human.answered"})).json()["events"]
    assert [one["event"]["payload"]["user_response"] for one in answered] == ["North"]


async def test_a_run_that_asks_leads_to_its_question(stage: Stage) -> None:
    for run in ("asks-first", "asks-then"):
        await stage.start(run, {"definition": {"source": ASKING.replace("Which", f"{run}: which")}}, end=False)
    page = await stage.browser.page(stage.url("runs/asks-then"))
    await page.get_by_role("link", name="Answer…").click()
    await expect(page.get_by_role("heading", name="asks-then: which carrier takes it?")).to_be_visible()
    await page.get_by_text("South").click()
    await page.get_by_role("button", name="Answer").click()
    await go(page, stage.url("runs/asks-then"))
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    await expect(page.get_by_role("link", name="Answer…")).to_have_count(0)
    await stage.kill("asks-first")


async def test_a_run_is_started_with_a_form_of_what_its_definition_wants(stage: Stage) -> None:
    await stage.client.post("/definitions", json={"name": "wanting", "source": WITH_INPUTS})
    page = await stage.browser.page(stage.url("definitions"))
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
    accepted = (await stage.client.get(f"/runs/{run}/events", params={"limit": 1})).json()["events"][0]["event"]
    assert accepted["payload"]["start"]["input"] == {"service": EVIL, "severity": "high", "count": 3}


async def test_versions_of_a_definition_are_compared(stage: Stage) -> None:
    for title in ("One", "Two"):
        source = json.dumps(workflow({"a": {"name": title}}), indent=1)
        assert (await stage.client.post("/definitions", json={"name": "twofold", "source": source})).status_code == 200
    page = await stage.browser.page(stage.url("definitions/twofold"))
    await page.get_by_role("button", name="compare").click()
    await expect(page.locator(".line.removed")).to_contain_text("One")
    await expect(page.locator(".line.added")).to_contain_text("Two")


async def test_two_runs_stand_beside_each_other(stage: Stage) -> None:
    await stage.start("left")
    await stage.start("right", {**LOOP, "input": {"who": "Grace"}})
    await stage.start("short", {**LOOP, "script": {**LOOP["script"], "routes": {"a": ["c"]}}})
    page = await stage.browser.page(stage.url("runs/left/diff/right"))
    await expect(page.get_by_role("columnheader", name="left").first).to_be_visible()
    await expect(page.get_by_text("Grace", exact=True)).to_be_visible()
    heads = "() => [...document.querySelectorAll('.told h2')].map((one) => one.textContent)"
    assert (await asked(page, heads))[-1] == "measures"
    assert "path" not in await asked(page, heads)
    await go(page, stage.url("runs/left/diff/short"))
    await expect(page.get_by_role("row", name="continues with b c")).to_be_visible()
    await expect(page.get_by_role("row", name="because more enough")).to_be_visible()
    assert (await asked(page, heads))[0] == "First difference: after a"
    steps = "() => [...document.querySelectorAll('.told tr.other')].map((one) => one.textContent)"
    assert {"2bc", "3a#2", "4c"} <= set(await asked(page, steps))


async def test_words_that_differ_are_marked_within_texts(stage: Stage) -> None:
    for run, word in (("in-plain", "plain"), ("in-formal", "formal")):
        rules = " ".join(f"Rule {each} holds." for each in range(60))
        source = json.dumps(workflow({"a": {"name": "A", "instruction": f"{rules} Answer in {word} words."}}))
        script = {"turns": {"a": [{"text": f"A {word} answer"}]}}
        await stage.start(run, {"definition": {"source": source}, "model": "scripted", "script": script})
    page = await stage.browser.page(stage.url("runs/in-plain/diff/in-formal"))
    row = page.get_by_role("row", name="/messages/0/parts/0/text")
    await expect(row.locator("del")).to_have_text("plain")
    await expect(row.locator("ins")).to_have_text("formal")
    await expect(row.get_by_text("Rule 0 holds.")).to_have_count(0)
    await row.get_by_role("button", name="characters alike").first.click()
    await expect(row.get_by_text("Rule 0 holds.")).to_have_count(1)
    marked = "() => [...document.querySelectorAll('tr:has(del)')].map((one) => one.querySelector('th').textContent)"
    assert {"text", "nodes.a.instruction · text", "a · result/data/summary"} <= set(await asked(page, marked))


PAUSED = """(times) => {
    const paused = document.querySelector('cb-run')?.run.rows.filter((row) => row.type === 'run.paused')
    return paused?.length === times
}"""


async def test_a_paused_run_is_stepped_through(stage: Stage) -> None:
    await stage.start("steps", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await stage.browser.page(stage.url("runs/steps"))
    for performed in (1, 2, 3):  # before b, the second a, and c
        await page.wait_for_function(PAUSED, arg=performed)
        found = (await stage.client.get("/runs/steps/events", params={"limit": 1_000})).json()["events"]
        assert sum(one["event"]["type"] == "node.exit" for one in found) == performed
        await page.get_by_role("button", name="Step").click()
    await expect(page.locator(".run-title .status")).to_contain_text("failed")
    await expect(page.get_by_role("button", name="Step")).to_have_count(0)


# -- forks -------------------------------------------------------------------------------------------------------------


WATERFALL = """() => {
    const {waterfall} = document.querySelector('cb-run'), {run, n, scale} = waterfall
    const lines = waterfall.lines.filter(({kind}) => kind === 'run' || kind === 'node')
    const name = ({path, iteration}) => path && `${path}#${iteration}`
    const named = (what) => Object.fromEntries(lines.map((one) => [name(one), what(one)]))
    return [named((one) => waterfall.length(one)), named((one) => scale.place(run.beganAt(one, n))), scale.folds.length]
}"""
"""How long the run and its nodes lasted, where their bars begin, and how many stretches are folded."""


def here(page: Page) -> str:
    """The run whose page it is."""
    return httpx2.URL(page.url).path.rpartition("/")[2]


async def test_a_run_is_forked_where_one_looks_and_the_fork_is_told_whole(stage: Stage) -> None:
    await stage.start("parts", {**LOOP, "breakpoints": ["c"]}, end=False)
    page = await stage.browser.page(stage.url("runs/parts"))
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    recorded = (await stage.client.get("/runs/parts/events", params={"limit": 1_000})).json()["events"]
    told = next(one["event"]["n"] for one in recorded if one["event"]["type"] == "model.result")
    await asked(page, "n => document.querySelector('cb-run').choose(n)", told)
    # Until it is drawn the button is that of the event before.
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={told}")
    await page.get_by_role("button", name="Fork from here").click()
    # The form begins with what is recorded, and what is left as it is recorded is not replaced.
    result = page.get_by_label("Result, as JSON")
    assert json.loads(await result.input_value())["text"] == "one"
    await expect(page.get_by_label("Model, from there on")).to_have_value("scripted")
    await result.fill((await result.input_value()).replace("one", "otherwise"))
    await page.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_text(f"forked from event {told} of parts")).to_be_visible()
    compares = page.get_by_role("link", name="compare", exact=True)
    await expect(compares).to_have_attribute("href", f"/t/acme/runs/parts/diff/{here(page)}")
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".run-title .status")).to_contain_text("failed")
    fork = here(page)
    # It has failed before it has ended: there is another event or two behind that.
    await stage.client.get(f"/runs/{fork}/result", params={"wait_s": PATIENCE_S})
    whole = (await stage.client.get(f"/runs/{fork}/events", params={"limit": 1_000})).json()["events"]
    assert whole[-1]["event"]["type"] == "run.end"
    await page.wait_for_function("(count) => document.querySelector('cb-run').run.rows.length >= count", arg=len(whole))
    rows = await asked(page, "() => document.querySelector('cb-run').run.rows.map((row) => [row.n, row.sequence])")
    assert rows == [[one["event"]["n"], one["sequence"]] for one in whole]
    assert rows[0][1] > rows[1][1]
    events = [decode_event(json.dumps(one["event"]).encode()) for one in whole]
    statuses, tree = await asked(page, FOLDED, [one["event"] for one in whole])
    views = [fold(Results(), events[:n]) for n in range(1, len(events) + 1)]
    assert statuses == [[one.status, one.usage.input_tokens + one.usage.output_tokens] for one in views]
    assert tree == shaped(fold(TraceFold(), events).root)
    # The waterfall has what is shared right before what the fork did itself, and neither lasts the time between.
    rows = {f"{row.path}#{row.iteration}": row.duration_s for row in step_rows(fold(TraceFold(), events))}
    assert views[-1].ended_at is not None
    assert views[-1].started_at is not None
    rows[""] = (views[-1].ended_at - views[-1].started_at).total_seconds()
    lasted, begun, folds = await asked(page, WATERFALL)
    assert lasted == {name: pytest.approx(seconds, abs=0.002) for name, seconds in rows.items()}
    assert begun["a#1"] < begun[""]
    assert folds >= 1
    # Behind an event of its origin there is nothing of that time.
    await asked(page, "n => document.querySelector('cb-run').travel(n)", told)
    await page.wait_for_function("(n) => document.querySelector('cb-run').waterfall.n === n", arg=told)
    lasted, begun, folds = await asked(page, WATERFALL)
    assert (begun[""], folds) == (0, 0)
    started = next(event.time for event in events if event.type == "run.start")
    assert lasted[""] == pytest.approx((events[told - 1].time - started).total_seconds(), abs=0.002)
    await page.get_by_role("tab", name="Output").click()
    await expect(page.locator(".inspector-body")).to_contain_text("otherwise")
    await asked(page, "() => document.querySelector('cb-run').choose(1)")
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.locator(".inspector-body")).to_contain_text("forked_from")
    await go(page, stage.url(f"runs/parts/diff/{fork}"))
    await expect(page.get_by_text(f"They have events 2 to {told} in common")).to_be_visible()
    await expect(page.get_by_text("what the models saw")).to_be_visible()


EDITED = """\
id: edited
name: Edited
entry: look
nodes:
  look: {name: Look, skills: [files], instruction: Look it up.}
  send:
    name: Send
    instruction: Say it.
edges:
  - {from: look, to: send}
"""


async def test_what_a_run_was_given_is_edited_in_a_fork(stage: Stage) -> None:
    turns = {"look": [{"tool_calls": [{"tool": "open", "input": {"page": 1}}]}, {"text": "x"}]}
    start = {
        "definition": {"source": EDITED},
        "options": {"skills": [scripted_skill("files", "open")]},
        "model": "scripted",
        "script": {"turns": turns, "tools": {"open": [{"output": "ok"}]}, "default": {"text": "y"}},
    }
    recorded = await stage.start("edited", start)
    places = {
        (one["event"]["type"], one["event"].get("path")): one["event"]["n"]
        for one in recorded
        if one["event"]["type"] in ("tool.call", "node.enter")
    }
    page = await stage.browser.page(stage.url("runs/edited"))
    await expect(page.locator(".run-title .status")).to_contain_text("completed")

    async def ask(n: int) -> None:
        await asked(page, "n => document.querySelector('cb-run').choose(n)", n)
        await expect(page.locator(".inspector-head")).to_contain_text(f"n={n}")
        await page.get_by_role("button", name="Fork from here").click()

    async def accepted() -> tuple[str, dict[str, Any]]:
        await page.get_by_role("button", name="Fork", exact=True).click()
        await expect(page.get_by_text("of edited")).to_be_visible()
        first = await stage.client.get(f"/runs/{here(page)}/events", params={"limit": 1})
        return here(page), first.json()["events"][0]["event"]["payload"]

    # The instruction is written where the definition has it; problems stand at their fields and lines.
    await ask(places["node.enter", "send"])
    instruction = page.get_by_label("Instruction of send")
    await expect(instruction).to_have_value("Say it.")
    await instruction.fill('Say "it": twice.')
    await page.get_by_label("Model, from there on").fill("nobody")
    await page.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.locator("dialog .problem:not(:empty)")).to_contain_text("unknown model 'nobody'")
    await page.get_by_label("Model, from there on").fill("scripted")
    await page.get_by_text("Change prompts").click()
    source = page.locator("dialog details textarea")
    written = await source.input_value()
    assert 'instruction: "Say \\"it\\": twice."\n' in written
    await source.fill(written.replace("    name: Send", "    colour: red"))
    await page.get_by_role("button", name="Fork", exact=True).click()
    fault = page.locator("dialog li", has_text="unknown field 'colour'")
    await fault.get_by_role("button", name="line 7, column 5").click()
    chosen = "(one) => one.value.slice(one.selectionStart, one.selectionEnd)"
    assert await source.evaluate(chosen) == "    colour: red"
    await source.fill(written)
    fork, payload = await accepted()
    assert 'Say \\"it\\": twice.' in payload["definition"]["source"]
    await stage.client.get(f"/runs/{fork}/result", params={"wait_s": PATIENCE_S})

    # Other arguments of a call are those that the turn before it has asked for; breakpoints are those of the fork.
    await page.goto(stage.url("runs/edited"))
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    await ask(places["tool.call", "look"])
    arguments = page.get_by_label("Arguments of open")
    assert json.loads(await arguments.input_value()) == {"page": 1}
    await arguments.fill('{"page": 2}')
    await page.get_by_text("Pause before nodes").click()
    await page.get_by_label("send (Send)").check()
    fork, payload = await accepted()
    stage.open.add(fork)
    assert payload["breakpoints"] == ["send"]
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    events = (await stage.client.get(f"/runs/{fork}/events", params={"limit": 1_000})).json()["events"]
    calls = [one["event"]["payload"]["input"] for one in events if one["event"]["type"] == "tool.call"]
    assert calls == [{"page": 2}]


async def test_whoever_goes_from_one_run_to_another_sees_the_events_of_that(stage: Stage) -> None:
    for run, node in (("one", "a"), ("other", "b")):
        made = Log(run, "alike").started(Outline([OutlineNode(node)]))
        made.enter(node)
        made.exit(node)
        await put(stage.connection.log, run, made.ended().events)
    page = await stage.browser.page(stage.url("runs/one"))
    rows = page.locator(".event-row.list-row .path")
    await expect(rows.get_by_text("a", exact=True).first).to_be_visible()
    await go(page, stage.url("runs/other"))
    await expect(rows.get_by_text("b", exact=True).first).to_be_visible()
    await expect(rows.get_by_text("a", exact=True)).to_have_count(0)


async def test_what_takes_long_keeps_nothing_else_from_being_shown(stage: Stage) -> None:
    await stage.start("slowly")
    page = await stage.browser.page(stage.url("nowhere"))
    go_on = await held(page, "**/slowly/graph?*")
    await go(page, stage.url("runs/slowly"))
    await expect(page.locator(".event-row.list-row").first).to_be_visible()
    await expect(page.locator(".graph-frame svg")).to_have_count(0)
    go_on.set()
    await expect(page.locator(".graph-frame svg")).to_be_visible()


async def test_a_failed_run_is_tried_again_and_any_run_once_more(stage: Stage) -> None:
    await stage.start("tried")
    page = await stage.browser.page(stage.url("runs/tried"))
    await page.get_by_role("button", name="Retry").click()
    await expect(page.get_by_text("forked from event")).to_contain_text("of tried")
    retried = here(page)
    await page.get_by_role("button", name="Run again").click()
    await expect(page.get_by_role("heading", level=1)).not_to_have_text(retried)
    await expect(page.get_by_text("forked from event")).to_have_count(0)


async def test_runs_that_are_picked_are_cancelled_together(stage: Stage) -> None:
    for run in ("picked-1", "picked-2", "picked-3"):
        await stage.start(run, {**LOOP, "breakpoints": ["a"]}, end=False)
    page = await stage.browser.page(stage.url("runs?q=picked-"))
    await expect(page.locator(".run-row .status.paused")).to_have_count(3)
    for key in ("j", "x", "j", "x"):
        await page.keyboard.press(key)
    await expect(page.get_by_text("2 runs selected")).to_be_visible()
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel them").click()
    await expect(page.locator(".run-row .status.cancelled")).to_have_count(2)
    await expect(page.get_by_role("row").filter(has_text="picked-1")).to_contain_text("paused")
    await expect(page.get_by_role("button", name="Cancel…")).to_be_hidden()


async def test_runs_are_picked_with_a_mouse(stage: Stage) -> None:
    for number in range(4):
        await stage.start(f"boxed-{number}")
    page = await stage.browser.page(stage.url("runs?q=boxed-"))
    boxes = page.locator(".list-row").get_by_role("checkbox")
    await expect(boxes).to_have_count(4)
    await expect(page.locator(".list-row .pick").nth(1)).to_have_css("opacity", "0")
    await page.locator(".list-row").nth(0).hover()
    await expect(page.locator(".list-row .pick").nth(0)).to_have_css("opacity", "1")
    await boxes.nth(0).click()
    await expect(page.get_by_text("1 run selected")).to_be_visible()
    await expect(page.locator(".list-row .pick").nth(1)).to_have_css("opacity", "1")
    await boxes.nth(2).click(modifiers=["Shift"])
    await expect(page.get_by_text("3 runs selected")).to_be_visible()
    await boxes.nth(1).dblclick()
    await boxes.nth(1).click()
    await expect(page.get_by_text("2 runs selected")).to_be_visible()
    picked = [await box.is_checked() for box in await boxes.all()]
    assert picked == [True, False, True, False]
    assert httpx2.URL(page.url).path.endswith("/runs")
    await page.get_by_role("button", name="Clear selection").click()
    await expect(page.get_by_role("button", name="Cancel…")).to_be_hidden()


async def test_a_row_that_is_pressed_stays_where_it_is_whatever_comes(stage: Stage) -> None:
    await stage.start("pressed-1")
    page = await stage.browser.page(stage.url("runs?q=pressed-"))
    boxes = page.locator(".list-row").get_by_role("checkbox")
    await expect(page.locator(".run-row .status.failed")).to_have_count(1)
    await boxes.nth(0).hover()
    await page.mouse.down()
    await stage.start("pressed-2")
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    await expect(boxes).to_have_count(1)
    await page.mouse.up()
    await expect(page.get_by_text("1 run selected")).to_be_visible()
    await expect(boxes).to_have_count(2)
    assert [await box.is_checked() for box in await boxes.all()] == [False, True]


async def test_the_row_that_one_is_at_is_the_same_run_whatever_comes(stage: Stage) -> None:
    await stage.start("kept-1")
    page = await stage.browser.page(stage.url("runs?q=kept-"))
    rows = page.locator(".list-row")
    await expect(page.locator(".run-row .status.failed")).to_have_count(1)
    await page.keyboard.press("j")
    await stage.start("kept-2")
    await expect(rows).to_have_count(2)
    await expect(page.locator(".list-row[aria-selected=true]")).to_contain_text("kept-1")
    await page.keyboard.press("x")
    await expect(rows.filter(has_text="kept-1").get_by_role("checkbox")).to_be_checked()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="kept-1", level=1)).to_be_visible()

    # What is clicked is what the row shows, even if another stands there already.
    await expect(page.locator(".waterfall .list-row").nth(3)).to_be_visible()
    script = """() => {
        const view = document.querySelector('cb-run'), {waterfall} = view
        const further = ({dataset: {index}}) => index > 2 && waterfall.lines[index].depth === 1
        const row = [...waterfall.element.querySelectorAll('.list-row')].find(further)
        waterfall.fold(waterfall.lines[1], true)
        row.click()
        return [Number(row.dataset.n), view.chosen]
    }"""
    shown, chosen = await asked(page, script)
    assert shown == chosen


async def test_the_list_is_sorted_and_narrowed_and_its_rows_open(stage: Stage) -> None:
    definition = {"source": json.dumps(workflow({"a": {}}, id="sorted"))}
    for run, tokens, customer in (("sort-1", 300, "acme"), ("sort-2", 100, "globex"), ("sort-3", 200, "acme")):
        turns = {"a": [{"text": "so", "usage": {"input_tokens": tokens, "output_tokens": 0}}]}
        more = {"model": "scripted", "script": {"turns": turns}, "tags": {"customer": customer}}
        await stage.start(run, {"definition": definition, "by": f"of {customer}", **more})
    page = await stage.browser.page(stage.url("runs?definition=sorted"), width=1440)
    names = page.locator(".list-row .k-run")
    await expect(names).to_have_text(["sort-3", "sort-2", "sort-1"])
    await page.get_by_role("button", name="Tokens").click()
    await expect(names).to_have_text(["sort-1", "sort-3", "sort-2"])
    await expect(page.get_by_role("columnheader", name="Tokens")).to_have_attribute("aria-sort", "descending")
    await page.get_by_role("button", name="Tokens").click()
    await expect(names).to_have_text(["sort-2", "sort-3", "sort-1"])

    tag = page.get_by_label("Tag")
    await tag.focus()
    await expect(page.locator("#tag-known option[value='customer=acme']")).to_have_count(1)
    await tag.fill("customer=acme")
    await expect(names).to_have_text(["sort-3", "sort-1"])
    by = page.get_by_label("Started by", exact=True)
    await by.focus()
    await expect(page.locator("#by-known option[value='of globex']")).to_have_count(1)
    await by.fill("of globex")
    await expect(names).to_have_count(0)
    await by.fill("of acme")
    await expect(names).to_have_text(["sort-3", "sort-1"])
    await page.get_by_text("Columns", exact=True).click()
    await page.get_by_label("Language").check()
    await expect(page.locator(".list-row .k-language").first).to_have_text("workflow")
    await page.get_by_label("Tokens", exact=True).uncheck()
    await expect(page.locator(".list-row .k-tokens")).to_have_count(0)
    before = page.url
    await page.reload()
    await expect(names).to_have_text(["sort-3", "sort-1"])
    await expect(page.locator(".list-row .k-language").first).to_have_text("workflow")
    await page.locator(".list-row .k-duration").first.click()
    await expect(page.get_by_role("heading", name="sort-3", level=1)).to_be_visible()
    await page.go_back()
    await expect(names).to_have_text(["sort-3", "sort-1"])
    assert page.url == before


async def test_views_are_saved_each_as_a_link(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs?q=nobody&status=failed"))
    await page.get_by_text("Views", exact=True).last.click()
    await page.get_by_role("button", name="Save this view").click()
    await page.get_by_label("Name").fill(EVIL)
    await page.get_by_role("button", name="Save", exact=True).click()
    await go(page, stage.url("runs"))
    await page.get_by_text("Views", exact=True).last.click()
    await page.get_by_role("link", name=EVIL).click()
    await expect(page.get_by_label("Find runs")).to_have_value("nobody")
    assert dict(httpx2.URL(page.url).params) == {"q": "nobody", "status": "failed"}
    await page.get_by_text("Views", exact=True).last.click()
    await page.get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("link", name=EVIL)).to_have_count(0)
