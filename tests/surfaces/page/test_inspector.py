"""The inspector: texts and values as Markdown, text and JSON, conversations, pictures and files, in a real browser."""

import json
from typing import Any

import anyio
from playwright.async_api import Download, Page, expect

from callboard.runtime.hosting.code_loader import load_object
from tests.support import python_workflows
from tests.support.accessibility import find_barriers
from tests.support.browser import go
from tests.support.http_application import code_of
from tests.support.page_server import LOOP, PageServer, evaluate
from tests.support.workflows import document as workflow
from tests.support.workflows import scripted_skill

ANSWER = """\
# The plan

It has **two** parts, see [the guide](https://example.org/guide) and [not this](javascript:window.hacked=1).

| part | state |
|------|------:|
| one  | done  |

- first
- second

```python
def plan():
    return 2
```

![a picture](https://example.org/picture.png) <script>window.hacked = 1</script>
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "plan.py", line 2, in plan
    return 2 / 0
ZeroDivisionError: division by zero"""
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LONG = 12345678901234567890
CALLS = [{"text": f"I open page {n}.", "tool_calls": [{"tool": "open", "input": {"page": n}}]} for n in (1, 2)]
READS: dict[str, Any] = {
    "definition": {"source": json.dumps(workflow({"read": {"skills": ["files"]}}, id="reads"))},
    "options": {"skills": [scripted_skill("files", "open")]},
    "model": "scripted",
    "script": {
        "turns": {
            "read": [
                *({**one, "usage": {"input_tokens": 900, "output_tokens": 100}} for one in CALLS),
                {"text": ANSWER},
            ]
        },
        "tools": {
            "open": [{"output": TRACEBACK}, {"output": {"type": "image", "mimeType": "image/png", "data": PICTURE}}]
        },
    },
    "input": {"who": "Ada", "id": LONG, "note": ANSWER},
}


async def events_of(server: PageServer, run: str, start: dict[str, Any] = READS) -> list[dict[str, Any]]:
    return [one["event"] for one in await server.start(run, start)]


def numbers(events: list[dict[str, Any]], type: str) -> list[int]:
    return [one["n"] for one in events if one["type"] == type]


async def saved(download: Download) -> bytes:
    return await anyio.Path(await download.path()).read_bytes()


def view(page: Page, name: str) -> Any:
    return page.locator(".inspector").get_by_role("button", name=name, exact=True)


async def test_an_answer_is_shown_as_markdown_text_or_json_and_the_choice_is_kept(server: PageServer) -> None:
    events = await events_of(server, "viewed")
    last = numbers(events, "model.result")[2]
    page = await server.open_page(f"runs/viewed?at={last}&tab=output", alone=True)
    requests: list[str] = []
    page.on("request", lambda one: requests.append(one.url))
    shown = page.locator(".inspector-body .viewed").first
    await expect(shown.locator("td").first).to_have_text("one")
    await expect(shown.locator("pre")).to_have_text("def plan():\n    return 2\n")
    links = shown.locator("a")
    assert await links.all_text_contents() == ["the guide", "a picture"]
    assert await links.first.get_attribute("rel") == "noopener noreferrer"
    await expect(shown).to_contain_text("<script>window.hacked = 1</script>")
    assert await shown.locator("img, script").count() == 0
    await view(page, "Text").click()
    await expect(shown.locator(".text")).to_have_text(ANSWER)
    await page.reload()
    await expect(view(page, "Text")).to_have_attribute("aria-pressed", "true")
    await view(page, "JSON").click()
    await expect(shown.locator(".text")).to_have_text(json.dumps(ANSWER))
    assert not [one for one in requests if "example.org" in one]
    assert await evaluate(page, "() => window.hacked") is None


async def test_copies_are_exact(server: PageServer) -> None:
    await events_of(server, "copied")
    page = await server.open_page("runs/copied?at=1")
    await page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.written = text } }")
    await page.locator(".inspector-body").get_by_role("button", name="Copy Input").click()
    await expect(page.locator(".inspector-body .copy").first).to_have_text("copied")
    assert json.loads(await evaluate(page, "() => window.written")) == READS["input"]


async def test_a_conversation_has_turns_with_the_results_of_tools_under_their_calls(server: PageServer) -> None:
    events = await events_of(server, "talks")
    third = numbers(events, "model.call")[2]
    page = await server.open_page(f"runs/talks?at={third}", width=1440, height=900)
    turns = page.locator(".inspector-body section.turn")
    await expect(turns).to_have_count(3)
    assert await evaluate(
        page, "() => [...document.querySelectorAll('section.turn')].map((one) => one.classList[1])"
    ) == ["user", "assistant", "assistant"]
    await expect(turns.nth(1).locator(".facts").first).to_contain_text("1.0k tok")
    calls = page.locator(".part.call")
    await expect(calls.first.locator("summary")).to_have_text("calls open answered")
    await expect(calls.last.locator("summary")).to_contain_text("new")
    assert [await one.get_attribute("open") for one in await calls.all()] == [None, ""]
    await expect(calls.last.locator("img")).to_be_visible()
    await expect(calls.last.locator("figcaption")).to_contain_text("image/png · 70 B")
    await calls.first.locator("summary").click()
    await expect(calls.first.locator(".mono")).to_have_text(TRACEBACK)
    async with page.expect_download() as saving:
        await calls.last.get_by_role("button", name="Download file.png").click()
    assert (await saved(await saving.value)).startswith(b"\x89PNG")


