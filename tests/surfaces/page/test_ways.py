"""Navigation in a real browser: between views, by keys, and while requests are pending."""

from playwright.async_api import Route, expect

from tests.support.browser import go
from tests.support.page_server import ASKING, LOOP, PageServer, evaluate, hold_back


async def test_a_pending_search_does_not_reopen_its_view(server: PageServer) -> None:
    page = await server.open_page("inbox")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    # The timer of the search ends before this one.
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_label("Find runs").fill("nobody")
    await evaluate(page, "() => document.querySelector('[data-view=inbox]').click()")
    await evaluate(page, "() => new Promise((done) => setTimeout(done, 250))")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


async def test_an_empty_list_is_reported_only_after_the_answer(server: PageServer) -> None:
    page = await server.open_page("nowhere")
    held = await hold_back(page, "**/api/acme/runs?*")
    await go(page, server.url("runs?q=nobody"))
    await expect(page.locator(".live .live")).to_be_visible()
    await evaluate(page, "() => document.querySelector('cb-runs').drawn()")
    assert await page.locator(".nothing").count() == 0
    held.release.set()
    await expect(page.get_by_text("No run matches")).to_be_visible()


async def test_counts_are_requested_without_lists_and_after_the_view(server: PageServer) -> None:
    await server.start("counted")
    await server.start("counted-asks", {"definition": {"source": ASKING}}, end=False)
    page = await server.browser.page("about:blank", alone=True)
    # Playwright does not report requests of the shared worker.
    await page.add_init_script("delete globalThis.SharedWorker")
    output: list[str] = []
    page.on("request", lambda one: output.append(f"ask {one.url.partition('/api/acme/')[2]}"))
    page.on("requestfinished", lambda one: output.append(f"told {one.url.partition('/api/acme/')[2]}"))
    await page.goto(server.url("runs"))
    await expect(page.get_by_role("link", name="Inbox 1")).to_be_visible()
    [listed] = [one for one in output if one.startswith("told runs?")]
    [*counts] = [one for one in output if one.startswith("ask questions")]
    assert output.index(listed) < output.index(counts[0])
    assert set(counts) == {"ask questions?limit=1"}

    output.clear()
    await page.get_by_role("link", name="Callboard").click()
    await expect(page.get_by_role("link", name="failed in 24 h")).to_have_text("✕1failed in 24 h")
    limits = [
        int(one.partition("limit=")[2].partition("&")[0]) for one in output if one.startswith("ask") and "limit=" in one
    ]
    assert max(limits) < 10
    await server.kill("counted-asks")


async def test_the_palette_opens_the_entry_of_the_typed_text(server: PageServer) -> None:
    page = await server.open_page("inbox")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("option", name="Definitions")).to_be_visible()
    script = """() => {
        const input = document.querySelector('.palette input')
        input.value = 'definitions'
        input.dispatchEvent(new Event('input'))
        input.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))
    }"""
    await evaluate(page, script)
    await expect(page.get_by_role("heading", name="Definitions")).to_be_visible()


async def test_the_page_is_navigated_with_keys_only(server: PageServer) -> None:
    await server.start("walked-1")
    await server.start("walked-2")
    page = await server.open_page("runs/walked-1", alone=True)
    where = "() => document.activeElement.id || document.activeElement.localName"
    await page.bring_to_front()
    await expect(page.get_by_role("link", name="All runs")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    assert (await evaluate(page, where), page.url) == ("view", server.url("runs/walked-1"))
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="All runs")).to_be_focused()

    node = page.locator(".hit").last
    await expect(node).to_be_visible()
    await node.focus()
    await page.keyboard.press("Space")
    await expect(node).to_have_attribute("aria-pressed", "true")
    assert await evaluate(page, "() => document.querySelector('cb-run').chosen") is not None

    # A new view begins at its top, and Escape leads back.
    await page.keyboard.press("g")
    await page.keyboard.press("r")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert await evaluate(page, where) == "view"
    await page.get_by_role("link", name="walked-2").click()
    await expect(page.get_by_role("heading", name="walked-2", level=1)).to_be_visible()
    assert await evaluate(page, where) == "view"
    assert await evaluate(page, "() => document.querySelector('cb-run').chosen") is None
    await page.get_by_text("Export", exact=True).click()
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("drawing", exact=True)).to_be_hidden()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()


