"""The view of a run in a real browser: folding, costs, selection, and forks."""

import json
import re
from random import Random
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from playwright.async_api import Page, expect

from callboard.bus.effects import Usage
from callboard.bus.events import ModelCall, ModelResult, Outline, OutlineNode, decode_event
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.trace.text_renderings import step_rows
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Node
from tests.maintenance.remedies import remedies
from tests.support.browser import go
from tests.support.event_logs import Log
from tests.support.page_server import LOOP, PageServer, evaluate, hold_back, numbers_of
from tests.support.places import TESTS
from tests.support.workflows import scripted_skill

LOOKED_AT = 50
GOLDEN = TESTS / "golden"


async def test_the_page_folds_a_run_to_any_event_as_python_does(server: PageServer) -> None:
    recorded = await server.start("scrubbed")
    events = [decode_event(json.dumps(one["event"]).encode()) for one in recorded]
    page = await server.open_page("runs/scrubbed")
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
        assert await evaluate(page, script, n) == [view.status, spent, nodes], n


def shape(node: Node) -> list[Any]:
    """A node of a trace as the page shows it: path, iteration, and its effects and children in order."""
    inner = [(child.first_n, shape(child)) for child in node.children]
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


async def test_logs_of_all_languages_are_folded_as_python_folds_them(server: PageServer) -> None:
    page = await server.open_page("runs")
    files = [file for file in sorted(GOLDEN.glob("*.jsonl")) if file.stem != "events"]
    assert len(files) > 8
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        events = [decode_event(line.encode()) for line in lines]
        statuses, tree = await evaluate(page, FOLDED, [json.loads(line) for line in lines])
        views = [fold(Results(), events[:n]) for n in range(1, len(events) + 1)]
        assert statuses == [[one.status, one.usage.input_tokens + one.usage.output_tokens] for one in views], file.stem
        assert tree == shape(fold(TraceFold(), events).root), file.stem


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


async def test_a_drawing_shows_the_same_before_and_after_the_events_were_read(server: PageServer) -> None:
    page = await server.open_page("runs")
    entered = 0
    for file in sorted(GOLDEN.glob("*.jsonl")):
        if file.stem == "events":
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        before, after = await evaluate(page, DRAWN, [json.loads(line) for line in lines])
        assert before == after, file.stem
        _, _, latest = before[-1]
        entered += sum(one is not None for one in latest)
    assert entered > 8


async def test_streamed_events_become_the_same_rows_as_fetched_events(server: PageServer) -> None:
    recorded = await server.start("twice")
    page = await server.open_page("runs/twice")
    index = (await server.client.get("/runs/twice/index")).json()
    script = """async ([recorded, index]) => {
        const {endingOf, rowOf, rowsOf} = await import('/static/lib/rows.js')
        const endings = recorded.map((one) => endingOf(one.event)).filter((one) => one !== null)
        return [[recorded.map((one) => rowOf(one.event, one.sequence)), endings], [rowsOf(index), [index.ending]]]
    }"""
    pushed, fetched = await evaluate(page, script, [recorded, index])
    assert pushed == fetched


async def test_the_cost_of_a_run_and_of_each_part_is_updated(server: PageServer) -> None:
    log = Log("spends", "dear").started(Outline([OutlineNode("read")]))
    log.enter("read")
    for n, (model, tokens) in enumerate([("scripted", Usage(40_000, 500)), ("nobody", Usage(1_000, 200))], 1):
        log.add(ModelCall("turn", model, "00"), "read", 1, 1, f"turn.{n}")
        log.add(ModelResult(text="so", usage=tokens), "read", 1, 1, f"turn.{n}")
    *begun, call, result = log.events
    sequence = await server.append("spends", begun)
    page = await server.open_page(f"runs/spends?n={begun[-1].n}")
    head, inspected = page.locator(".run-head"), page.locator(".inspector-head")
    await expect(head).to_contain_text("40k tok$0.0850")
    await expect(inspected).to_contain_text("40k tok$0.0850")
    await server.append("spends", [call, result], sequence)
    await expect(head).to_contain_text("41k tokat least $0.0850")
    await page.get_by_role("button", name="Next event").click(click_count=2)
    await expect(inspected).to_contain_text("1.2k tokcost unknown")
    await page.get_by_role("button", name="read: running").click()
    await expect(inspected).to_contain_text("at least $0.0850")


