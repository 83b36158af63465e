"""Fan-outs as one row with a table, executions of a node, and child runs, in a real browser."""

import re
from typing import Any

from playwright.async_api import Locator, Page, expect

from callboard.bus.effects import Failure
from callboard.bus.events import EffectCall, EffectResult, Parent, RunEnd, TimerFired, TimerSet
from tests.support.browser import go
from tests.support.event_logs import Log
from tests.support.page_server import FAILED, PageServer, evaluate, fan_out, numbers_of

ITEMS = 60
FAN_MIN = 20
ELEMENTS_MAX = 600


async def open_run(server: PageServer, log: Log, query: str = "", **size: Any) -> Page:
    await server.append_log(log)
    page = await server.open_page(f"runs/{log.run}{query}", **size)
    await expect(page.locator(".where")).to_contain_text(f"of {len(log.events)}")
    return page


def enter_number(log: Log, path: str) -> int:
    """The event that began the execution of a path."""
    return next(event.n for event in log.events if event.type == "node.enter" and event.path == path)


async def test_a_fan_out_is_one_row_and_opens_into_a_table(server: PageServer) -> None:
    log = fan_out("fan-1", ITEMS)
    page = await open_run(server, log)
    lines = page.locator(".span-row.list-row")
    await expect(lines).to_have_count(4)
    await expect(lines.nth(2)).to_contain_text(f"{ITEMS} × Score, {len(FAILED)} failed")
    table = page.locator(".waterfall .executions")
    await expect(table).to_be_hidden()
    await lines.nth(2).click()
    await expect(table.get_by_role("heading")).to_have_text(f"{ITEMS} × Score")
    await expect(lines.nth(2)).to_have_attribute("aria-expanded", "true")
    first, second = (table.locator(f".list-row[aria-rowindex='{index}']") for index in (1, 2))
    await expect(first.locator(".c1")).to_have_text('{"item":0,"text":"review 0"}')

    await table.get_by_role("button", name="Duration").click()
    await expect(first.locator(".c3")).to_have_text("4.3 s")
    await table.get_by_role("button", name="Duration").click()
    await expect(first.locator(".c0")).to_have_text("0")
    await table.get_by_label("failed only").check()
    await expect(table.locator(".list-row")).to_have_count(len(FAILED))
    await expect(first.locator(".c0")).to_have_text("41")
    await table.get_by_role("button", name="Index").click()
    await expect(first.locator(".c0")).to_have_text("7")

    # The selected execution has rows below the row of the fan-out, and the inspector shows it.
    await second.click()
    await expect(page).to_have_url(re.compile(rf"[?&]at={enter_number(log, 'score[41]')}(&|$)"))
    await expect(page.locator(".inspector-head")).to_contain_text("score[41]#1")
    await expect(lines).to_have_count(6)
    await expect(lines.nth(3)).to_contain_text("41")
    await expect(lines.nth(3)).to_have_attribute("aria-selected", "true")
    await expect(lines.nth(4)).to_contain_text("turn.1")
    await table.get_by_role("button", name="Close the list").click()
    await expect(table).to_be_hidden()
    await expect(page.locator(".inspector-head")).to_contain_text("score[41]#1")
    await page.go_back()
    await expect(lines).to_have_count(4)


async def test_tries_of_an_item_are_one_row(server: PageServer) -> None:
    log = Log("tried").started(language="python")
    for item in range(ITEMS):
        path = f"task[{item}]/score"
        for k in (1, 2) if item in FAILED else (1,):
            slot = "step" if k == 1 else f"step.{k}"
            error = (
                Failure("step.failed", f"step score raised ValueError: no body in {item}") if item in FAILED else None
            )
            if k > 1:
                log.add(TimerSet(log.time, "retry"), path, 1, 1, f"backoff.{k - 1}")
                log.add(TimerFired(log.time), path, 1, 1, f"backoff.{k - 1}")
            request = {"step": "score", "arguments": {"model": "the same for all of them", "n": item}}
            log.add(EffectCall("step", "score", request), path, 1, 1, slot)
            log.add(EffectResult(None if error else item, error), path, 1, 1, slot)
    page = await open_run(server, log.ended(output=ITEMS))
    lines = page.locator(".span-row.list-row")
    await expect(lines).to_have_count(2)
    await expect(lines.nth(1)).to_contain_text(f"{ITEMS} × score, {len(FAILED)} failed")
    await lines.nth(1).click()
    table = page.locator(".waterfall .executions")
    await expect(table.locator(".list")).to_have_attribute("aria-rowcount", str(ITEMS))
    await table.get_by_label("failed only").check()
    first = table.locator(".list-row[aria-rowindex='1']")
    item = min(FAILED)
    await expect(first.locator(".c0")).to_have_text(str(item))
    await expect(first.locator(".c1")).to_have_text(f'{{"n":{item}}}')
    await expect(first.locator(".c2")).to_contain_text("2 tries")
    await expect(first.locator(".c3")).to_have_text("500 ms")
    await expect(first.locator(".c5")).to_have_text(f"ValueError: no body in {item}")
    # A try that is selected by its address has a row, and its item is marked.
    last = max(event.n for event in log.events if event.path == f"task[{item}]/score")
    await go(page, server.url(f"runs/tried?at={last}"))
    await expect(lines.nth(2)).to_contain_text(f"{item}, try 2")
    await expect(table.locator(".list-row[aria-selected=true] .c0")).to_have_text(str(item))


