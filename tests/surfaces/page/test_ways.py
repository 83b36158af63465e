"""The ways through the page in a real browser: between views, by keys, and while what is asked for is on its way."""

from playwright.async_api import Route, expect

from tests.support.browser import go
from tests.support.page_stage import ASKING, LOOP, Stage, asked, held


async def test_whoever_has_gone_on_is_not_brought_back(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("inbox"))
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    # What is typed into a list goes nowhere once that is left: later timers come later.
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_label("Find runs").fill("nobody")
    await asked(page, "() => document.querySelector('[data-view=inbox]').click()")
    await asked(page, "() => new Promise((done) => setTimeout(done, 250))")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


async def test_that_there_is_nothing_is_said_once_it_is_known(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("nowhere"))
    let_go = await held(page, "**/api/acme/runs?*")
    await go(page, stage.url("runs?q=nobody"))
    await expect(page.locator(".live .live")).to_be_visible()
    await asked(page, "() => document.querySelector('cb-runs').drawn()")
    assert await page.locator(".nothing").count() == 0
    let_go.set()
    await expect(page.get_by_text("No run matches")).to_be_visible()


async def test_what_is_counted_is_no_list_and_waits_for_the_view(stage: Stage) -> None:
    await stage.start("counted")
    await stage.start("counted-asks", {"definition": {"source": ASKING}}, end=False)
    page = await stage.browser.page("about:blank", alone=True)
    # What a worker asks that tabs share is not told of here.
    await page.add_init_script("delete globalThis.SharedWorker")
    told: list[str] = []
    page.on("request", lambda one: told.append(f"ask {one.url.partition('/api/acme/')[2]}"))
    page.on("requestfinished", lambda one: told.append(f"told {one.url.partition('/api/acme/')[2]}"))
    await page.goto(stage.url("runs"))
    await expect(page.get_by_role("link", name="Inbox 1")).to_be_visible()
    [listed] = [one for one in told if one.startswith("told runs?")]
    [*counts] = [one for one in told if one.startswith("ask questions")]
    assert told.index(listed) < told.index(counts[0])
    assert set(counts) == {"ask questions?limit=1"}

    told.clear()
    await page.get_by_role("link", name="Callboard").click()
    await expect(page.get_by_role("link", name="failed in 24 h")).to_have_text("✕1failed in 24 h")
    limits = [
        int(one.partition("limit=")[2].partition("&")[0]) for one in told if one.startswith("ask") and "limit=" in one
    ]
    assert max(limits) < 10
    await stage.kill("counted-asks")


async def test_what_is_entered_is_what_was_typed(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("inbox"))
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("option", name="Definitions")).to_be_visible()
    script = """() => {
        const input = document.querySelector('.palette input')
        input.value = 'definitions'
        input.dispatchEvent(new Event('input'))
        input.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))
    }"""
    await asked(page, script)
    await expect(page.get_by_role("heading", name="Definitions")).to_be_visible()


async def test_one_goes_through_it_by_keys_alone(stage: Stage) -> None:
    await stage.start("walked-1")
    await stage.start("walked-2")
    page = await stage.browser.page(stage.url("runs/walked-1"), alone=True)
    where = "() => document.activeElement.id || document.activeElement.localName"
    # A page that is new may not be the one that has the focus.
    await page.bring_to_front()
    await expect(page.get_by_role("link", name="All runs")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    assert (await asked(page, where), page.url) == ("view", stage.url("runs/walked-1"))
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="All runs")).to_be_focused()

    node = page.locator(".hit").last
    await expect(node).to_be_visible()
    await node.focus()
    await page.keyboard.press("Space")
    await expect(node).to_have_attribute("aria-pressed", "true")
    assert await asked(page, "() => document.querySelector('cb-run').chosen") is not None

    # Whoever comes to another view begins at its top, and Escape leads back from there.
    await page.keyboard.press("g")
    await page.keyboard.press("r")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert await asked(page, where) == "view"
    await page.get_by_role("link", name="walked-2").click()
    await expect(page.get_by_role("heading", name="walked-2", level=1)).to_be_visible()
    assert await asked(page, where) == "view"
    assert await asked(page, "() => document.querySelector('cb-run').chosen") is None
    await page.get_by_text("Export", exact=True).click()
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("drawing", exact=True)).to_be_hidden()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()


