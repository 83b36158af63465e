"""The inbox and the forms of answers and starts, in a real browser."""

import json
import re
from typing import Any

import httpx2
from playwright.async_api import Route, expect

from callboard.bus.events import HumanAsked
from tests.support.browser import go, run_node
from tests.support.event_logs import Log
from tests.support.page_server import ASKING, LOOP, WITH_INPUTS, PageServer, evaluate, hold_back
from tests.support.places import ROOT
from tests.support.workflows import document as workflow

WRITTEN = ASKING.replace('@elicit(select, "Which carrier takes it?", "North", "South", "East", "West", "Post")', "{}")


async def ask(server: PageServer, run: str, question: str) -> None:
    await server.start(run, {"definition": {"source": WRITTEN.replace("{}", question)}}, end=False)


async def count_answers(server: PageServer, run: str) -> int:
    return len(await server.events(run, "human.answered"))


async def test_a_selected_question_is_not_replaced_by_another(server: PageServer) -> None:
    page = await server.open_page("inbox?run=nobody&key=none")
    await ask(server, "first", '@elicit(input, "What is the first?")')
    await expect(page.get_by_text("This question is not open")).to_be_visible()
    await expect(page.get_by_role("row")).to_have_count(1)
    await ask(server, "second", '@elicit(confirm, "Is the second good?")')
    await expect(page.get_by_role("row")).to_have_count(2)
    await expect(page.get_by_text("This question is not open")).to_be_visible()

    await page.get_by_role("button", name="Next question").click()
    field = page.locator(".question form textarea, .question form input").first
    await field.fill("half a sentence")
    await server.kill("first")
    await expect(page.get_by_text("Closed:")).to_be_visible()
    await expect(page.get_by_role("heading", name="What is the first?")).to_be_visible()
    await expect(field).to_have_value("half a sentence")
    await expect(field).to_be_disabled()
    await expect(page.locator(".question .actions button").first).to_be_disabled()
    await server.kill("second")


async def test_a_late_answer_keeps_the_draft_of_another_question(server: PageServer) -> None:
    for run in ("slow", "other", "last"):
        await ask(
            server, run, f'@elicit(confirm, "Is {run} good?")' if run != "other" else '@elicit(input, "And what?")'
        )
    page = await server.open_page("inbox")
    held = await hold_back(page, "**/runs/slow/answer*")
    await page.get_by_role("row").filter(has_text="Is slow good?").click()
    button = page.locator(".question .actions button").first
    await button.dblclick()
    await held.begun.wait()
    await expect(button).to_have_attribute("aria-disabled", "true")
    await page.get_by_role("row").filter(has_text="And what?").click()
    field = page.locator(".question form textarea, .question form input").first
    await field.fill("half a sentence")
    held.release.set()
    await expect(page.get_by_role("row")).to_have_count(2)
    await expect(field).to_have_value("half a sentence")
    await expect(field).to_be_enabled()

    # A second click, and a key that is held down, answer nothing else.
    await page.get_by_role("row").filter(has_text="Is last good?").click()
    # Each choice has a button; no key answers.
    await page.keyboard.press("Enter")
    await page.keyboard.press("Control+Enter")
    assert await count_answers(server, "last") == 0
    await page.locator(".question .actions button").first.click()
    await expect(page.get_by_text("answered last")).to_be_visible()
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".question form")).to_have_count(0)
    assert [await count_answers(server, run) for run in ("slow", "other", "last")] == [1, 0, 1]
    await server.kill("other")


async def test_a_list_that_is_scrolled_stays_where_it_is(server: PageServer) -> None:
    for number in range(16):
        await ask(server, f"many-{number:02}", '@elicit(input, "Well?")')
    page = await server.open_page("inbox", height=500)
    await expect(page.locator(".count, .bar .soft").first).to_contain_text("16 open")
    place = page.locator(".list")
    await evaluate(page, "() => { document.querySelector('.list').scrollTop = 400 }")
    await server.kill("many-15")
    await expect(page.locator(".bar .soft").first).to_contain_text("15 open")
    assert await place.evaluate("(list) => list.scrollTop") == 400
    for number in range(15):
        await server.client.post(f"/runs/many-{number:02}/kill", json={})