async def test_the_inspector_is_accessible(server: PageServer) -> None:
    events = await events_of(server, "for-all-eyes")
    calls, results = numbers(events, "model.call"), numbers(events, "model.result")
    page = await server.open_page("nowhere", width=1440, height=900)
    barriers: list[str] = []
    for name, place in {
        "conversation": f"runs/for-all-eyes?at={calls[2]}",
        "markdown": f"runs/for-all-eyes?at={results[2]}&tab=output",
        "outcome": "runs/for-all-eyes",
    }.items():
        await go(page, server.url(place))
        await expect(page.locator(".inspector-body > *").first).to_be_attached()
        await expect(page.locator(".call, .markdown").first).to_be_attached()
        barriers += await find_barriers(server.browser, page, f"inspector-{name}")
    assert barriers == [], "\n".join(barriers)


HOSTILE = {
    "brackets": "[" * 100_000,
    "pictures": "![" * 50_000,
    "emphasis": "*" * 50_000 + "a" + "*" * 50_000,
    "quotes": "> - " * 25_000,
    "table": "|a" * 100 + "|\n" + "|-" * 100 + "|\n" + "|\n" * 40_000,
    "script": "<script>window.hacked = 1</script>\n" * 2_500,
}


async def test_hostile_markdown_is_text_and_is_read_in_pieces(server: PageServer) -> None:
    page = await server.open_page("nowhere")
    created = """async (text) => {
        const {viewed} = await import('/static/lib/viewed.js')
        const element = viewed(text, {as: 'markdown'})
        document.body.append(element)
        while (!element.querySelector('.markdown')) await new Promise((done) => setTimeout(done, 5))
        const dangerous = element.querySelectorAll('script, img, iframe, [onerror]').length
        const found = [dangerous, window.hacked ?? null, /show more/.test(element.querySelector('button')?.textContent)]
        element.remove()
        return found
    }"""
    for name, text in HOSTILE.items():
        assert await evaluate(page, created, text) == [0, None, True], name


async def test_the_server_reads_one_piece_at_a_time(server: PageServer) -> None:
    answer = await server.client.post("/markdown", json={"text": "x" * 16_385})
    assert code_of(answer) == (400, "api.malformed")
    nodes = (await server.client.post("/markdown", json={"text": "1. a\n2. b\n\n[x](data:text/html,1) <b>"})).json()[
        "nodes"
    ]
    assert nodes == [["ol", {}, [["li", {}, ["a"]], ["li", {}, ["b"]]]], ["p", {}, ["[x](data:text/html,1) <b>"]]]


async def test_files_of_a_start_have_names_and_sizes_and_a_download(server: PageServer) -> None:
    recorded = await server.start("with-files", {**LOOP, "files": {"notes/a.md": "# A\n"}})
    assert recorded
    page = await server.open_page("runs/with-files?at=1")
    row = page.locator(".inspector-body details.file")
    await expect(row.locator("summary")).to_have_text("notes/a.md 4 B")
    await row.locator("summary").click()
    async with page.expect_download() as saving:
        await row.get_by_role("button", name="Download a.md").click()
    assert await saved(await saving.value) == b"# A\n"


async def test_the_source_of_a_workflow_in_python_has_the_current_line_of_each_task(server: PageServer) -> None:
    source = load_object(python_workflows.triage).definitions["triage"]
    start = {"definition": {"source": source}, "input": {"service": "shop", "urls": ["a"]}}
    await server.start("source-1", start, end=False)
    page = await server.open_page("runs/source-1", width=1440, height=900)
    await expect(page.locator(".outcome .asking")).to_have_text("Restart it?")
    await page.get_by_role("button", name="Source", exact=True).click()
    mark = page.locator(".sources mark")
    await expect(mark).to_contain_text('verdict = await ask("Restart it?"')
    await expect(page.locator(".task-list")).to_contain_text("(human.asked)")
    line = await mark.get_attribute("data-line")
    await expect(page.locator(".sources .gutter")).to_contain_text(f"▸ {line}")
    await page.reload()
    await expect(mark).to_be_visible()
    # On a phone the source is in the pane of the graph.
    await go(page, server.url("runs/source-1?pane=graph"))
    await expect(mark).to_be_visible()
    barriers = await find_barriers(server.browser, page, "source")
    assert barriers == [], "\n".join(barriers)
    begun = await server.events("source-1", "effect.call,tool.call")
    await go(page, server.url(f"runs/source-1?n={begun[0]['event']['n']}"))
    await expect(mark.first).not_to_contain_text("Restart it?")
