"""Twelve tasks of daily work in a real browser, each with the number of clicks that it may take.

Every task begins at the address that the server prints, and goes on by what is seen there. A click is a click, or a
field that is filled in; choosing from a list is two.
"""

import datetime as dt
import json
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import to_thread
from playwright.async_api import Locator, Page, expect

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import ModelCall, ModelResult, NodeExit, Outline, OutlineNode
from callboard.bus.subjects import RunRef
from tests.support.cli_stage import Place
from tests.support.event_logs import Log
from tests.support.http_application import PATIENCE_S
from tests.support.page_stage import TENANT, Furnish, Killed, Stage, furnished, put
from tests.support.patience import until
from tests.support.workflows import document as workflow
from tests.support.workflows import scripted_skill

PRICES = {"scripted": {"input": 2, "output": 10}}
PHONE = {"width": 390, "height": 844}
ITEMS = 1_000
FAILED_ITEM = 417


@pytest.fixture(scope="module")
def furnish() -> Furnish:
    return partial(furnished, prices=PRICES)


@dataclass
class Person:
    """Somebody who sees a page and has never seen another address of it; their clicks are counted."""

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


async def arrives(stage: Stage, **size: Any) -> Person:
    """Open what the server prints, as one who has just been told of it."""
    return Person(await stage.browser.page(str(stage.client.base_url.join("/")), **size))


async def test_an_example_is_started_and_its_result_is_seen(stage: Stage, furnish: Furnish, tmp_path: Path) -> None:
    async with furnish(stage.browser, tmp_path) as empty:
        person = await arrives(empty)
        await person.click(person.page.get_by_text("Workflow: minimal"))
        await expect(person.page.locator(".run-title .status")).to_contain_text("completed")
        assert person.clicks == 1
        await expect(person.page.locator(".outcome").get_by_role("heading", name="Output")).to_be_visible()
        await expect(person.page.locator(".outcome-main")).to_contain_text("The board backstage")
        assert person.clicks == 1
        await stage.browser.close_pages()


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


async def test_what_the_model_saw_in_turn_3_is_read(stage: Stage) -> None:
    await stage.start("reading-1", READS)
    person = await arrives(stage)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("reading-1"))
    await person.click(person.page.get_by_role("row").filter(has_text="turn.3").first)
    seen = person.page.locator(".inspector-body")
    await expect(seen).to_contain_text("page two: the budget")
    await expect(seen).to_contain_text("exactly what the model was sent")
    assert person.clicks == 2


def fanned_out(run: str) -> Log:
    """A run that did the same for many items, one of which failed."""
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


async def test_the_failed_one_among_1000_items_is_found(stage: Stage) -> None:
    log = fanned_out("scores-1")
    await put(stage.connection.log, log.run, log.events)
    person = await arrives(stage)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("scores-1"))
    await expect(person.page.locator(".outcome")).to_contain_text("1 step failed")
    await person.click(person.button("Show where"))
    await expect(person.page.locator(".inspector-head")).to_contain_text(f"score[{FAILED_ITEM}]")
    await expect(person.page.locator(".inspector-body")).to_contain_text(f"item {FAILED_ITEM} has the score -3")
    assert person.clicks == 2


RELEASE = '# Release\n\nAsks.\n\n## STEP 1: Ask\n\n@elicit(select, "Release it?", "yes", "no")\n@output(go)\n'


async def test_a_question_is_answered_with_a_comment_on_a_phone(stage: Stage) -> None:
    await stage.start("release-1", {"definition": {"source": RELEASE}}, end=False)
    person = await arrives(stage, **PHONE)
    await person.click(person.page.locator(".card-row").filter(has_text="Release it?"))
    await person.fill(person.page.get_by_label("Comment"), "The tests have passed.")
    await person.click(person.button("yes"))
    await expect(person.page.get_by_text("answered release-1")).to_be_visible()
    assert person.clicks == 3
    result = (await stage.client.get("/runs/release-1/result", params={"wait_s": PATIENCE_S})).json()
    assert result["status"] == "completed"
    stage.open.discard("release-1")


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