async def test_drafts_of_answers_are_kept_between_questions_and_views(server: PageServer) -> None:
    for run in ("draft-1", "draft-2"):
        await ask(server, run, f'@elicit(input, "What of {run}?")')
    page = await server.open_page("inbox")
    rows, field = page.get_by_role("row"), page.locator(".question form textarea, .question form input").first
    for run in ("draft-1", "draft-2"):
        await rows.filter(has_text=f"What of {run}?").click()
        await expect(page.get_by_role("heading", name=f"What of {run}?")).to_be_visible()
        await field.fill(f"half of {run}")
    await rows.filter(has_text="What of draft-1?").click()
    await expect(field).to_have_value("half of draft-1")
    await page.get_by_role("link", name="Operations").click()
    await page.get_by_role("link", name="Inbox").click()
    await rows.filter(has_text="What of draft-2?").click()
    await expect(field).to_have_value("half of draft-2")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_text("answered draft-2")).to_be_visible()
    await page.get_by_role("button", name="Next question").click()
    await expect(field).to_have_value("half of draft-1")
    await server.kill("draft-1")


async def test_a_start_form_keeps_its_inputs_when_the_definition_name_changes(server: PageServer) -> None:
    more = workflow({"a": {}}, inputs={"service": {"type": "string", "required": True}, "who": {"type": "string"}})
    for name, source in (("wants", WITH_INPUTS), ("wants-more", json.dumps(more))):
        await server.register(name, source)
    page = await server.open_page("start/wants")
    service = page.get_by_label("service")
    await service.fill("the")
    name = page.get_by_placeholder("name of a registered definition")
    await name.fill("wants-mo")
    await expect(page.get_by_text("No definition is registered as wants-mo.")).to_be_visible()
    held = await hold_back(page, "**/about")
    async with page.expect_request("**/about"):
        await name.fill("wants-more")
    await service.press("End")
    await page.keyboard.type(" bus")
    held.release.set()
    await expect(page.get_by_label("who")).to_be_visible()
    await expect(service).to_have_value("the bus")
    await expect(service).to_be_focused()
    await page.get_by_role("link", name="Start a run").click()
    await expect(page.get_by_label("who")).to_have_count(0)
    await name.fill("wants")
    await service.fill("again")
    await page.get_by_role("link", name="Start a run").click()
    await expect(service).to_have_value("again")


READABLE = {"12": 12, " 0.5 ": 0.5, "1,5": 1.5, "-3": -3, "+4": 4, ".5": 0.5, "2.": 2, "1e3": 1000, "0.125": 0.125}
ODD = [
    "",
    "many",
    "1.000",
    "1,000",
    "3.142",
    "1.000.000",
    "1,2,3",
    "1 000",
    "0x10",
    "Infinity",
    "NaN",
    "1e999",
    "1e-999",
]
NUMBERS = {**READABLE, "3,1420": 3.142, "12345,678": 12345.678, **dict.fromkeys([*ODD, "12345678901234567890"])}
"""Texts of people and their numbers; none if the text is ambiguous or not a number."""

READ = """
const {numberOf, valueOf} = await import(process.argv[1])
const tried = (text) => { try { return [valueOf(text)] } catch { return null } }
const numbers = JSON.parse(process.argv[2]).map((one) => numberOf(one).value ?? null)
const values = ['[1.5, {"a": 3}]', '[1e999]', '12345678901234567890', '{"a": '].map(tried)
console.log(JSON.stringify([numbers, values]))
"""


def test_an_ambiguous_number_is_refused() -> None:
    numbers = ROOT / "surfaces" / "page" / "static" / "lib" / "numbers.js"
    assert run_node(READ, str(numbers), json.dumps(list(NUMBERS))) == [
        list(NUMBERS.values()),
        [[[1.5, {"a": 3}]], None, None, None],
    ]


FORMED = """async ([schema, before]) => {
    const {Form} = await import('/static/lib/form.js')
    const form = new Form(schema, 'Answer')
    document.querySelector('main').replaceChildren(form.element)
    if (before !== null) form.write(before)
    const put = (name, text) => { form.shown.places.get(name).input.value = text }
    const turned = () => form.element.querySelector('.either > button').click()
    const told = () => form.element.innerText.match(/✕ .*/g) ?? []
    const shows = () => form.shown === form.fields ? 'fields' : 'JSON'
    DONE
}"""
"""Makes a form, fills in a value, and runs the script of a test instead of DONE."""

