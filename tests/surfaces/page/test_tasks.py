"""Twelve tasks of daily work in a real browser, each with the number of clicks that it may take.

Every task begins at the address that the server prints and follows what the page shows. Filling in a field counts as
one click, choosing from a list as two.
"""

import datetime as dt
import json
import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread
from playwright.async_api import Locator, Page, expect

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import ModelCall, ModelResult, NodeExit, Outline, OutlineNode
from callboard.bus.subjects import RunRef
from tests.support.event_logs import Log
from tests.support.page_server import TENANT, KillableServer, PageServer, open_page_server
from tests.support.patience import until
from tests.support.workdir import Workdir
from tests.support.workflows import document as workflow
from tests.support.workflows import scripted_skill

PHONE = {"width": 390, "height": 844}
ITEMS = 1_000
FAILED_ITEM = 417


@dataclass
class Person:
    """A person who uses a page; counts the clicks."""

    page: Page
    clicks: int = 0

    async def click(self, what: Locator) -> None:
        await what.click()
        self.clicks += 1

    async def fill(self, field: Locator, text: str) -> None:
        await field.fill(text)
        self.clicks += 1

    async def choose(self, field: Locator, label: str) -> None:
        await field.select_option(label)
        self.clicks += 2

    def link(self, name: str) -> Locator:
        return self.page.get_by_role("link", name=name, exact=True)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)


async def open_printed_address(server: PageServer, **size: Any) -> Person:
    """Open the address that the server prints."""
    return Person(await server.browser.page(str(server.client.base_url.join("/")), **size))


async def test_an_example_is_started_and_its_result_is_seen(server: PageServer, tmp_path: Path) -> None:
    async with open_page_server(server.browser, tmp_path) as empty:
        person = await open_printed_address(empty)
        await person.click(person.page.get_by_text("Workflow: minimal"))
        await expect(person.page.locator(".run-title .status")).to_contain_text("completed")
        assert person.clicks == 1
        await expect(person.page.locator(".outcome").get_by_role("heading", name="Output")).to_be_visible()
        await expect(person.page.locator(".outcome-main")).to_contain_text("The board backstage")
        assert person.clicks == 1
        await server.browser.close_pages()


READING = json.dumps(workflow({"read": {"skills": ["files"]}}, id="reading"))
TURNS = [{"text": f"I open page {page}.", "tool_calls": [{"tool": "open", "input": {"page": page}}]} for page in (1, 2)]
READS: dict[str, Any] = {
    "definition": {"source": READING},
    "options": {"skills": [scripted_skill("files", "open")]},
    "model": "scripted",
    "script": {
        "turns": {"read": [*TURNS, {"text": "The plan is sound."}]},
        "tools": {"open": [{"output": "page one: the plan"}, {"output": "page two: the budget"}]},
    },
}


async def test_the_request_of_the_models_third_turn_is_found(server: PageServer) -> None:
    await server.start("reading-1", READS)
    person = await open_printed_address(server)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("reading-1"))
    await person.click(person.page.get_by_role("row").filter(has_text="turn.3").first)
    seen = person.page.locator(".inspector-body")
    await expect(seen).to_contain_text("page two: the budget")
    await expect(seen).to_contain_text("exactly what the model was sent")
    assert person.clicks == 2


def build_fan_out(run: str) -> Log:
    """A run of many items, one of which failed."""
    log = Log(run, "scores").started(Outline([OutlineNode("score")]))
    log.enter("score")
    for item in range(ITEMS):
        path = f"score[{item}]"
        log.enter(path)
        if item == FAILED_ITEM:
            log.add(NodeExit("failed", None, Failure("score.negative", f"item {item} has the score -3")), path, 1, 1)
        else:
            log.exit(path, result=item)
    log.exit("score", result={"scored": ITEMS - 1})
    return log.ended(output={"scored": ITEMS - 1})


async def test_the_failed_item_among_1000_is_found(server: PageServer) -> None:
    log = build_fan_out("scores-1")
    await server.append_log(log)
    person = await open_printed_address(server)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("scores-1"))
    await expect(person.page.locator(".outcome")).to_contain_text("1 step failed")
    await person.click(person.button("Show where"))
    await expect(person.page.locator(".inspector-head")).to_contain_text(f"score[{FAILED_ITEM}]")
    await expect(person.page.locator(".inspector-body")).to_contain_text(f"item {FAILED_ITEM} has the score -3")
    assert person.clicks == 2


RELEASE = '# Release\n\nAsks.\n\n## STEP 1: Ask\n\n@elicit(select, "Release it?", "yes", "no")\n@output(go)\n'


async def test_a_question_is_answered_with_a_comment_on_a_phone(server: PageServer) -> None:
    await server.start("release-1", {"definition": {"source": RELEASE}}, end=False)
    person = await open_printed_address(server, **PHONE)
    await person.click(person.page.locator(".card-row").filter(has_text="Release it?"))
    await person.fill(person.page.get_by_label("Comment"), "The tests have passed.")
    await person.click(person.button("yes"))
    await expect(person.page.get_by_text("answered release-1")).to_be_visible()
    assert person.clicks == 3
    result = await server.result("release-1")
    assert result["status"] == "completed"
    server.open.discard("release-1")