async def test_the_arguments_of_a_call_are_edited_and_it_is_approved(stage: Stage) -> None:
    await stage.start("shop-1", SHOP, end=False)
    person = await arrives(stage)
    await person.click(person.page.locator(".card-row").filter(has_text="refund"))
    await person.fill(person.page.get_by_label("cents"), "500")
    await person.click(person.button("Approve"))
    await expect(person.page.get_by_text("answered shop-1")).to_be_visible()
    assert person.clicks == 3
    await stage.client.get("/runs/shop-1/result", params={"wait_s": PATIENCE_S})
    events = (await stage.client.get("/runs/shop-1/events", params={"types": "tool.call"})).json()["events"]
    assert [one["event"]["payload"]["input"] for one in events] == [{"order": "a1", "cents": 500}]
    stage.open.discard("shop-1")


PITCH = json.dumps(workflow({"draft": {}, "polish": {"instruction": "Be brief."}}, [("draft", "polish")], id="pitch"))
PITCHES: dict[str, Any] = {
    "definition": {"source": PITCH},
    "model": "scripted",
    "script": {"turns": {"draft": [{"text": "A long text."}], "polish": [{"text": "A text."}]}},
}


async def test_a_run_is_forked_with_another_prompt_and_compared(stage: Stage) -> None:
    await stage.start("pitch-1", PITCHES)
    person = await arrives(stage)
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


def spends(node: str, dollars: float, *, fails: bool = False) -> dict[str, Any]:
    """A start whose one turn costs so much, and then fails or not."""
    used = {"input_tokens": round(dollars * 500_000), "output_tokens": 0}
    said = {"error": "refused"} if fails else {"text": "ok"}
    return {
        "definition": {"source": json.dumps(workflow({node: {}}, id="billing"))},
        "model": "scripted",
        "script": {"turns": {node: [{**said, "usage": used}]}},
    }


async def test_last_weeks_failed_runs_of_a_customer_above_a_cost_are_retried(stage: Stage) -> None:
    for run, dollars, customer, fails in [
        ("bill-dear", 0.25, "acme", True),
        ("bill-paid", 0.5, "acme", False),
        ("bill-cheap", 0.05, "acme", True),
        ("bill-other", 0.75, "globex", True),
    ]:
        await stage.start(run, {**spends("a", dollars, fails=fails), "tags": {"customer": customer}})
    old = Log("bill-old", "billing")
    old.time = dt.datetime.now(dt.UTC) - dt.timedelta(days=12)
    old.accepted(tags={"customer": "acme"})
    old.add(ModelCall("turn", "scripted", "00"), slot="turn.1")
    old.add(ModelResult(text="so", usage=Usage(500_000, 0)), slot="turn.1")
    await put(stage.connection.log, old.run, old.failed().events)

    person = await arrives(stage)
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
    found = (await stage.client.get("/runs", params={"where": "definition=billing and origin~bill"})).json()["runs"]
    assert [one["origin"] for one in found] == ["bill-dear"]


async def test_why_a_schedule_did_not_run_is_seen(stage: Stage) -> None:
    def of(**inputs: Any) -> str:
        return json.dumps(workflow({"a": {}}, id="nightly", inputs=inputs))

    await stage.client.post("/definitions", json={"name": "nightly", "source": of()})
    start = {"definition": {"name": "nightly"}, "model": "scripted", "script": {"default": {"text": "ok"}}}
    added = {"name": "nights", "when": {"every_s": 1}, "start": start}
    assert (await stage.client.post("/schedules", json=added)).status_code == 200
    wanting = of(service={"type": "string", "required": True})
    await stage.client.post("/definitions", json={"name": "nightly", "source": wanting})

    async def refused() -> bool:
        [row] = (await stage.client.get("/schedules")).json()
        return bool(row.get("last_problems"))

    await until(refused)
    await stage.client.post("/schedules/nights/pause", json={})
    person = await arrives(stage)
    await person.click(person.link("Operations"))
    await person.click(person.link("Schedules"))
    row = person.page.get_by_role("row").filter(has_text="nights")
    await expect(row).to_contain_text("The start was refused: input.service is required")
    assert person.clicks == 2