async def test_the_inspector_shows_the_conversation_that_the_model_was_sent(server: PageServer) -> None:
    recorded = await server.start("seen")
    calls = [one["event"] for one in recorded if one["event"]["type"] == "model.call"]
    page = await server.open_page("runs/seen")
    await page.locator(".inspector").get_by_role("button", name="Text", exact=True).click()
    for call in calls:
        await go(page, server.url(f"runs/seen?n={call['n']}"))
        await expect(page.locator(".inspector-head")).to_contain_text(f"n={call['n']}")
        await expect(page.locator(".inspector-body:not([aria-busy])")).to_contain_text(
            "exactly what the model was sent"
        )
        seen = (await server.client.get(f"/runs/seen/seen/{quote(call['key'], safe='')}")).json()
        parts = [part["text"] for one in seen["messages"] for part in one["message"]["parts"]]
        shown = await page.locator(".turn .part").all_text_contents()
        assert shown == parts
        assert "<script>window.hacked" in "".join(shown)


async def test_an_error_is_shown_with_its_remedy(server: PageServer) -> None:
    page = await server.open_page("runs/nowhere")
    await expect(page.locator(".failure code")).to_have_text("run.unknown")
    await expect(page.locator(".failure p")).not_to_be_empty()
    script = {"turns": {"a": [{"error": {"code": "refused"}}], "c": [{"text": "closed"}]}, "routes": {"a": ["c"]}}
    await server.start("remedied", {**LOOP, "script": script})
    await go(page, server.url("runs/remedied?tab=error"))
    output = page.locator(".inspector .wrong .remedy").first
    await expect(output).to_have_text(f"What to do: {remedies()['model.refused']}")


async def test_reload_restores_the_selection(server: PageServer) -> None:
    await server.start("again")
    page = await server.open_page("runs/again")
    await page.get_by_role("row").filter(has_text="model.call").first.click()
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.get_by_text("payload", exact=True)).to_be_visible()
    before = page.url
    assert {"at", "tab"} <= set(httpx2.URL(before).params)
    await page.reload()
    await expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    assert page.url == before