NESTED: dict[str, Any] = {
    "type": "object",
    "required": ["amount", "address"],
    "properties": {
        "amount": {"type": "number", "maximum": 900},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "gift": {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]},
        "how": {"enum": ["fast", "slow"]},
        "lines": {"type": "array"},
    },
}


async def test_a_form_reports_faults_and_sends_the_given_values(server: PageServer) -> None:
    page = await server.open_page("workers")

    async def run(script: str, before: Any = None, schema: Any = NESTED) -> Any:
        return await evaluate(page, FORMED.replace("DONE", script), [schema, before])

    whole = {"amount": 3.142, "address": {"city": "Ulm"}, "how": "fast", "lines": [1], "more": {"than": "fields"}}
    # It keeps members without a field; an optional member is sent only if it is chosen.
    assert await run("return [shows(), form.read()]", whole) == ["fields", {"value": whole, "wrong": []}]
    assert await run("turned(); turned(); return [shows(), form.read().value]", whole) == ["fields", whole]
    gift = "form.shown.places.get('gift').input.click()"
    assert await run(f"{gift}; put('gift.note', 'hello'); return form.read().value.gift", whole) == {"note": "hello"}
    assert await run(f"{gift}; form.read(); return told()", whole) == ["✕ required"]
    left_out = "form.element.querySelectorAll('input[type=radio]')[2].click(); return 'how' in form.read().value"
    assert await run(left_out, whole) is False

    # A faulty text stays in its field and is reported.
    assert await run("put('amount', '1.000'); turned(); return [shows(), told()]", whole) == [
        "fields",
        ["✕ 1.000 is ambiguous: write 1000 or 1.0000"],
    ]
    assert await run("put('lines', '[1,'); turned(); return form.shown.places.get('lines').input.value", whole) == "[1,"
    assert await run("turned(); put('', '{\"amount\": '); turned(); return [shows(), told().length]", whole) == [
        "JSON",
        1,
    ]
    for value in ([1], {**whole, "how": "never"}, {**whole, "address": "Ulm"}):
        assert await run("return [shows(), form.read().value]", value) == ["JSON", value]
        assert await run("turned(); return [shows(), told().length]", value) == ["JSON", 1]
    assert await run("put('', '[1e999]'); form.read(); return told()", None, {"type": "array"}) == [
        "✕ not valid JSON: 1e999 is too large for a number"
    ]
    assert await run("put('', '{}'); form.read(); return told()", None, {"type": "array"}) == ["✕ a list is needed"]
    assert await run("put('amount', '900,5'); form.read(); return told()", whole) == ["✕ at most 900"]


async def test_a_start_that_is_sent_twice_begins_one_run(server: PageServer) -> None:
    page = await server.open_page("start")
    keys: list[str | None] = []

    async def lose(route: Route) -> None:
        """Forward the request, and lose the first answer."""
        keys.append(await route.request.header_value("idempotency-key"))
        answer = await route.fetch()
        await (route.abort() if len(keys) == 1 else route.fulfill(response=answer))

    await page.get_by_text("Use a text instead").click()
    await page.locator("details textarea").first.fill(LOOP["definition"]["source"])
    await page.get_by_text("Model or script", exact=True).click()
    await page.get_by_label("Model").fill("scripted")
    await page.route("**/api/acme/runs", lose)
    # The title of the definition has come, so the button stays in its place.
    await expect(page.locator(".start p").filter(has_text=re.compile("^W$"))).to_be_visible()
    start = page.get_by_role("button", name="Start")
    await start.dblclick()
    await expect(page.locator(".failure")).to_be_visible()
    assert len(keys) == 1
    await start.click()
    await expect(page.locator(".run-title")).to_be_visible()
    assert keys[0]
    assert keys == [keys[0]] * 2
    assert httpx2.URL(page.url).path.endswith(f"/runs/{keys[0]}")
    await server.kill(str(keys[0]))


