"""The outcome of a run, with which its view opens, in a real browser."""

import pytest
from playwright.async_api import expect

from callboard.bus.effects import Failure
from callboard.bus.events import ChildEnd, ChildStart, EffectCall, EffectResult, HumanAsked, RunEnd, RunFailed
from tests.support.event_logs import Log
from tests.support.page_server import ASKING, LOOP, PageServer

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture."""

CLOSES = {"turns": {"a": [{"text": "one"}], "c": [{"text": "Closed the ticket."}]}, "routes": {"a": ["c"]}}


async def test_a_run_opens_on_its_output_and_its_start(server: PageServer) -> None:
    start = {**LOOP, "script": CLOSES, "input": {"who": "Ada"}, "tags": {"customer": "acme"}}
    await server.start("opens", start)
    page = await server.open_page("runs/opens")
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome).to_contain_text("Closed the ticket.")
    await expect(outcome).to_contain_text("Ada")
    await expect(outcome).to_contain_text("scripted")
    await outcome.get_by_role("link", name="customer: acme").click()
    await expect(page.get_by_role("link", name="opens", exact=True)).to_be_visible()


async def test_a_run_that_failed_opens_on_its_error(server: PageServer) -> None:
    recorded = await server.start("opens-failed")
    failed = next(one["event"]["n"] for one in recorded if one["event"]["payload"].get("error"))
    page = await server.open_page("runs/opens-failed", width=390, height=844)
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome.locator(".code")).to_have_text("workflow.node_failed")
    await outcome.get_by_role("button", name="Show where").click()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={failed}")
    await expect(page.get_by_role("tab", name="Error")).to_have_attribute("aria-selected", "true")


async def test_a_waiting_run_is_answered_in_its_outcome(server: PageServer) -> None:
    await server.start("opens-asking", {"definition": {"source": ASKING}}, end=False)
    page = await server.open_page("runs/opens-asking")
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome.get_by_role("heading", name="Which carrier takes it?")).to_be_visible()
    await outcome.get_by_text("South").click()
    await outcome.get_by_label("Comment").fill("cheaper")
    await outcome.get_by_role("button", name="Answer").click()
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    await expect(outcome).to_contain_text("South")
    await expect(outcome.get_by_role("button", name="Answer")).to_have_count(0)
    server.open.discard("opens-asking")


def perform_step(log: Log, path: str, *errors: str) -> int:
    """Perform a step in Python, with an error or none for each try; return the last event."""
    for k, message in enumerate(errors, 1):
        slot = "step" if k == 1 else f"step.{k}"
        log.add(EffectCall("step", path, {"step": path, "arguments": {}}), path, 1, 1, slot)
        log.add(EffectResult(None, Failure("step.failed", message) if message else None), path, 1, 1, slot)
    return len(log.events)


async def test_a_failed_run_leads_to_the_failure_that_ended_it(server: PageServer) -> None:
    log = Log("recovered").started(language="python")
    perform_step(log, "fetch", "busy", "")
    n = perform_step(log, "save", "disk is read-only")
    error = Failure("step.failed", "StepFailed", previous=Failure("step.failed", "disk is read-only"))
    log.add(RunFailed(error))
    log.add(RunEnd("failed", error=error))
    await server.append_log(log)
    page = await server.open_page("runs/recovered")
    inspector = page.get_by_role("region", name="Inspector")
    # The inspector shows that failure, because nothing else is selected.
    await expect(inspector).to_contain_text(f"n={n - 1} to n={n}")
    await page.locator(".list-row", has_text="fetch").first.click()
    await expect(inspector).not_to_contain_text(f"n={n - 1} to n={n}")
    await page.get_by_role("button", name="Show where").click()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={n}")
    await expect(inspector).to_contain_text("disk is read-only")


async def test_a_run_that_completed_counts_the_steps_that_were_caught(server: PageServer) -> None:
    log = Log("caught").started(language="python")
    perform_step(log, "fetch", "busy", "")
    n = perform_step(log, "save", "disk is read-only", "disk is read-only")
    log.add(ChildStart({"name": "other"}, "child-1"), "child", 1, 1, "child")
    log.add(ChildEnd("failed", error=Failure("step.failed", "no")), "child", 1, 1, "child")
    log.ended("done")
    await server.append_log(log)
    page = await server.open_page("runs/caught")
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome).to_contain_text("2 steps failed")
    await expect(outcome).to_contain_text("save and 1 more")
    await expect(outcome).to_contain_text("done")
    await outcome.get_by_role("button", name="Show where").click()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={n}")


async def test_pictures_in_members_and_lists_are_shown(server: PageServer) -> None:
    log = Log("pictures").started(language="python")
    mcp = {"type": "image", "mimeType": "image/png", "data": DOT}
    address = f"data:image/png;base64,{DOT}"
    log.ended({"title": "Tickets", "chart": address, "more": [address], "deep": {"within": [{"of": mcp}]}})
    await server.append_log(log)
    page = await server.open_page("runs/pictures")
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome.locator("img")).to_have_count(3)
    await expect(outcome).not_to_contain_text(DOT[:40])
    await outcome.get_by_role("button", name="JSON").click()
    await expect(outcome.locator("img")).to_have_count(0)


@pytest.mark.parametrize(("width", "height"), [(1024, 700), (1280, 800), (1024, 420)])
async def test_the_panes_are_usable_beside_a_long_question(server: PageServer, width: int, height: int) -> None:
    run = f"asks-{width}-{height}"
    log = Log(run).started(language="python")
    log.add(HumanAsked("Ship it?", options=["yes", "no"], request_data={"plan": "line\n\n" * 40}), "ask", 1, 1, "ask")
    await server.append_log(log)
    page = await server.open_page(f"runs/{run}", width=width, height=height)
    await expect(page.locator(".outcome.asks")).to_be_visible()
    for pane in ("spans", "inspector", "graph", "events"):
        box = await page.locator(f"section[data-pane={pane}]").bounding_box()
        assert box is not None
        assert box["height"] > 100
        assert box["width"] > 100