async def test_a_definition_is_rolled_back(stage: Stage) -> None:
    for instruction in ("Be kind.", "Be rude."):
        source = json.dumps(workflow({"a": {"instruction": instruction}}, id="letter"))
        await stage.client.post("/definitions", json={"name": "letter", "source": source})
    person = await arrives(stage)
    await person.click(person.link("Definitions"))
    await person.click(person.link("letter"))
    await person.click(person.button("go back to this…"))
    await person.click(person.button("Go back"))
    await expect(person.page.locator(".versions")).to_contain_text("restores v1")
    await expect(person.page.locator(".source")).to_contain_text("Be kind.")
    assert person.clicks == 4


async def test_tokens_arrive_in_two_tabs_across_a_restart(stage: Stage) -> None:
    log = Log("speaks", "talk").started(Outline([OutlineNode("a")]))
    log.enter("a")
    call = log.add(ModelCall("turn", "scripted", "00"), "a", 1, 1, "turn.1")
    await put(stage.connection.log, log.run, log.events)
    live = stage.connection.log.subjects.live(RunRef(TENANT, log.run), log.definition, "model.delta")
    pieces = 0

    async def speak(text: str) -> None:
        nonlocal pieces
        said = {"n": call.n, "epoch": 1, "k": pieces, "path": "a", "text": text}
        await stage.connection.log.nc.publish(live, msgspec.json.encode(said))
        pieces += 1

    with ExitStack() as stack:
        server = Killed(stage, stack)
        await to_thread.run_sync(server.begin)
        people = [Person(await stage.browser.page(server.root))]
        people.append(Person(await stage.browser.tab(people[0].page.context, server.root)))
        for person in people:
            await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("speaks"))
            await person.click(person.page.get_by_role("tab", name="Output"))
            await expect(person.page.locator(".live .live")).to_be_visible()
        await speak("To be, ")
        for person in people:
            await expect(person.page.locator(".speaking")).to_have_text("To be, ")
        await to_thread.run_sync(server.kill)
        for person in people:
            await expect(person.page.locator(".top .live[role=status]")).to_contain_text("connecting")
        await to_thread.run_sync(server.begin)
        for person in people:
            await expect(person.page.locator(".live .live")).to_be_visible()
        await speak("or not to be")
        for person in people:
            await expect(person.page.locator(".speaking")).to_have_text("To be, or not to be")
            assert person.clicks == 2
        # The run has no worker that could tell those who come late.
        late = await stage.browser.page(f"{server.url}runs/speaks?tab=output")
        await expect(late.locator(".lacks")).to_be_visible()
        await stage.browser.close_pages()


async def test_an_exported_run_is_opened_without_its_server(stage: Stage, tmp_path: Path) -> None:
    await stage.start("travels", READS)
    person = await arrives(stage)
    await person.click(person.page.locator(".card", has_text="Latest runs").get_by_text("travels"))
    await person.click(person.page.get_by_text("Export", exact=True))
    async with person.page.expect_download() as download:
        await person.click(person.link("events, line by line"))
    file = tmp_path / (await download.value).suggested_filename
    await (await download.value).save_as(file)
    # The command that opens it stands where it was downloaded.
    command = await person.page.locator(".menu .aside code").inner_text()
    assert command == f"callboard page {file.name}"
    with Place(tmp_path).process(*command.split()[1:]) as process:
        assert process.stdout is not None
        [url] = re.findall(r"http://\S+", await to_thread.run_sync(process.stdout.readline))
        offline = Person(await stage.browser.page(url))
        await expect(offline.page.locator(".run-title .status")).to_contain_text("completed")
        await expect(offline.page.locator(".outcome-main")).to_contain_text("The plan is sound.")
        await stage.browser.close_pages()
        process.terminate()
    assert (person.clicks, offline.clicks) == (3, 0)
