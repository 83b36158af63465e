"""Starts in a real browser: examples, files and texts, and links between definitions and their runs."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from callboard.service.files.templates import example_start, examples
from tests.support.browser import go
from tests.support.page_server import LOOP, PageServer
from tests.support.places import ROOT
from tests.support.workflows import document as workflow

NOTES = ROOT / "languages" / "playbook" / "templates" / "minimal" / "notes.md"


async def open_without_runs(server: PageServer, path: str = "", **size: Any) -> Page:
    """Open a page as if the server had no runs yet."""
    page = await server.open_page("nowhere", **size)

    async def none(route: Route) -> None:
        await route.fulfill(json={"runs": [], "more": False, "sequence": 1})

    await page.route("**/runs?*", none)
    await go(page, server.url(path))
    return page


async def test_an_example_is_started_by_one_click_and_needs_no_model(server: PageServer) -> None:
    page = await open_without_runs(server)
    await expect(page.get_by_role("heading", name="Start your first run")).to_be_visible()
    for language in ("Flow", "Graph", "Playbook", "Workflow"):
        await expect(page.get_by_text(f"{language}: minimal", exact=True)).to_be_visible()
    await page.get_by_text("Workflow: minimal", exact=True).click()
    await expect(page.locator(".run-title .status")).to_contain_text("completed")
    page = await open_without_runs(server, "runs")
    await page.get_by_role("link", name="Try an example").click()
    await expect(page.get_by_role("heading", name="Start your first run")).to_be_visible()


@pytest.mark.parametrize("example", list(examples()), ids=lambda one: f"{one.language}-{one.name}")
async def test_every_example_completes_or_asks_a_person(server: PageServer, example: Any) -> None:
    run = f"example-{example.language}-{example.name}"
    asks = example.answers is not None
    await server.start(run, example_start(example), end=not asks)
    if not asks:
        assert (await server.result(run))["status"] == "completed"
        return
    page = await server.open_page("inbox")
    await page.get_by_role("row").filter(has_text=run).click()
    await page.get_by_role("button", name="shorten it").click()
    assert (await server.result(run))["status"] == "completed"
    server.open.discard(run)


async def test_an_empty_start_says_what_is_missing_at_its_field(server: PageServer) -> None:
    page = await server.open_page("start")
    await page.get_by_role("button", name="Start", exact=False).last.click()
    field = page.get_by_placeholder("name of a registered definition")
    await expect(page.get_by_text("Name a registered definition, choose a file, or use a text.")).to_be_visible()
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(field).to_be_focused()
    await field.press_sequentially("w")
    await expect(field).not_to_have_attribute("aria-invalid", "true")


async def test_a_file_is_started_by_form_with_a_script_instead_of_a_model(server: PageServer) -> None:
    page = await server.open_page("start")
    await page.locator("input[type=file]").set_input_files(NOTES)
    await expect(page.get_by_text("Release notes — From a list of changes")).to_be_visible()
    await page.get_by_label("changes").fill("a new log format")
    await page.get_by_label("plain").check()
    begin = page.locator("form.start > .actions button")
    await begin.click()
    await expect(page.locator(".start .failure")).to_contain_text("no model is named")
    await expect(page.locator("details .hint")).to_contain_text("ANTHROPIC_API_KEY")
    await page.get_by_role("button", name="Fill in a script").click()
    await begin.click()
    await expect(page.locator(".run-title .status")).to_be_visible()
    await expect(page.locator(".run-head")).to_contain_text("playbook")


async def test_the_problems_of_a_text_are_shown_under_it(server: PageServer) -> None:
    page = await server.open_page("start")
    await page.get_by_text("Use a text instead").click()
    source = page.get_by_placeholder("the text of a definition")
    await source.fill("id: broken\nnodes: {a: {}}\nentry: b\n")
    faults = page.locator("details .problem li")
    missing = faults.filter(has_text="edges is required")
    await expect(missing).to_contain_text("line 1, column 1")
    await expect(missing.locator(".excerpt")).to_have_text("id: broken")
    await expect(missing.locator("mark")).to_have_text("i")
    # A refused start shows them in the same way.
    await page.locator("form.start > .actions button").click()
    refused = page.locator(".start .failure li").filter(has_text="entry node 'b' does not exist")
    await expect(refused).to_contain_text("line 3, column 1")
    await expect(refused.locator(".excerpt")).to_have_text("entry: b")
    # Of a long line, what is around the place is shown.
    await source.fill(f'{{"id": "{"𝒙" * 300}", "edges": ]}}')
    await expect(faults).to_have_count(1)
    await expect(faults.locator(".excerpt")).to_have_text(re.compile('^…(𝒙)+", "edges": ]}$'))
    await expect(faults.locator("mark")).to_have_text("]")
    await source.fill(json.dumps(workflow({"a": {}}, inputs={"who": {"type": "string", "required": True}})))
    await expect(page.get_by_label("who")).to_be_visible()
    await expect(faults).to_have_count(0)


async def test_a_run_and_the_name_of_its_definition_lead_to_each_other(server: PageServer) -> None:
    source = json.dumps(workflow({"a": {}}, id="greet"))
    await server.register("greeting", source)
    script = {"model": "scripted", "script": {"default": {"text": "Hi."}}}
    await server.start("named", {"definition": {"name": "greeting"}, **script})
    page = await server.open_page("runs/named")
    await page.locator(".run-head .facts").get_by_role("link", name="greet").click()
    await expect(page.get_by_role("heading", name="greeting", level=1)).to_be_visible()
    await page.get_by_role("link", name="1 run").click()
    await expect(page.get_by_role("row").filter(has_text="named")).to_be_visible()
    await page.go_back()
    await page.get_by_role("link", name="Its runs").click()
    await page.get_by_role("link", name="named", exact=True).click()
    await expect(page.get_by_role("heading", name="named", level=1)).to_be_visible()
    # A start like that of the run names the registered definition again.
    await go(page, server.url("start?like=named"))
    await expect(page.get_by_placeholder("name of a registered definition")).to_have_value("greeting")
    await expect(page.get_by_placeholder("the text of a definition")).to_have_value("")


async def test_a_definition_that_is_not_registered_is_read_from_its_run(server: PageServer) -> None:
    await server.start("from-a-file", {**LOOP, "definition": {"source": json.dumps(workflow({"a": {}}, id="loose"))}})
    page = await server.open_page("runs/from-a-file")
    await page.locator(".run-head .facts").get_by_role("link", name="loose").click()
    await expect(page.locator(".gnode")).to_have_count(1)
    await expect(page.get_by_text("not registered; from the run")).to_be_visible()
    await page.get_by_role("button", name="Register…").click()
    await page.get_by_role("button", name="Register", exact=True).click()
    await expect(page.get_by_text("in force")).to_be_visible()
    page = await server.open_page("definitions/nobody")
    await expect(page.get_by_text("No definition is registered as nobody")).to_be_visible()