async def test_updates_keep_elements_and_focus(server: PageServer) -> None:
    await server.start("stands", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await server.open_page("runs/stands")
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
    assert await evaluate(page, script) == [True, "Cancel…", True, True]
    await page.get_by_role("tab", name="Input").focus()
    for key, tab in (("ArrowRight", "Output"), ("ArrowRight", "Error"), ("End", "Raw"), ("ArrowRight", "Input")):
        await page.keyboard.press(key)
        await expect(page.get_by_role("tab", name=tab)).to_be_focused()
        await expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press(".")
    await expect(page.get_by_role("tab", name="Input")).to_be_focused()

    await go(page, server.url())
    row = page.locator(".card").filter(has_text="Latest runs").get_by_role("link", name="stands")
    await row.focus()
    await server.start("comes-in")
    await expect(page.get_by_role("link", name="comes-in").first).to_be_visible()
    await expect(row).to_be_focused()


async def test_back_restores_the_selection_and_the_filters(server: PageServer) -> None:
    await server.start("back-and-forth")
    page = await server.open_page("runs?q=back-and&status=failed&since=86400")
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
    # Back undoes the selections, and then leaves the run.
    await page.go_back()
    await expect(page).not_to_have_url(re.compile("node="))
    await page.go_back()
    await expect(page).to_have_url(server.url("runs/back-and-forth"))
    await page.go_back()
    await expect(page.get_by_label("Find runs")).to_have_value("back-and")
    await expect(page.get_by_label("Status", exact=True)).to_have_value("failed")
    await expect(page.get_by_label("Since")).to_have_value("86400")


WATERFALL = """() => {
    const {waterfall} = document.querySelector('cb-run'), {run, n, scale} = waterfall
    const lines = waterfall.lines.filter(({kind}) => kind === 'run' || kind === 'node')
    const name = ({path, iteration}) => path && `${path}#${iteration}`
    const named = (what) => Object.fromEntries(lines.map((one) => [name(one), what(one)]))
    return [named((one) => waterfall.length(one)), named((one) => scale.place(run.beganAt(one, n))), scale.folds.length]
}"""
"""The durations of the run and its nodes, where their bars begin, and the number of folded stretches."""


def run_of(page: Page) -> str:
    """The run that a page shows."""
    return httpx2.URL(page.url).path.rpartition("/")[2]


async def test_a_run_is_forked_at_the_selected_event_and_shown_with_its_origin(server: PageServer) -> None:
    await server.start("parts", {**LOOP, "breakpoints": ["c"]}, end=False)
    page = await server.open_page("runs/parts")
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    recorded = await server.events("parts")
    output = numbers_of(recorded, "model.result")[0]
    await evaluate(page, "n => document.querySelector('cb-run').choose(n)", output)
    # Until this event is drawn, the button forks at the one before.
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={output}")
    await page.get_by_role("button", name="Fork from here").click()
    # The form is filled in with the recorded values; a value that is not edited is not replaced.
    result = page.get_by_label("Result, as JSON")
    assert json.loads(await result.input_value())["text"] == "one"
    await expect(page.get_by_label("Model, from there on")).to_have_value("scripted")
    await result.fill((await result.input_value()).replace("one", "otherwise"))
    await page.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_text(f"forked from event {output} of parts")).to_be_visible()
    compares = page.get_by_role("link", name="compare", exact=True)
    await expect(compares).to_have_attribute("href", f"/t/acme/runs/parts/diff/{run_of(page)}")
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".run-title .status")).to_contain_text("failed")
    fork = run_of(page)
    # Wait for its end: the status is failed one or two events earlier.
    await server.result(fork)
    whole = await server.events(fork)
    assert whole[-1]["event"]["type"] == "run.end"
    await page.wait_for_function("(count) => document.querySelector('cb-run').run.rows.length >= count", arg=len(whole))
    rows = await evaluate(page, "() => document.querySelector('cb-run').run.rows.map((row) => [row.n, row.sequence])")
    assert rows == [[one["event"]["n"], one["sequence"]] for one in whole]
    assert rows[0][1] > rows[1][1]
    events = [decode_event(json.dumps(one["event"]).encode()) for one in whole]
    statuses, tree = await evaluate(page, FOLDED, [one["event"] for one in whole])
    views = [fold(Results(), events[:n]) for n in range(1, len(events) + 1)]
    assert statuses == [[one.status, one.usage.input_tokens + one.usage.output_tokens] for one in views]
    assert tree == shape(fold(TraceFold(), events).root)
    # The waterfall leaves out the time between the events of the origin and those of the fork.
    rows = {f"{row.path}#{row.iteration}": row.duration_s for row in step_rows(fold(TraceFold(), events))}
    assert views[-1].ended_at is not None
    assert views[-1].started_at is not None
    rows[""] = (views[-1].ended_at - views[-1].started_at).total_seconds()
    lasted, begun, folds = await evaluate(page, WATERFALL)
    assert lasted == {name: pytest.approx(seconds, abs=0.002) for name, seconds in rows.items()}
    assert begun["a#1"] < begun[""]
    assert folds >= 1
    # At an event of the origin nothing is left out.
    await evaluate(page, "n => document.querySelector('cb-run').travel(n)", output)
    await page.wait_for_function("(n) => document.querySelector('cb-run').waterfall.n === n", arg=output)
    lasted, begun, folds = await evaluate(page, WATERFALL)
    assert (begun[""], folds) == (0, 0)
    started = next(event.time for event in events if event.type == "run.start")
    assert lasted[""] == pytest.approx((events[output - 1].time - started).total_seconds(), abs=0.002)
    await page.get_by_role("tab", name="Output").click()
    await expect(page.locator(".inspector-body")).to_contain_text("otherwise")
    await evaluate(page, "() => document.querySelector('cb-run').choose(1)")
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.locator(".inspector-body")).to_contain_text("forked_from")
    await go(page, server.url(f"runs/parts/diff/{fork}"))
    await expect(page.get_by_text(f"They have events 2 to {output} in common")).to_be_visible()
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