async def test_an_execution_selected_by_address_or_search_is_selected_in_its_table(server: PageServer) -> None:
    log = fan_out("fan-2", ITEMS)
    inside = enter_number(log, "score[33]") + 1
    page = await open_run(server, log, f"?at={inside}")
    table, lines = page.locator(".waterfall .executions"), page.locator(".span-row.list-row")
    chosen = table.locator(".list-row[aria-selected=true]")
    await expect(chosen.locator(".c0")).to_have_text("33")
    await expect(lines.locator("xpath=self::*[@aria-selected='true']")).to_contain_text("turn.1")
    await page.get_by_label("Find in events").fill("score[50]")
    await page.locator(".event-row.list-row").first.click()
    await expect(chosen.locator(".c0")).to_have_text("50")
    await expect(page.locator(".waterfall .list").first).to_be_visible()


async def test_a_fan_out_is_shown_as_of_an_event_and_few_siblings_are_rows(server: PageServer) -> None:
    log = fan_out("fan-3", ITEMS)
    page = await open_run(server, log, f"?n={enter_number(log, f'score[{FAN_MIN - 2}]')}")
    lines = page.locator(".span-row.list-row")
    await expect(page.locator(".waterfall .list").first).to_have_attribute(
        "aria-rowcount", str(2 + 2 * (FAN_MIN - 1) - 1)
    )
    await go(page, server.url(f"runs/fan-3?n={enter_number(log, 'score[30]') + 1}"))
    await expect(lines.nth(2)).to_contain_text("31 × Score, 1 failed, 1 running")


async def test_keys_open_and_close_the_table(server: PageServer) -> None:
    page = await open_run(server, fan_out("fan-4", ITEMS, left=3))
    lists, table = page.locator(".waterfall .list"), page.locator(".waterfall .executions")
    await expect(lists.first.locator(".list-row").nth(2)).to_contain_text(f"{ITEMS} × Score, 2 failed, 3 running")
    await lists.first.locator(".list-row").nth(1).click()
    await lists.first.press("j")
    await expect(table).to_be_visible()
    await lists.first.press("h")
    await expect(table).to_be_hidden()
    await lists.first.press("l")
    await expect(table).to_be_visible()
    await table.locator(".list").press("End")
    await expect(page.locator(".inspector-head")).to_contain_text(f"score[{ITEMS - 1}]#1")
    assert await evaluate(page, "() => document.querySelectorAll('body *').length") <= ELEMENTS_MAX


async def test_the_inspector_leads_from_one_execution_of_a_node_to_the_others(server: PageServer) -> None:
    recorded = await server.start("loops-1")
    call = numbers_of(recorded, "model.call")[0]
    page = await server.open_page("runs/loops-1")
    await page.locator(".gnode[data-id=a] .hit").click()
    inspector = page.locator(".inspector")
    await expect(inspector.locator(".inspector-head")).to_contain_text("a#2")
    await expect(inspector.locator(".picker")).to_contain_text("execution 2 of 2")
    await expect(inspector.get_by_role("button", name="Next execution")).to_be_disabled()
    await inspector.get_by_role("button", name="Previous execution").click()
    await expect(inspector.locator(".inspector-head")).to_contain_text("a#1")
    await expect(inspector.locator(".picker")).to_contain_text("execution 1 of 2")

    await inspector.get_by_role("button", name="execution 1 of 2").click()
    rows = inspector.locator(".executions .list-row")
    await expect(rows).to_have_count(2)
    await expect(inspector.locator(".executions [aria-rowindex='2'] .c0")).to_have_text("#2")
    await inspector.locator(".executions .list").press("j")
    await expect(inspector.locator(".inspector-head")).to_contain_text("a#2")
    # A turn of the model belongs to an execution; a node that was executed once has no others.
    await go(page, server.url(f"runs/loops-1?at={call}"))
    await expect(inspector.locator(".picker")).to_contain_text("execution 1 of 2")
    await page.locator(".gnode[data-id=c] .hit").click()
    await expect(inspector.locator(".inspector-head")).to_contain_text("c#1")
    await expect(inspector.locator(".picker")).to_have_count(0)
    await expect(inspector.locator(".executions")).to_be_hidden()