async def test_an_answer_with_comment_and_name_is_listed(server: PageServer) -> None:
    await ask(server, "commented", '@elicit(select, "Release it?", "yes", "no")')
    page = await server.open_page("inbox?run=commented", width=390, height=844)
    await go(page, server.url("inbox"))
    # On a phone the list and the question are shown one at a time.
    await expect(page.locator(".question")).to_be_hidden()
    await page.get_by_role("row").filter(has_text="Release it?").click()
    await expect(page.get_by_role("heading", name="Release it?")).to_be_visible()
    await expect(page.locator(".inbox .sheet")).to_be_hidden()
    await page.get_by_role("link", name="‹ All questions").click()
    await page.get_by_role("row").filter(has_text="Release it?").click()
    await expect(page.locator(".question")).to_contain_text("Open until")
    await page.get_by_label("Comment").fill("The tests have passed.")
    await page.get_by_label("Your name").fill("Ada")
    await page.get_by_role("button", name="yes").click()
    await expect(page.get_by_text("answered commented")).to_be_visible()
    await page.get_by_role("link", name="Answered", exact=True).click()
    row = page.get_by_role("row").filter(has_text="commented")
    for result in ("Release it?", "yes", "The tests have passed.", "Ada"):
        await expect(row).to_contain_text(result)
    recorded = await server.events("commented", "human.answered")
    assert recorded[0]["event"]["payload"]["response_data"] == {"comment": "The tests have passed."}
    # The name is kept, and nothing is wider than the phone.
    await ask(server, "named", '@elicit(input, "Why?")')
    await go(page, server.url("inbox?run=named&key=1%231.1!ask"))
    await expect(page.get_by_label("Your name")).to_have_value("Ada")
    assert await evaluate(page, "() => document.documentElement.scrollWidth") == 390
    await server.kill("named")


DRAFTED = """\
# Reply

Drafts and asks.

## STEP 1: Draft

Draft a reply.

@output(draft)

## STEP 2: Decide

@elicit(select, "Send this reply?", "yes", "no")
@output(decision)
"""


async def test_a_question_is_shown_with_the_latest_result_before_it(server: PageServer) -> None:
    script = {"turns": {"1": [{"text": "Dear Ada, we are sorry."}]}}
    await server.start("drafted", {"definition": {"source": DRAFTED}, "model": "scripted", "script": script}, end=False)
    page = await server.open_page("inbox")
    await page.get_by_role("row").filter(has_text="Send this reply?").click()
    await page.get_by_text("Latest result before this question").click()
    await expect(page.locator(".earlier")).to_contain_text("Dear Ada, we are sorry.")


CALL = {"order": "a1", "cents": 50_000}
APPROVAL = HumanAsked(
    "May agent clerk call refund?",
    "tool_approval",
    [{"value": "approve", "label": "Approve"}, {"value": "reject", "label": "Reject"}],
    request_data={"kind": "approval", "tool": "refund", "arguments": CALL, "description": "Pay money back."},
    schema={
        "type": "object",
        "properties": {
            "decision": {"enum": ["approve", "reject"]},
            "arguments": {
                "type": "object",
                "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
                "required": ["order", "cents"],
            },
            "reason": {"type": "string"},
        },
        "required": ["decision"],
    },
)


async def test_the_arguments_of_a_call_are_edited_before_it_is_approved(server: PageServer) -> None:
    log = Log("calls", "shop").started()
    log.model("clerk", "turn.1", asks="anthropic:claude-sonnet-5")
    log.add(APPROVAL, "clerk", 1, 1, "approve.1.0")
    await server.append_log(log)
    page = await server.open_page("inbox")
    result: list[Any] = []

    async def take(route: Route) -> None:
        result.append(json.loads(route.request.post_data or "{}"))
        await route.fulfill(status=400, json={"error": {"code": "answer.not_understood", "message": "not now"}})

    await page.route("**/runs/calls/answer*", take)
    await page.get_by_role("row").filter(has_text="May agent clerk").click()
    await expect(page.locator(".context")).to_contain_text("Pay money back.")
    await expect(page.locator(".question")).to_contain_text(re.compile(r"So far: .*\$0\.0"))
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".question .failure")).to_be_visible()
    await page.get_by_label("cents").fill("many")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".question .problem").filter(has_text="expected a number")).to_be_visible()
    await page.get_by_label("cents").fill("500")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".question .failure")).to_be_visible()
    await page.get_by_label("Reason").fill("too much")
    async with page.expect_response("**/runs/calls/answer*"):
        await page.get_by_role("button", name="Reject").click()
    assert [one["user_response"] for one in result] == [
        {"decision": "approve"},
        {"decision": "approve", "arguments": {"order": "a1", "cents": 500}},
        {"decision": "reject", "reason": "too much"},
    ]
    await page.unroute("**/runs/calls/answer*")
    await server.client.post("/runs/calls/kill", json={})