async def test_a_run_that_there_is_not_has_no_status_and_keys_are_told_whole(stage: Stage) -> None:
    page = await stage.browser.page(stage.url("runs/nobody"))
    await expect(page.locator(".failure code")).to_have_text("run.unknown")
    await expect(page.locator(".panes")).to_be_hidden()
    assert await page.locator(".run-title .status").count() == 0
    await page.keyboard.press("?")
    keys = await page.locator("dialog kbd").all_text_contents()
    assert {",", ".", "g r", "Esc"} <= set(keys)
    assert "" not in keys


async def test_a_menu_is_seen_whole_on_a_phone(stage: Stage) -> None:
    await stage.start("narrow", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await stage.browser.page(stage.url("runs/narrow"), width=390, height=844)
    for status in ("paused", "cancelled"):
        await expect(page.locator(".run-title .status")).to_contain_text(status)
        await page.get_by_text("Export", exact=True).click()
        box = await page.locator(".menu ul:visible").bounding_box()
        assert box, status
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390, status
        await page.keyboard.press("Escape")
        await stage.kill("narrow")


async def test_what_could_not_be_shown_is_asked_for_once_the_server_is_back(stage: Stage) -> None:
    await stage.start("back-again")
    page = await stage.browser.page(stage.url("workers"))
    await expect(page.locator(".live .live")).to_be_visible()
    gone = True

    async def away(route: Route) -> None:
        await (route.abort() if gone else route.continue_())

    await page.route("**/api/**", away)
    views = {"runs": ".run-row .status", "runs/back-again": ".run-title .status", "definitions": "h2", "inbox": "h2"}
    for path, seen in views.items():
        gone = True
        await go(page, stage.url(path))
        await expect(page.locator("main .failure").first).to_be_visible()
        gone = False
        # The stream, which all tabs share, tells that it is there again.
        await asked(page, "() => dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        await expect(page.locator("main .failure")).to_have_count(0)
        await expect(page.locator(f"main {seen}").first).to_be_visible()


async def test_theme_time_zone_and_tab_title_follow_what_is_chosen_and_what_happens(stage: Stage) -> None:
    await stage.start("titled")
    page = await stage.browser.page(stage.url("runs/titled"), timezone_id="Europe/Berlin", color_scheme="light")
    await expect(page).to_have_title("✕ titled · Callboard")
    await stage.start("title-asks", {"definition": {"source": ASKING}}, end=False)
    await expect(page).to_have_title("(1) ✕ titled · Callboard")
    light = await asked(page, "() => getComputedStyle(document.body).backgroundColor")
    await expect(page.locator(".run-head time")).to_contain_text("UTC+1")
    await page.get_by_title("Theme, time zone, notifications").click()
    dialog = page.locator("dialog")
    await dialog.get_by_label("Theme").select_option("Dark")
    await dialog.get_by_label("Time zone").select_option("Asia/Tokyo")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator(".run-head time")).to_contain_text("UTC+9")
    assert await asked(page, "() => getComputedStyle(document.body).backgroundColor") != light
    # Both are still chosen after the page has been loaded again.
    await page.reload()
    await expect(page.locator(".run-head time")).to_contain_text("UTC+9")
    assert await asked(page, "() => document.documentElement.dataset.theme") == "dark"
    await stage.kill("title-asks")
    await expect(page).to_have_title("✕ titled · Callboard")


async def test_a_new_question_is_announced_to_somebody_who_looks_elsewhere(stage: Stage) -> None:
    page = await stage.browser.page("about:blank", alone=True)
    await page.add_init_script("""
        globalThis.shown = []
        globalThis.Notification = class {
            static permission = 'granted'
            static requestPermission = async () => 'granted'
            constructor(title) { shown.push(title) }
        }
        Object.defineProperty(document, 'hidden', {get: () => true})
    """)
    await page.goto(stage.url("runs"))
    await page.get_by_title("Theme, time zone, notifications").click()
    await page.get_by_label("Notify me of new questions").check()
    await page.get_by_role("button", name="Close").click()
    await stage.start("announced", {"definition": {"source": ASKING}}, end=False)
    await expect(page.get_by_role("link", name="Inbox 1 open")).to_be_visible()
    assert await asked(page, "() => shown") == ["1 open question"]
    await stage.kill("announced")
