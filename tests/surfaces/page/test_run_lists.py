"""The home view, lists of runs, and comparisons in a real browser; and the bounds of the shell."""

import json
from pathlib import Path

import httpx2
from playwright.async_api import Route, expect

from callboard.surfaces.page import shell
from tests.support.browser import go
from tests.support.page_server import EVIL, LOOP, PageServer, evaluate, hold_back
from tests.support.workflows import document as workflow

SHELL_BYTES_MAX = 100_000
"""The compressed size of all files that a browser receives before it requests data."""


def test_the_shell_is_small_and_names_no_other_host() -> None:
    files = sorted((Path(shell.__file__).parent / "static").rglob("*.*"))
    assert len(files) > 20
    names = (shell.DOCUMENT, shell.SCRIPT, shell.WORKER, "style.css", "icon.svg")
    sent = [shell.static_files()[name] for name in names]
    assert sum(len(file.packed or file.plain) for file in sent) <= SHELL_BYTES_MAX
    for file in files:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        assert not [word for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(") if word in text]


async def test_the_page_sends_requests_to_its_own_host_only(server: PageServer) -> None:
    page = await server.browser.page("about:blank", alone=True)
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(httpx2.URL(request.url).netloc.decode()))
    await page.goto(server.url())
    await server.start("at-home")
    await expect(page.get_by_role("link", name="at-home").first).to_be_visible()
    await page.get_by_role("link", name="failed in 24 h").click()
    await expect(page.get_by_role("row").filter(has_text="at-home")).to_contain_text("failed")
    assert hosts == {server.client.base_url.netloc.decode()}


async def test_a_store_that_fills_up_is_reported_on_the_home_view(server: PageServer) -> None:
    page = await server.open_page("nowhere")

    async def fuller(route: Route) -> None:
        found = await (await route.fetch()).json()
        found["workers"][0]["load"]["store"] = 0.787
        await route.fulfill(json=found)

    await page.route("**/workers", fuller)
    await server.start("stored")
    await go(page, server.url())
    await expect(page.locator(".home .failure")).to_contain_text("The store is 78 % full.")


async def test_the_costs_of_the_last_day_are_on_the_home_view(server: PageServer) -> None:
    definition = {"source": json.dumps(workflow({"a": {}}, id="dear"))}
    turns = {"a": [{"text": "so", "usage": {"input_tokens": 40_000, "output_tokens": 500}}]}
    for run in ("paid-1", "paid-2"):
        await server.start(run, {"definition": definition, "model": "scripted", "script": {"turns": turns}})
    page = await server.open_page()
    card = page.locator(".card").filter(has_text="Cost in the last 24 h: $")
    await expect(card.get_by_role("link", name="dear")).to_contain_text("2 runs · 81k tok$0.17")
    await card.get_by_role("link", name="dear").click()
    await expect(page.get_by_role("row").filter(has_text="paid-")).to_have_count(2)
    found = (await server.client.get("/costs", params={"by": "model", "where": "definition=dear"})).json()["costs"]
    assert [(one["name"], one["runs"], one["cost"]["usd"]) for one in found] == [("scripted", 2, 0.17)]
    assert (await server.client.get("/costs", params={"by": "hour"})).status_code == 400


async def test_a_run_that_starts_before_the_stream_connects_is_listed(server: PageServer) -> None:
    page = await server.browser.page("about:blank", alone=True)
    await page.add_init_script("delete globalThis.SharedWorker")
    held = await hold_back(page, "**/live?*")
    for path in ("", "runs"):
        await page.goto(server.url(path))
        await expect(page.locator("main > *")).to_be_visible()
    await server.start("before-the-stream")
    held.release.set()
    await expect(page.get_by_role("row").filter(has_text="before-the-stream")).to_be_visible()


async def test_a_run_is_listed_when_it_begins_and_updated(server: PageServer) -> None:
    page = await server.open_page("runs?definition=w")
    await expect(page.locator(".live .live")).to_be_visible()
    await server.start("pushed-1")
    row = page.get_by_role("row").filter(has_text="pushed-1")
    await expect(row).to_contain_text("failed")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="pushed-1", level=1)).to_be_visible()
    await page.go_back()
    await expect(row).to_be_visible()
    assert await page.get_by_label("Definition").input_value() == "w"