def runs_with_children(parent: str, children: int) -> list[Log]:
    """A run, its child runs, and a grandchild run below the first of them."""
    logs = [Log(parent, "family")]
    logs[0].accepted()
    for number in range(children):
        child = Log(f"{parent}-child-{number}", "family")
        child.accepted(parent=Parent(parent, f"a#1.1!child.{number}", 1))
        logs.append(child)
    grandchild = Log(f"{parent}-grandchild", "family")
    grandchild.accepted(parent=Parent(logs[1].run, "a#1.1!child.0", 2))
    return [*logs, grandchild]


async def test_child_runs_are_folded_into_the_row_of_their_parent(server: PageServer) -> None:
    family = runs_with_children("tree", 3)
    for one in family:
        one.add(RunEnd("completed"))
        await server.append_log(one)
    page = await server.open_page("runs")
    rows = page.locator(".run-row.list-row")

    def row(run: str) -> Locator:
        return page.locator(f".run-row:is([data-name='{run}'], [data-name$='/{run}'])")

    await expect(row("tree")).to_have_attribute("aria-expanded", "false")
    await expect(row("tree-child-0")).to_have_count(0)
    await row("tree").get_by_role("button", name="Show 3 child runs").click()
    await expect(page).to_have_url(server.url("runs"))
    await expect(row("tree-child-2")).to_have_attribute("aria-level", "2")
    await expect(row("tree-child-0").get_by_role("button", name="Show 1 child run")).to_be_visible()
    # By keys: to the first child, into it, and back to its parent.
    runs = page.get_by_role("treegrid", name="Runs")
    for key in ("j", "j", "j", "j", "l"):
        await runs.press(key)
    await expect(row("tree-grandchild")).to_have_attribute("aria-level", "3")
    await runs.press("j")
    await expect(row("tree-grandchild")).to_have_attribute("aria-selected", "true")
    await runs.press("h")
    await expect(row("tree-child-0")).to_have_attribute("aria-selected", "true")
    await runs.press("h")
    await runs.press("h")
    await runs.press("h")
    await expect(row("tree")).to_have_attribute("aria-expanded", "false")
    await expect(row("tree-child-0")).to_have_count(0)
    # A filtered list shows each run in its own place, and below its parent if they are asked for.
    await go(page, server.url("runs?q=tree-"))
    await expect(rows).to_have_count(len(family) - 1)
    await row("tree-child-0").get_by_role("button", name="Show 1 child run").click()
    await expect(rows).to_have_count(len(family))
    await expect(page.locator("[data-name='tree-child-0/tree-grandchild']")).to_have_attribute("aria-level", "2")
    await page.goto(server.url("runs?order=run&q=tree&status=completed"))
    await row("tree").get_by_role("button", name="Show 3 child runs").click()
    below = page.locator("[data-name^='tree/']")
    await expect(below).to_have_count(3)
    await expect(below.first).to_contain_text("tree-child-2")
    await row("tree").get_by_role("button", name="Hide 3 child runs").click()
    await expect(below).to_have_count(0)

    # A child run that starts now comes below its parent.
    await go(page, server.url("runs"))
    await expect(page.locator(".live .live")).to_be_visible()
    late = Log("tree-late", "family")
    late.accepted(parent=Parent("tree", "a#1.1!child.9", 1))
    await server.append_log(late)
    await expect(row("tree").get_by_role("button", name="Show 4 child runs")).to_be_visible()
    await row("tree").get_by_role("link").click()
    await expect(page).to_have_url(server.url("runs/tree"))
