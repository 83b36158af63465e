"""The outcome of a run, with which its view opens, in a real browser."""

from playwright.async_api import expect

from tests.support.page_stage import ASKING, LOOP, Stage
from tests.support.page_stage import browser as browser  # the fixtures
from tests.support.page_stage import deployment as deployment
from tests.support.page_stage import furnish as furnish
from tests.support.page_stage import stage as stage

CLOSES = {"turns": {"a": [{"text": "one"}], "c": [{"text": "Closed the ticket."}]}, "routes": {"a": ["c"]}}


async def test_a_run_opens_on_its_output_and_what_it_was_started_with(stage: Stage) -> None:
    start = {**LOOP, "script": CLOSES, "input": {"who": "Ada"}, "tags": {"customer": "acme"}}
    await stage.start("opens", start)
    page = await stage.browser.page(stage.url("runs/opens"))
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome).to_contain_text("Closed the ticket.")
    await expect(outcome).to_contain_text("Ada")
    await expect(outcome).to_contain_text("scripted")
    await outcome.get_by_role("link", name="customer: acme").click()
    await expect(page.get_by_role("link", name="opens", exact=True)).to_be_visible()


async def test_a_run_that_failed_opens_on_its_error(stage: Stage) -> None:
    recorded = await stage.start("opens-failed")
    failed = next(one["event"]["n"] for one in recorded if one["event"]["payload"].get("error"))
    page = await stage.browser.page(stage.url("runs/opens-failed"), width=390, height=844)
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome.locator(".code")).to_have_text("workflow.node_failed")
    await outcome.get_by_role("button", name="Show where").click()
    await expect(page.locator(".inspector-head")).to_contain_text(f"n={failed}")
    await expect(page.get_by_role("tab", name="Error")).to_have_attribute("aria-selected", "true")


async def test_a_run_that_waits_is_answered_where_it_opens(stage: Stage) -> None:
    await stage.start("opens-asking", {"definition": {"source": ASKING}}, end=False)
    page = await stage.browser.page(stage.url("runs/opens-asking"))
    outcome = page.get_by_role("region", name="Outcome")
    await expect(outcome.get_by_role("heading", name="Which carrier takes it?")).to_be_visible()
    await outcome.get_by_text("South").click()
    await outcome.get_by_label("Comment").fill("cheaper")
    await outcome.get_by_role("button", name="Answer").click()
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    await expect(outcome).to_contain_text("South")
    await expect(outcome.get_by_role("button", name="Answer")).to_have_count(0)
    stage.open.discard("opens-asking")