async def test_an_unknown_run_has_no_status_and_the_help_lists_all_keys(server: PageServer) -> None:
    page = await server.open_page("runs/nobody")
    await expect(page.locator(".failure code")).to_have_text("run.unknown")
    await expect(page.locator(".panes")).to_be_hidden()
    assert await page.locator(".run-title .status").count() == 0
    await page.keyboard.press("?")
    keys = await page.locator("dialog kbd").all_text_contents()
    assert {",", ".", "g r", "Esc"} <= set(keys)
    assert "" not in keys


async def test_a_menu_fits_on_a_phone(server: PageServer) -> None:
    await server.start("narrow", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await server.open_page("runs/narrow", width=390, height=844)
    for status in ("paused", "cancelled"):
        await expect(page.locator(".run-title .status")).to_contain_text(status)
        await page.get_by_text("Export", exact=True).click()
        box = await page.locator(".menu ul:visible").bounding_box()
        assert box, status
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390, status
        await page.keyboard.press("Escape")
        await server.kill("narrow")


async def test_a_failed_view_is_requested_again_when_the_server_returns(server: PageServer) -> None:
    await server.start("back-again")
    page = await server.open_page("workers")
    await expect(page.locator(".live .live")).to_be_visible()
    gone = True

    async def away(route: Route) -> None:
        await (route.abort() if gone else route.continue_())

    await page.route("**/api/**", away)
    views = {"runs": ".run-row .status", "runs/back-again": ".run-title .status", "definitions": "h2", "inbox": "h2"}
    for path, seen in views.items():
        gone = True
        await go(page, server.url(path))
        await expect(page.locator("main .failure").first).to_be_visible()
        gone = False
        # Have the stream report that the server is back.
        await evaluate(page, "() => dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        await expect(page.locator("main .failure")).to_have_count(0)
        await expect(page.locator(f"main {seen}").first).to_be_visible()


async def test_theme_time_zone_and_tab_title_follow_choices_and_events(server: PageServer) -> None:
    await server.start("titled")
    page = await server.open_page("runs/titled", timezone_id="Europe/Berlin", color_scheme="light")
    await expect(page).to_have_title("✕ titled · Callboard")
    await server.start("title-asks", {"definition": {"source": ASKING}}, end=False)
    await expect(page).to_have_title("(1) ✕ titled · Callboard")
    light = await evaluate(page, "() => getComputedStyle(document.body).backgroundColor")
    await expect(page.locator(".run-head time")).to_contain_text("UTC+1")
    await page.get_by_title("Theme, time zone, notifications").click()
    dialog = page.locator("dialog")
    await dialog.get_by_label("Theme").select_option("Dark")
    await dialog.get_by_label("Time zone").select_option("Asia/Tokyo")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator(".run-head time")).to_contain_text("UTC+9")
    assert await evaluate(page, "() => getComputedStyle(document.body).backgroundColor") != light
    # Both choices are kept when the page is loaded again.
    await page.reload()
    await expect(page.locator(".run-head time")).to_contain_text("UTC+9")
    assert await evaluate(page, "() => document.documentElement.dataset.theme") == "dark"
    await server.kill("title-asks")
    await expect(page).to_have_title("✕ titled · Callboard")


async def test_a_new_question_is_announced_while_the_tab_is_hidden(server: PageServer) -> None:
    page = await server.browser.page("about:blank", alone=True)
    await page.add_init_script("""
        globalThis.shown = []
        globalThis.Notification = class {
            static permission = 'granted'
            static requestPermission = async () => 'granted'
            constructor(title) { shown.push(title) }
        }
        Object.defineProperty(document, 'hidden', {get: () => true})
    """)
    await page.goto(server.url("runs"))
    await page.get_by_title("Theme, time zone, notifications").click()
    await page.get_by_label("Notify me of new questions").check()
    await page.get_by_role("button", name="Close").click()
    await server.start("announced", {"definition": {"source": ASKING}}, end=False)
    await expect(page.get_by_role("link", name="Inbox 1 open")).to_be_visible()
    assert await evaluate(page, "() => shown") == ["1 open question"]
    await server.kill("announced")