REFUND: dict[str, Any] = {
    "name": "refund",
    "description": "Pay money back.",
    "input_schema": {
        "type": "object",
        "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
        "required": ["order", "cents"],
    },
    "approve": True,
}
SHOP: dict[str, Any] = {
    "definition": {"source": json.dumps(workflow({"clerk": {"skills": ["shop"]}}, id="shop"))},
    "options": {"skills": [scripted_skill("shop", tools=[REFUND])]},
    "model": "scripted",
    "script": {
        "turns": {
            "clerk": [
                {"tool_calls": [{"tool": "refund", "input": {"order": "a1", "cents": 50_000}}]},
                {"text": "Done."},
            ]
        },
        "tools": {"refund": [{"output": "paid"}]},
    },
}


async def test_the_arguments_of_a_call_are_edited_and_it_is_approved(server: PageServer) -> None:
    await server.start("shop-1", SHOP, end=False)
    person = await open_printed_address(server)
    await person.click(person.page.locator(".card-row").filter(has_text="refund"))
    await person.fill(person.page.get_by_label("cents"), "500")
    await person.click(person.button("Approve"))
    await expect(person.page.get_by_text("answered shop-1")).to_be_visible()
    assert person.clicks == 3
    await server.result("shop-1")
    events = await server.events("shop-1", "tool.call")
    assert [one["event"]["payload"]["input"] for one in events] == [{"order": "a1", "cents": 500}]
    server.open.discard("shop-1")


PITCH = json.dumps(workflow({"draft": {}, "polish": {"instruction": "Be brief."}}, [("draft", "polish")], id="pitch"))
PITCHES: dict[str, Any] = {
    "definition": {"source": PITCH},
    "model": "scripted",
    "script": {"turns": {"draft": [{"text": "A long text."}], "polish": [{"text": "A text."}]}},
}


async def test_a_run_is_forked_with_another_prompt_and_compared(server: PageServer) -> None:
    await server.start("pitch-1", PITCHES)
    person = await open_printed_address(server)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("pitch-1"))
    await person.click(person.page.get_by_role("button", name="polish: ok"))
    await person.click(person.button("Fork from here…"))
    await person.click(person.page.get_by_text("Change prompts"))
    await person.fill(person.page.get_by_role("textbox", name="Definition"), PITCH.replace("Be brief.", "Be kind."))
    await person.click(person.button("Fork"))
    await expect(person.page.get_by_text("of pitch-1")).to_be_visible()
    await expect(person.page.locator(".run-title .status")).to_contain_text("completed")
    await person.click(person.link("compare"))
    compared = person.page.locator(".told").filter(has_text="what the models saw")
    await expect(compared).to_contain_text("Be brief.")
    await expect(compared).to_contain_text("Be kind.")
    assert person.clicks == 7


def build_start_with_cost(node: str, dollars: float, *, fails: bool = False) -> dict[str, Any]:
    """A start whose only turn has a cost, and fails or not."""
    used = {"input_tokens": round(dollars * 500_000), "output_tokens": 0}
    result = {"error": "refused"} if fails else {"text": "ok"}
    return {
        "definition": {"source": json.dumps(workflow({node: {}}, id="billing"))},
        "model": "scripted",
        "script": {"turns": {node: [{**result, "usage": used}]}},
    }


async def test_last_weeks_failed_runs_of_a_customer_above_a_cost_are_retried(server: PageServer) -> None:
    for run, dollars, customer, fails in [
        ("bill-dear", 0.25, "acme", True),
        ("bill-paid", 0.5, "acme", False),
        ("bill-cheap", 0.05, "acme", True),
        ("bill-other", 0.75, "globex", True),
    ]:
        await server.start(run, {**build_start_with_cost("a", dollars, fails=fails), "tags": {"customer": customer}})
    old = Log("bill-old", "billing")
    old.time = dt.datetime.now(dt.UTC) - dt.timedelta(days=12)
    old.accepted(tags={"customer": "acme"})
    old.add(ModelCall("turn", "scripted", "00"), slot="turn.1")
    old.add(ModelResult(text="so", usage=Usage(500_000, 0)), slot="turn.1")
    await server.append(old.run, old.failed().events)

    person = await open_printed_address(server)
    await person.click(person.link("Runs"))
    await person.fill(person.page.get_by_label("Tag"), "customer=acme")
    await person.fill(person.page.get_by_label("Cost above"), "0.10")
    await person.choose(person.page.get_by_label("Since"), "last 7 days")
    rows = person.page.locator(".list-row .k-run")
    await expect(rows).to_have_text(["bill-paid", "bill-dear"])
    await person.click(person.page.get_by_label("Select all listed runs"))
    await person.click(person.button("Retry…"))
    dialog = person.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Retry 1 run?")
    await expect(dialog).to_contain_text("1 selected run has not failed, and is left as it is.")
    await person.click(dialog.get_by_role("button", name="Retry them"))
    await expect(dialog).to_have_count(0)
    assert person.clicks == 8
    found = (await server.client.get("/runs", params={"where": "definition=billing and origin~bill"})).json()["runs"]
    assert [one["origin"] for one in found] == ["bill-dear"]