async def test_selected_runs_are_cancelled_together(server: PageServer) -> None:
    for run in ("picked-1", "picked-2", "picked-3"):
        await server.start(run, {**LOOP, "breakpoints": ["a"]}, end=False)
    page = await server.open_page("runs?q=picked-")
    await expect(page.locator(".run-row .status.paused")).to_have_count(3)
    for key in ("j", "x", "j", "x"):
        await page.keyboard.press(key)
    await expect(page.get_by_text("2 runs selected")).to_be_visible()
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel them").click()
    await expect(page.locator(".run-row .status.cancelled")).to_have_count(2)
    await expect(page.get_by_role("row").filter(has_text="picked-1")).to_contain_text("paused")
    await expect(page.get_by_role("button", name="Cancel…")).to_be_hidden()


async def test_runs_are_selected_with_a_mouse(server: PageServer) -> None:
    for number in range(4):
        await server.start(f"boxed-{number}")
    page = await server.open_page("runs?q=boxed-")
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


async def test_a_pressed_row_does_not_move_when_a_run_begins(server: PageServer) -> None:
    await server.start("pressed-1")
    page = await server.open_page("runs?q=pressed-")
    boxes = page.locator(".list-row").get_by_role("checkbox")
    await expect(page.locator(".run-row .status.failed")).to_have_count(1)
    await boxes.nth(0).hover()
    await page.mouse.down()
    await server.start("pressed-2")
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    await expect(boxes).to_have_count(1)
    await page.mouse.up()
    await expect(page.get_by_text("1 run selected")).to_be_visible()
    await expect(boxes).to_have_count(2)
    assert [await box.is_checked() for box in await boxes.all()] == [False, True]


async def test_the_active_row_stays_the_same_run_when_a_run_begins(server: PageServer) -> None:
    await server.start("kept-1")
    page = await server.open_page("runs?q=kept-")
    rows = page.locator(".list-row")
    await expect(page.locator(".run-row .status.failed")).to_have_count(1)
    await page.keyboard.press("j")
    await server.start("kept-2")
    await expect(rows).to_have_count(2)
    await expect(page.locator(".list-row[aria-selected=true]")).to_contain_text("kept-1")
    await page.keyboard.press("x")
    await expect(rows.filter(has_text="kept-1").get_by_role("checkbox")).to_be_checked()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="kept-1", level=1)).to_be_visible()

    # A click selects the row's own event, even if the row's index has another one by then.
    await expect(page.locator(".waterfall .list-row").nth(3)).to_be_visible()
    script = """() => {
        const view = document.querySelector('cb-run'), {waterfall} = view
        const further = ({dataset: {index}}) => index > 2 && waterfall.lines[index].depth === 1
        const row = [...waterfall.element.querySelectorAll('.list-row')].find(further)
        waterfall.fold(waterfall.lines[1], true)
        row.click()
        return [Number(row.dataset.n), view.chosen]
    }"""
    shown, chosen = await evaluate(page, script)
    assert shown == chosen


async def test_the_list_is_sorted_and_filtered_and_its_rows_open(server: PageServer) -> None:
    definition = {"source": json.dumps(workflow({"a": {}}, id="sorted"))}
    for run, tokens, customer in (("sort-1", 300, "acme"), ("sort-2", 100, "globex"), ("sort-3", 200, "acme")):
        turns = {"a": [{"text": "so", "usage": {"input_tokens": tokens, "output_tokens": 0}}]}
        more = {"model": "scripted", "script": {"turns": turns}, "tags": {"customer": customer}}
        await server.start(run, {"definition": definition, "by": f"of {customer}", **more})
    page = await server.open_page("runs?definition=sorted", width=1440)
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


