"""The view of a run in a real browser: selection, the scrubber, recorded values, and the sizes of panes."""

import json
import re

from playwright.async_api import expect

from callboard.bus.events import ModelCall, Outline, OutlineNode
from tests.support.browser import go
from tests.support.event_logs import Log
from tests.support.page_server import LOOP, PageServer, evaluate, numbers_of

LONG = 9_007_199_254_740_993
"""The least integer that JavaScript cannot represent."""

BLOB_BYTES = 300_000
RIGHT_TO_LEFT = "שלום"


async def test_a_click_selects_and_only_the_scrubber_moves_in_time(server: PageServer) -> None:
    recorded = await server.start("selected")
    calls = numbers_of(recorded, "model.call")
    page = await server.open_page("runs/selected")
    rows = [page.locator(f'.event-row[data-name="{n}"]') for n in calls]
    await rows[0].click()
    await rows[1].click()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={calls[1]}")
    await expect(page).to_have_url(server.url(f"runs/selected?at={calls[1]}"))
    await expect(page.locator(".where")).to_have_text(f"event {len(recorded)} of {len(recorded)}")
    await page.go_back()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={calls[0]}")
    await page.go_back()
    await expect(page).to_have_url(server.url("runs/selected"))
    await page.go_forward()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={calls[0]}")

    # At an earlier event the selected turn has no result yet.
    await go(page, server.url(f"runs/selected?n={calls[0]}&at={calls[0]}&tab=output"))
    await expect(page.locator(".where")).to_contain_text(f"event {calls[0]} of")
    await expect(page.locator(".inspector-body")).to_contain_text("The model is answering.")
    await expect(page.locator(".inspector-head .status")).to_contain_text("running")
    await page.locator(".gnode .hit").first.click()
    await expect(page.locator(".inspector-body")).to_contain_text("No result yet")
    await expect(page).to_have_url(re.compile(rf"[?&]n={calls[0]}(&|$)"))
    await page.locator(".gnode .hit").last.click()
    await expect(page.locator(".inspector-head")).to_contain_text(
        f"This node has not been entered by event {calls[0]}."
    )
    await page.get_by_role("button", name="Next event").click()
    await expect(page).to_have_url(re.compile(rf"[?&]n={calls[0] + 1}(&|$)"))
    await page.get_by_role("button", name="latest").click()
    await expect(page).not_to_have_url(re.compile("[?&]n="))


async def test_values_are_shown_as_they_are_recorded(server: PageServer) -> None:
    await server.start("exact", {**LOOP, "input": {"id": LONG, "text": RIGHT_TO_LEFT}})
    page = await server.open_page("runs/exact?at=1")
    await expect(page.locator(".inspector-body .json.number")).to_have_text(str(LONG))
    assert await page.locator(".inspector-body").get_by_text(RIGHT_TO_LEFT).get_attribute("dir") == "auto"
    copied = (
        "() => document.querySelector('cb-run').inspector.event(document.querySelector('cb-run').inspector.looked, 1)"
    )
    text = await evaluate(page, f"() => ({copied})().then((event) => JSON.stringify(event.payload.start.input))")
    assert json.loads(text)["id"] == LONG


async def test_a_text_stored_separately_is_loaded(server: PageServer) -> None:
    long = "y" * BLOB_BYTES
    turns = {"a": [{"text": long}], "c": [{"text": "three"}]}
    script = {"turns": turns, "routes": {"a": ["c"]}}
    recorded = await server.start("separate", {**LOOP, "script": script})
    result = next(one["event"] for one in recorded if one["event"]["type"] == "model.result")
    assert "$blob" in result["payload"]["text"]
    page = await server.open_page(f"runs/separate?at={result['n']}&tab=output")
    await page.locator(".inspector-body").get_by_role("button", name="show", exact=True).click()
    await page.get_by_role("button", name="show all").click()
    await expect(page.locator(".inspector-body .text").first).to_have_text(long)