async def test_a_fork_edits_prompts_arguments_and_breakpoints(server: PageServer) -> None:
    turns = {"look": [{"tool_calls": [{"tool": "open", "input": {"page": 1}}]}, {"text": "x"}]}
    start = {
        "definition": {"source": EDITED},
        "options": {"skills": [scripted_skill("files", "open")]},
        "model": "scripted",
        "script": {"turns": turns, "tools": {"open": [{"output": "ok"}]}, "default": {"text": "y"}},
    }
    recorded = await server.start("edited", start)
    places = {
        (one["event"]["type"], one["event"].get("path")): one["event"]["n"]
        for one in recorded
        if one["event"]["type"] in ("tool.call", "node.enter")
    }
    page = await server.open_page("runs/edited")
    await expect(page.locator(".run-title .status")).to_contain_text("completed")

    async def ask(n: int) -> None:
        await evaluate(page, "n => document.querySelector('cb-run').choose(n)", n)
        await expect(page.locator(".inspector-head")).to_contain_text(f"n={n}")
        await page.get_by_role("button", name="Fork from here").click()

    async def accepted() -> tuple[str, dict[str, Any]]:
        await page.get_by_role("button", name="Fork", exact=True).click()
        await expect(page.get_by_text("of edited")).to_be_visible()
        first = await server.client.get(f"/runs/{run_of(page)}/events", params={"limit": 1})
        return run_of(page), first.json()["events"][0]["event"]["payload"]

    # An edited instruction is written into the definition; faults are reported at their fields and lines.
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
    await server.result(fork)

    # Edited arguments replace those of the model's request; the fork has its breakpoints.
    await page.goto(server.url("runs/edited"))
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    await ask(places["tool.call", "look"])
    arguments = page.get_by_label("Arguments of open")
    assert json.loads(await arguments.input_value()) == {"page": 1}
    await arguments.fill('{"page": 2}')
    await page.get_by_text("Pause before nodes").click()
    await page.get_by_label("send (Send)").check()
    fork, payload = await accepted()
    server.open.add(fork)
    assert payload["breakpoints"] == ["send"]
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    events = await server.events(fork)
    calls = [one["event"]["payload"]["input"] for one in events if one["event"]["type"] == "tool.call"]
    assert calls == [{"page": 2}]


async def test_another_run_replaces_the_events_of_the_first(server: PageServer) -> None:
    for run, node in (("one", "a"), ("other", "b")):
        created = Log(run, "alike").started(Outline([OutlineNode(node)]))
        created.enter(node)
        created.exit(node)
        await server.append(run, created.ended().events)
    page = await server.open_page("runs/one")
    rows = page.locator(".event-row.list-row .path")
    await expect(rows.get_by_text("a", exact=True).first).to_be_visible()
    await go(page, server.url("runs/other"))
    await expect(rows.get_by_text("b", exact=True).first).to_be_visible()
    await expect(rows.get_by_text("a", exact=True)).to_have_count(0)


async def test_a_slow_graph_does_not_delay_the_events(server: PageServer) -> None:
    await server.start("slowly")
    page = await server.open_page("nowhere")
    held = await hold_back(page, "**/slowly/graph?*")
    await go(page, server.url("runs/slowly"))
    await expect(page.locator(".event-row.list-row").first).to_be_visible()
    await expect(page.locator(".graph-frame svg")).to_have_count(0)
    held.release.set()
    await expect(page.locator(".graph-frame svg")).to_be_visible()


async def test_a_failed_run_is_tried_again_and_any_run_once_more(server: PageServer) -> None:
    await server.start("tried")
    page = await server.open_page("runs/tried")
    await page.get_by_role("button", name="Retry").click()
    await expect(page.get_by_text("forked from event")).to_contain_text("of tried")
    retried = run_of(page)
    await page.get_by_role("button", name="Run again").click()
    await expect(page.get_by_role("heading", level=1)).not_to_have_text(retried)
    await expect(page.get_by_text("forked from event")).to_have_count(0)
