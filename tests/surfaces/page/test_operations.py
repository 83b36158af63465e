"""The operations views in a real browser: schedules, costs of models, and keys."""

import datetime as dt
import json

from playwright.async_api import expect

from callboard.features.access.account import Account
from callboard.features.access.credentials import Credentials
from callboard.features.access.keyring import Keyring
from tests.support.page_server import PageServer
from tests.support.workflows import document as workflow


async def test_a_schedule_says_when_it_is_due_and_is_paused_and_removed(server: PageServer) -> None:
    source = json.dumps(workflow({"a": {}}, id="nightly"))
    await server.register("nightly", source)
    page = await server.open_page("schedules")
    await expect(page.get_by_role("heading", name="No schedules")).to_be_visible()
    start = {"definition": {"name": "nightly"}, "model": "scripted", "script": {"default": {"text": "ok"}}}
    added = {"name": "nights", "when": {"cron": "0 2 * * *", "timezone": "UTC"}, "start": start}
    answer = await server.client.post("/schedules", json=added)
    assert answer.status_code == 200, answer.text
    await page.reload()
    row = page.get_by_role("row").filter(has_text="nights")
    await expect(row.locator("time")).to_contain_text("02:00")
    await expect(row).to_contain_text("none yet")
    await row.get_by_role("button", name="Pause").click()
    await expect(row).to_contain_text("It is paused.")
    await row.get_by_role("button", name="Resume").click()
    await expect(row.locator("time")).to_contain_text("02:00")
    await row.get_by_role("button", name="Remove…").click()
    await page.locator("dialog").get_by_role("button", name="Remove", exact=True).click()
    await expect(page.get_by_role("heading", name="No schedules")).to_be_visible()


async def test_costs_are_charted_by_day_model_definition_and_tag(server: PageServer) -> None:
    definition = {"source": json.dumps(workflow({"a": {}}, id="charted"))}
    for run, tokens, customer in (("chart-1", 300_000, "acme"), ("chart-2", 100_000, "globex")):
        turns = {"a": [{"text": "so", "usage": {"input_tokens": tokens, "output_tokens": 0}}]}
        more = {"model": "scripted", "script": {"turns": turns}, "tags": {"customer": customer}}
        await server.start(run, {"definition": definition, **more})
    page = await server.open_page("costs")
    charts = page.locator(".chart")
    await expect(charts).to_have_count(4)
    tagged = charts.filter(has_text="By tag")
    await expect(tagged.get_by_role("row").nth(1)).to_contain_text("customer=acme1 run300k tok$0.60")
    await expect(charts.filter(has_text="By model").get_by_role("row").nth(1)).to_contain_text("2 runs400k tok$0.80")
    await tagged.get_by_role("link", name="customer=globex").click()
    await expect(page.locator(".list-row .k-run")).to_have_text(["chart-2"])
    await page.go_back()
    today = dt.datetime.now(dt.UTC).date().isoformat()
    await charts.filter(has_text="By day").get_by_role("link", name=today).click()
    await expect(page.locator(".list-row .k-run")).to_have_text(["chart-2", "chart-1"])


async def test_credentials_are_shown_by_name_only(server: PageServer) -> None:
    page = await server.open_page("keys")
    await expect(page.get_by_text("callboard credentials add PROVIDER")).to_be_visible()
    credentials = Credentials(server.connection.log, "acme")
    account = Account({"SLACK_BOT_TOKEN": "xoxb-secret"})
    await credentials.put(Keyring([b"k" * 32]), "slack", "", account, dt.datetime.now(dt.UTC))
    await page.reload()
    row = page.get_by_role("row").filter(has_text="slack")
    await expect(row).to_contain_text("SLACK_BOT_TOKEN")
    assert "xoxb-secret" not in (await server.client.get("/access")).text
