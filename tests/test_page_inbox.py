"""The inbox and starting in a real browser: what one answers is what one has read, and what one starts begins once."""

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from playwright.async_api import Route, expect

from tests.browser import Opened
from tests.http_house import served
from tests.page_stage import ASKING, LOOP, Stage, asked
from tests.page_stage import browser as browser  # the fixtures
from tests.page_stage import stage as stage

WRITTEN = ASKING.replace('@elicit(select, "Which carrier takes it?", "North", "South", "East", "West", "Post")', "{}")


@pytest.fixture(scope="module")
async def house(browser: Opened, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with served(tmp_path_factory.mktemp("inbox")) as (client, connection):
        yield Stage(browser, client, connection)


async def ask(stage: Stage, run: str, question: str) -> None:
    await stage.start(run, {"definition": {"source": WRITTEN.replace("{}", question)}}, end=False)


async def answers(stage: Stage, run: str) -> int:
    return len((await stage.client.get(f"/runs/{run}/events", params={"types": "human.answered"})).json()["events"])


async def test_no_question_takes_the_place_of_another(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("inbox?run=nobody&key=none"))
    await ask(stage, "first", '@elicit(input, "What is the first?")')
    await expect(page.get_by_text("This question is not open")).to_be_visible()
    await expect(page.get_by_role("row")).to_have_count(1)
    await ask(stage, "second", '@elicit(confirm, "Is the second good?")')
    await expect(page.get_by_role("row")).to_have_count(2)
    await expect(page.get_by_text("This question is not open")).to_be_visible()

    await page.get_by_role("button", name="Next question").click()
    field = page.locator(".question form textarea, .question form input").first
    await field.fill("half a sentence")
    await stage.kill("first")
    await expect(page.get_by_text("Closed meanwhile")).to_be_visible()
    await expect(page.get_by_role("heading", name="What is the first?")).to_be_visible()
    await expect(field).to_have_value("half a sentence")
    await expect(field).to_be_disabled()
    await expect(page.locator(".question .actions button").first).to_be_disabled()
    await stage.kill("second")


async def test_an_answer_that_comes_late_leaves_what_is_written_elsewhere(stage: Stage) -> None:
    for run in ("slow", "other", "last"):
        await ask(
            stage, run, f'@elicit(confirm, "Is {run} good?")' if run != "other" else '@elicit(input, "And what?")'
        )
    page = await stage.browser.page(stage.url("inbox"))
    let_go, begun = anyio.Event(), anyio.Event()

    async def hold(route: Route) -> None:
        begun.set()
        await let_go.wait()
        await route.continue_()

    await page.route("**/runs/slow/answer*", hold)
    await page.get_by_role("row").filter(has_text="Is slow good?").click()
    button = page.locator(".question .actions button").first
    await button.dblclick()
    await begun.wait()
    await expect(button).to_have_attribute("aria-disabled", "true")
    await page.get_by_role("row").filter(has_text="And what?").click()
    field = page.locator(".question form textarea, .question form input").first
    await field.fill("half a sentence")
    let_go.set()
    await expect(page.get_by_role("row")).to_have_count(2)
    await expect(field).to_have_value("half a sentence")
    await expect(field).to_be_enabled()

    # A second click, and a key that is held, answer nothing else.
    await page.get_by_role("row").filter(has_text="Is last good?").click()
    await page.locator(".question .actions button").first.click()
    await expect(page.get_by_text("answered last")).to_be_visible()
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".question form")).to_have_count(0)
    assert [await answers(stage, run) for run in ("slow", "other", "last")] == [1, 0, 1]
    await stage.kill("other")


async def test_a_list_that_is_scrolled_stays_where_it_is(stage: Stage) -> None:
    for number in range(16):
        await ask(stage, f"many-{number:02}", '@elicit(input, "Well?")')
    page = await stage.browser.page(stage.url("inbox"), height=500)
    await expect(page.locator(".count, .bar .soft").first).to_contain_text("16 open")
    place = page.locator(".list")
    await asked(page, "() => { document.querySelector('.list').scrollTop = 400 }")
    await stage.kill("many-15")
    await expect(page.locator(".bar .soft").first).to_contain_text("15 open")
    assert await place.evaluate("(list) => list.scrollTop") == 400
    for number in range(15):
        await stage.client.post(f"/runs/many-{number:02}/kill", json={})


async def test_what_is_started_twice_begins_once(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("start"))
    keys: list[str | None] = []

    async def lose(route: Route) -> None:
        """Bring it to the server, and lose the answer of the first one."""
        keys.append(await route.request.header_value("idempotency-key"))
        answer = await route.fetch()
        await (route.abort() if len(keys) == 1 else route.fulfill(response=answer))

    await page.get_by_text("A text instead").click()
    await page.locator("details textarea").first.fill(LOOP["definition"]["source"])
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Model").fill("scripted")
    await page.route("**/api/acme/runs", lose)
    start = page.get_by_role("button", name="Start")
    await start.dblclick()
    await expect(page.locator(".failure")).to_be_visible()
    assert len(keys) == 1
    await start.click()
    await expect(page.locator(".run-title")).to_be_visible()
    assert keys[0]
    assert keys == [keys[0]] * 2
    assert httpx.URL(page.url).path.endswith(f"/runs/{keys[0]}")
    await stage.kill(str(keys[0]))