async def test_the_events_of_a_long_run_are_listed_from_the_first(server: PageServer) -> None:
    log = Log("long-list", "w").started(Outline([OutlineNode("a")]))
    for visit in range(1, 400):
        log.enter("a", iteration=visit)
        log.exit("a", iteration=visit)
    log.ended()
    await server.append_log(log)
    page = await server.open_page("runs/long-list")
    await expect(page.locator(".where")).to_have_text(f"event {len(log.events)} of {len(log.events)}")
    await expect(page.locator(".event-row").nth(1)).to_contain_text("run.accepted")


async def test_an_answer_opened_in_mid_turn_is_marked(server: PageServer) -> None:
    log = Log("mid-turn", "w").started(Outline([OutlineNode("a")]))
    log.enter("a")
    log.add(ModelCall("turn", "scripted", "00"), "a", 1, 1, "turn.1")
    await server.append_log(log)
    n = log.events[-1].n
    page = await server.open_page(f"runs/mid-turn?at={n}&tab=output")
    await expect(page.locator(".inspector-body")).to_contain_text("The model is answering.")
    await evaluate(
        page,
        "(delta) => document.querySelector('cb-run').hear([{sequence: null, delta}])",
        {"n": n, "epoch": 1, "k": 3, "text": "the rest"},
    )
    await expect(page.locator(".speaking")).to_have_text("… the rest")
    await evaluate(
        page,
        "(delta) => document.querySelector('cb-run').hear([{sequence: null, delta}])",
        {"n": n, "epoch": 2, "k": 0, "text": "all"},
    )
    await expect(page.locator(".speaking")).to_have_text("all")


async def test_the_graph_fills_the_window_and_is_moved_by_keys(server: PageServer) -> None:
    await server.start("whole-window")
    page = await server.open_page("runs/whole-window", width=1000, height=500)
    drawing, window = page.locator(".graph svg[role=group]"), page.locator("dialog.whole-window")
    await expect(drawing).to_be_visible()
    await page.get_by_role("button", name="Full screen").click()
    await expect(window.locator(".gnode .glyph").first).to_be_visible()
    box = await window.bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (1000, 500)
    await page.keyboard.press("0")
    whole = float(await drawing.get_attribute("height") or 0)
    assert whole <= 500
    for _ in range(6):
        await page.keyboard.press("+")
    assert float(await drawing.get_attribute("height") or 0) > whole
    at = "() => document.querySelector('.graph-frame').scrollTop"
    middle = await evaluate(page, at)
    assert middle > 0
    await page.keyboard.press("ArrowUp")
    assert await evaluate(page, at) == middle - 60
    # A selection in the full screen is a selection in the run.
    await window.locator(".gnode").first.click()
    await page.keyboard.press("Escape")
    await expect(window).to_have_count(0)
    assert "node=" in page.url
    await expect(page.locator(".pane .graph .gnode.chosen")).to_have_count(1)
    await page.keyboard.press("z")
    await expect(window).to_be_visible()
    await page.get_by_role("button", name="Full screen").click()
    await expect(window).to_have_count(0)


async def test_sizes_of_panes_are_kept_in_the_browser(server: PageServer) -> None:
    await server.start("resized")
    page = await server.open_page("runs/resized", width=1440, height=900)
    divider, graph = (
        page.get_by_role("separator", name="Between graph and waterfall"),
        page.locator(".pane[data-pane=graph]"),
    )

    async def width() -> float:
        box = await graph.bounding_box()
        assert box is not None
        return round(box["width"])

    await expect(divider).to_have_attribute("aria-valuenow", "35")
    usual = await width()
    await divider.focus()
    for _ in range(5):
        await page.keyboard.press("ArrowRight")
    await expect(divider).to_have_attribute("aria-valuenow", "45")
    assert await width() > usual
    place = await divider.bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    before = await width()
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x + 60, y)
    await page.mouse.up()
    assert abs(await width() - before - 60) <= 1
    moved = await width()
    await page.reload()
    await expect(graph).to_be_visible()
    assert await width() == moved
    await divider.dblclick()
    assert await width() == usual
    lower = page.get_by_role("separator", name="Between graph and events")
    height = "() => document.querySelector('.pane[data-pane=events]').getBoundingClientRect().height"
    before = await evaluate(page, height)
    await lower.focus()
    await page.keyboard.press("ArrowUp")
    assert await evaluate(page, height) > before