async def test_why_a_schedule_did_not_run_is_seen(server: PageServer) -> None:
    def of(**inputs: Any) -> str:
        return json.dumps(workflow({"a": {}}, id="nightly", inputs=inputs))

    await server.register("nightly", of())
    start = {"definition": {"name": "nightly"}, "model": "scripted", "script": {"default": {"text": "ok"}}}
    added = {"name": "nights", "when": {"every_s": 1}, "start": start}
    assert (await server.client.post("/schedules", json=added)).status_code == 200
    wanting = of(service={"type": "string", "required": True})
    await server.register("nightly", wanting)

    async def refused() -> bool:
        [row] = (await server.client.get("/schedules")).json()
        return bool(row.get("last_problems"))

    await until(refused)
    await server.client.post("/schedules/nights/pause", json={})
    person = await open_printed_address(server)
    await person.click(person.link("Operations"))
    await person.click(person.link("Schedules"))
    row = person.page.get_by_role("row").filter(has_text="nights")
    await expect(row).to_contain_text("The start was refused: input.service is required")
    assert person.clicks == 2


async def test_a_definition_is_rolled_back(server: PageServer) -> None:
    for instruction in ("Be kind.", "Be rude."):
        source = json.dumps(workflow({"a": {"instruction": instruction}}, id="letter"))
        await server.register("letter", source)
    person = await open_printed_address(server)
    await person.click(person.link("Definitions"))
    await person.click(person.link("letter"))
    await person.click(person.button("go back to this…"))
    await person.click(person.button("Go back"))
    await expect(person.page.locator(".versions")).to_contain_text("restores v1")
    await expect(person.page.locator(".source")).to_contain_text("Be kind.")
    assert person.clicks == 4


async def test_tokens_arrive_in_two_tabs_across_a_restart(server: PageServer) -> None:
    log = Log("speaks", "talk").started(Outline([OutlineNode("a")]))
    log.enter("a")
    call = log.add(ModelCall("turn", "scripted", "00"), "a", 1, 1, "turn.1")
    await server.append_log(log)
    live = server.connection.log.subjects.live(RunRef(TENANT, log.run), log.definition, "model.delta")
    pieces = 0

    async def speak(text: str) -> None:
        nonlocal pieces
        result = {"n": call.n, "epoch": 1, "k": pieces, "path": "a", "text": text}
        await server.connection.log.nc.publish(live, msgspec.json.encode(result))
        pieces += 1

    with ExitStack() as stack:
        process = KillableServer(server, stack)
        await to_thread.run_sync(process.begin)
        people = [Person(await server.browser.page(process.root))]
        people.append(Person(await server.browser.tab(people[0].page.context, process.root)))
        for person in people:
            await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("speaks"))
            await person.click(person.page.get_by_role("tab", name="Output"))
            await expect(person.page.locator(".live .live")).to_be_visible()
        await speak("To be, ")
        for person in people:
            await expect(person.page.locator(".speaking")).to_have_text("To be, ")
        await to_thread.run_sync(process.kill)
        for person in people:
            await expect(person.page.locator(".top .live[role=status]")).to_contain_text("connecting")
        await to_thread.run_sync(process.begin)
        for person in people:
            await expect(person.page.locator(".live .live")).to_be_visible()
        await speak("or not to be")
        for person in people:
            await expect(person.page.locator(".speaking")).to_have_text("To be, or not to be")
            assert person.clicks == 2
        # No worker performs the run, so nothing can send the earlier tokens.
        late = await server.browser.page(f"{process.url}runs/speaks?tab=output")
        await expect(late.locator(".lacks")).to_be_visible()
        await server.browser.close_pages()


async def test_an_exported_run_is_opened_without_its_server(server: PageServer, tmp_path: Path) -> None:
    await server.start("travels", READS)
    person = await open_printed_address(server)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("travels"))
    await person.click(person.page.get_by_text("Export", exact=True))
    async with person.page.expect_download() as download:
        await person.click(person.link("events, line by line"))
    file = tmp_path / (await download.value).suggested_filename
    await (await download.value).save_as(file)
    # The export menu names the command that opens the file.
    command = await person.page.locator(".menu .aside code").inner_text()
    assert command == f"callboard page {file.name}"
    with Workdir(tmp_path).process(*command.split()[1:]) as process:
        assert process.stdout is not None
        [url] = re.findall(r"http://\S+", await to_thread.run_sync(process.stdout.readline))
        offline = Person(await server.browser.page(url))
        await expect(offline.page.locator(".run-title .status")).to_contain_text("completed")
        await expect(offline.page.locator(".outcome-main")).to_contain_text("The plan is sound.")
        await server.browser.close_pages()
        process.terminate()
    assert (person.clicks, offline.clicks) == (3, 0)