async def test_a_saved_view_is_a_link(server: PageServer) -> None:
    page = await server.open_page("runs?q=nobody&status=failed")
    await page.get_by_text("Views", exact=True).last.click()
    await page.get_by_role("button", name="Save this view").click()
    await page.get_by_label("Name").fill(EVIL)
    await page.get_by_role("button", name="Save", exact=True).click()
    await go(page, server.url("runs"))
    await page.get_by_text("Views", exact=True).last.click()
    await page.get_by_role("link", name=EVIL).click()
    await expect(page.get_by_label("Find runs")).to_have_value("nobody")
    assert dict(httpx2.URL(page.url).params) == {"q": "nobody", "status": "failed"}
    await page.get_by_text("Views", exact=True).last.click()
    await page.get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("link", name=EVIL)).to_have_count(0)


async def test_versions_of_a_definition_are_compared(server: PageServer) -> None:
    for title in ("One", "Two"):
        source = json.dumps(workflow({"a": {"name": title}}), indent=1)
        await server.register("twofold", source)
    page = await server.open_page("definitions/twofold")
    await page.get_by_role("button", name="compare").click()
    await expect(page.locator(".line.removed")).to_contain_text("One")
    await expect(page.locator(".line.added")).to_contain_text("Two")


async def test_two_runs_are_compared(server: PageServer) -> None:
    await server.start("left")
    await server.start("right", {**LOOP, "input": {"who": "Grace"}})
    await server.start("short", {**LOOP, "script": {**LOOP["script"], "routes": {"a": ["c"]}}})
    page = await server.open_page("runs/left/diff/right")
    await expect(page.get_by_role("columnheader", name="left").first).to_be_visible()
    await expect(page.get_by_text("Grace", exact=True)).to_be_visible()
    heads = "() => [...document.querySelectorAll('.told h2')].map((one) => one.textContent)"
    assert (await evaluate(page, heads))[-1] == "measures"
    assert "path" not in await evaluate(page, heads)
    await go(page, server.url("runs/left/diff/short"))
    await expect(page.get_by_role("row", name="continues with b c")).to_be_visible()
    await expect(page.get_by_role("row", name="because more enough")).to_be_visible()
    assert (await evaluate(page, heads))[0] == "First difference: after a"
    steps = "() => [...document.querySelectorAll('.told tr.other')].map((one) => one.textContent)"
    assert {"2bc", "3a#2", "4c"} <= set(await evaluate(page, steps))


async def test_words_that_differ_are_marked_within_texts(server: PageServer) -> None:
    for run, word in (("in-plain", "plain"), ("in-formal", "formal")):
        rules = " ".join(f"Rule {each} holds." for each in range(60))
        source = json.dumps(workflow({"a": {"name": "A", "instruction": f"{rules} Answer in {word} words."}}))
        script = {"turns": {"a": [{"text": f"A {word} answer"}]}}
        await server.start(run, {"definition": {"source": source}, "model": "scripted", "script": script})
    page = await server.open_page("runs/in-plain/diff/in-formal")
    row = page.get_by_role("row", name="/messages/0/parts/0/text")
    await expect(row.locator("del")).to_have_text("plain")
    await expect(row.locator("ins")).to_have_text("formal")
    await expect(row.get_by_text("Rule 0 holds.")).to_have_count(0)
    await row.get_by_role("button", name="characters alike").first.click()
    await expect(row.get_by_text("Rule 0 holds.")).to_have_count(1)
    marked = "() => [...document.querySelectorAll('tr:has(del)')].map((one) => one.querySelector('th').textContent)"
    assert {"text", "nodes.a.instruction · text", "a · result/data/summary"} <= set(await evaluate(page, marked))
