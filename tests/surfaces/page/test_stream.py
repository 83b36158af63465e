"""The event stream of the page, as a module in node and in a browser: gaps, faults, and shared connections."""

from collections.abc import Sequence
from typing import Any

import anyio
import httpx2
from playwright.async_api import Route, expect

from callboard.bus.events import Event, Outline, OutlineNode
from callboard.bus.subjects import RunRef
from callboard.surfaces.http.live import TOPICS_MAX
from tests.support.browser import go, run_node
from tests.support.event_logs import Log
from tests.support.page_server import LOOP, TENANT, PageServer, evaluate, hold_back
from tests.support.patience import until
from tests.support.places import ROOT

PATIENCE_S = 30
STATIC = ROOT / "surfaces" / "page" / "static"

SERVED = """
const {Stream} = await import(`${process.argv[1]}/lib/stream.js`)
const connections = []
const topics = ({url}) => new URLSearchParams(url.split('?')[1]).getAll('topic')
globalThis.fetch = async (url, {signal}) => {
  if (topics({url}).length > %d) return {ok: false, status: 400}
  const body = new ReadableStream({start: (writer) => connections.push({url, writer, signal})})
  return {ok: true, status: 200, body}
}
setTimeout(() => { console.error('what is waited for does not come'); process.exit(1) }, 20_000)
const until = async (met) => { while (!met()) await new Promise((done) => setTimeout(done, 2)) }
const say = (text, to = connections.at(-1)) => to.writer.enqueue(new TextEncoder().encode(text))
const event = (id, type, run, n, to) =>
  say(`id: ${id}\\nevent: ${type}\\ndata: ${JSON.stringify({type, run, n})}\\n\\n`, to)
const stream = new Stream('/live', () => {})
const begin = (id, to) => say(`: live\\n\\nid: ${id}\\n\\n`, to)
const follow = (topic, after, since = Date.now()) => {
  const told = []
  const tell = (some) => told.push(...some.map((one) => one.begun ? 'begun' : one.sequence))
  stream.follow({topic, after, since, tell})
  return told
}
const after = (connection) => new URLSearchParams(connection.url.split('?')[1]).get('after')
"""
"""A stream with a server that sends the events of a test, and accepts a bounded number of topics."""

TAB = """
const channel = new MessageChannel()
globalThis.self = globalThis
globalThis.document = {querySelector: () => null}
globalThis.addEventListener = () => {}
globalThis.SharedWorker = class {
  port = {postMessage: (asked) => channel.port1.postMessage(asked)}
  constructor() {
    channel.port1.onmessage = async (message) => { await awake; this.port.onmessage(message) }
    self.onconnect({ports: [channel.port2]})
  }
}
const real = Date.now, every = []
let slept = 0, awake = null
Date.now = () => real() + slept
globalThis.setInterval = (call) => every.push(call)
await import(`${process.argv[1]}/stream-worker.js`)
const [look] = every
const tab = await import(`${process.argv[1]}/lib/follow.js`)
tab.begin()
const [, alive] = every
const followed = (topic) => {
  const told = []
  tab.follow(topic, (some) => told.push(...some.map((one) => one.begun ? 'begun' : one.sequence)))
  return told
}
"""
"""A tab and the shared worker; a test controls their clocks."""


def run_beside_stream(script: str) -> Any:
    """Run a script beside the stream; return the JSON that it prints."""
    return run_node(f"{SERVED.replace('%d', str(TOPICS_MAX))}\n{script}\nprocess.exit(0)", str(STATIC))


def test_a_malformed_event_is_skipped() -> None:
    script = """
    const found = follow('run:x', 5)
    await until(() => connections.length === 1)
    say('id: 6\\nevent: run.start\\ndata: {"run": \\n\\nevent: model.delta\\ndata: {"run":"x",}\\n\\n')
    event(7, 'run.end', 'x', 2)
    await until(() => found.length)
    console.log(JSON.stringify([found, stream.at, connections.length]))
    """
    assert run_beside_stream(script) == [[7], 7, 1]


def test_a_new_follower_hears_no_repetition_and_learns_of_a_possible_gap() -> None:
    script = """
    const all = follow('runs', null)
    await until(() => connections.length === 1)
    say(': live\\n\\n')
    begin(50)
    await until(() => all.length === 1)
    const long_ago = follow('run:x', null)
    event(51, 'run.end', 'y', 4)
    await until(() => connections.length === 2)
    begin(51)
    event(52, 'model.call', 'x', 9)
    await until(() => long_ago.length === 2)
    // A follower of an existing topic has a gap only if an event came after it asked.
    const beside = follow('run:x', null, Date.now() + 1), late = follow('run:x', null, 0)
    await until(() => late.length)
    event(53, 'run.end', 'x', 10)
    await until(() => beside.length && late.length === 2)
    console.log(JSON.stringify([all, long_ago, beside, late, connections.map(after)]))
    """
    assert run_beside_stream(script) == [["begun", 51, 53], ["begun", 52, 53], [53], ["begun", 53], [None, "51"]]


def test_more_runs_than_topics_are_followed_without_disconnecting_others() -> None:
    script = f"""
    const {{Streams, TOPICS_MAX}} = await import(`${{process.argv[1]}}/lib/streams.js`)
    const streams = new Streams('/live', () => {{}}), later = setTimeout
    globalThis.setTimeout = (call, wait) => later(call, wait === 5_000 ? 5 : wait)
    const joined = (topic) => {{
      const told = [], tell = (some) => told.push(...some.map((one) => one.sequence ?? 'begun'))
      const follower = {{topic, after: null, since: 0, tell}}
      streams.follow(follower)
      return {{told, follower, topic}}
    }}
    const lists = ['runs', 'questions'].map(joined)
    const runs = Array.from({{length: {2 * TOPICS_MAX + 2}}}, (_, i) => joined(`run:${{i}},`))
    const standing = () => connections.filter((one) => !one.signal.aborted)
    const of = (topic) => standing().find((one) => topics(one).includes(topic))
    await until(() => standing().length === 3)
    for (const one of [lists[0], runs[0], runs.at(-3)]) begin(100, of(one.topic))
    await until(() => runs.every((one) => one.told[0] === 'begun'))
    const outside = runs.filter((one) => !of(one.topic))
    // When one follower leaves, a waiting topic takes its place.
    streams.leave(runs[0].follower)
    await until(() => of(outside[0].topic))
    const [taker, lacking] = outside
    begin(100, of(taker.topic))
    event(101, 'run.end', taker.topic.slice(4), 9, of(taker.topic))
    await until(() => taker.told.includes(101))
    const asked = lacking.told.length
    await until(() => lacking.told.length > asked)
    const followed = connections.filter((one) => topics(one).includes('runs'))
    const sizes = standing().map((one) => topics(one).length)
    console.log(JSON.stringify([TOPICS_MAX, outside.length, sizes, followed.length]))
    """
    assert run_beside_stream(script) == [TOPICS_MAX, 2, [2, TOPICS_MAX, TOPICS_MAX], 1]


def test_a_tab_that_slept_too_long_hears_all_events_once() -> None:
    script = f"""{TAB}
    const all = followed('runs'), one = followed('questions')
    await until(() => connections.length === 1)
    begin(4)
    event(5, 'run.start', 'y', 2)
    event(6, 'human.asked', 'x', 9)
    event(7, 'run.parked', 'x', 10)
    event(8, 'run.end', 'y', 4)
    await until(() => one.length === 2 && all.length === 4)
    let wake
    awake = new Promise((done) => {{ wake = done }})
    slept += 200_000
    look()
    await until(() => connections[0].signal.aborted)
    wake()
    await until(() => connections.length === 2)
    event(9, 'run.accepted', 'q', 1)
    await until(() => all.includes(9))
    alive()
    look()
    event(10, 'run.accepted', 'r', 1)
    await until(() => all.includes(10))
    console.log(JSON.stringify([all, one, connections.map(after)]))
    """
    assert run_beside_stream(script) == [["begun", 5, 7, 8, 9, 10], ["begun", 6], [None, "8"]]


def test_questions_are_counted_once_however_many_tabs_there_are() -> None:
    script = f"""{TAB}
    const live = globalThis.fetch
    let asks = 0, open = 1, failing = false
    globalThis.fetch = async (url, given) => {{
      if (!url.includes('/questions?')) return live(url, given)
      asks++
      if (failing) throw new TypeError('no network')
      return {{ok: true, status: 200, json: async () => ({{count: open}})}}
    }}
    const later = globalThis.setTimeout
    globalThis.setTimeout = (call, wait) => later(call, wait / 10)
    const counts = [], others = []
    tab.count((count) => counts.push(count))
    await until(() => connections.length === 1 && counts.length)
    begin(4)
    await until(() => counts.length === 2)
    const other = new MessageChannel()
    other.port1.onmessage = ({{data}}) => data.count !== undefined && others.push(data.count)
    self.onconnect({{ports: [other.port2]}})
    other.port1.postMessage({{url: '/live', count: '/questions'}})
    await until(() => others.length)
    const known = asks
    open = 2
    failing = true
    event(5, 'run.parked', 'x', 8)
    event(6, 'human.asked', 'x', 9)
    await until(() => asks > known)
    failing = false
    await until(() => counts.at(-1) === 2 && others.at(-1) === 2)
    const opened = connections.length
    other.port1.postMessage({{bye: true}})
    open = 1
    event(7, 'human.answered', 'x', 10)
    await until(() => counts.at(-1) === 1)
    slept += 200_000
    look()
    await until(() => connections[0].signal.aborted)
    const changes = (some) => some.filter((one, i) => one !== some[i - 1])
    console.log(JSON.stringify([changes(counts), changes(others), known, opened]))
    """
    assert run_beside_stream(script) == [[1, 2, 1], [1, 2], 2, 1]


async def test_events_between_reading_and_following_a_run_are_read(server: PageServer) -> None:
    await server.start("between", {**LOOP, "breakpoints": ["b"]}, end=False)
    *_, before = await server.start("meanwhile")
    page = await server.browser.page("about:blank", alone=True)
    await page.add_init_script("delete globalThis.SharedWorker")
    held = await hold_back(page, "**/live?*run%3Abetween*")
    await page.goto(server.url("runs/between"))
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    await held.begun.wait()
    await server.resume("between")
    await server.result("between")
    held.release.set()
    await expect(page.locator(".run-title .status")).to_contain_text("failed")
    await server.check_rows(page, "between")
    # An ended run is not followed, and no earlier event is sent again.
    assert await evaluate(page, "() => document.querySelector('cb-run').unfollow === undefined")
    begun = [httpx2.URL(url).params.get("after") for url in held.urls]
    assert all(one is None or int(one) >= before["sequence"] for one in begun)


async def test_a_list_includes_events_that_come_while_it_is_requested(server: PageServer) -> None:
    await server.start("older", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await server.open_page("runs")
    rows = page.get_by_role("row")
    await expect(rows.filter(has_text="older")).to_contain_text("paused")
    await expect(page.locator(".live .live")).to_be_visible()
    # Record the events that the list hears, and stop its own requests.
    await evaluate(
        page,
        """() => {
            const view = document.querySelector('cb-runs'), hear = view.hear.bind(view)
            window.heard = []
            clearTimeout(view.asking)
            view.asking = 0
            view.hear = (told) => {
                hear(told)
                window.heard.push(...told.filter((one) => one.event).map(({event}) => `${event.run} ${event.type}`))
            }
        }""",
    )
    answered, release = anyio.Event(), anyio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        answered.set()
        await release.wait()
        await route.fulfill(response=answer)

    await page.route("**/runs?*q=er*", hold)
    await page.get_by_label("Find runs").fill("er")
    await answered.wait()
    await server.resume("older")
    await server.start("newer")
    for run in ("older", "newer"):
        await until(lambda run=run: evaluate(page, "(one) => window.heard.includes(one)", f"{run} run.end"))
    release.set()
    for run in ("older", "newer"):
        await expect(rows.filter(has_text=run)).to_contain_text("failed")


async def test_missing_events_of_a_followed_run_are_requested(server: PageServer) -> None:
    await server.start("lacking", {**LOOP, "breakpoints": ["b"]}, end=False)
    page = await server.open_page("runs/lacking")
    await expect(page.locator(".run-title .status")).to_contain_text("paused")
    await expect(page.locator(".live .live")).to_be_visible()
    # Lose all further events but the last.
    await evaluate(
        page,
        """() => {
            const view = document.querySelector('cb-run'), hear = view.hear.bind(view)
            view.hear = (told) => hear(told.filter((one) => !one.event || one.event.type === 'run.end'))
        }""",
    )
    await server.resume("lacking")
    await expect(page.locator(".run-title .status")).to_contain_text("failed")
    await server.check_rows(page, "lacking")


async def test_an_unreadable_event_is_reported_once_and_the_others_are_shown(server: PageServer) -> None:
    log = server.connection.log
    created = Log("gapped", "holey").started(Outline([OutlineNode("a")]))
    for visit in range(1, 5):
        created.enter("a", visit)
        created.exit("a", iteration=visit)
    *first, lost, then, late, last = created.events[:8]
    subject = log.subjects.event(RunRef(TENANT, "gapped"), "holey", lost.type)

    async def publish_malformed(after: int, following: Sequence[Event]) -> int:
        """Publish a malformed message instead of an event, then events; return the last sequence."""
        acknowledged = await log.nc.jetstream().publish(subject, b'{"run": "gapped')
        assert acknowledged.seq > after
        return await server.append("gapped", following, acknowledged.seq)

    sequence = await publish_malformed(await server.append("gapped", first), [then])
    page = await server.open_page("nowhere")
    asked_for: list[str] = []

    async def few(route: Route) -> None:
        asked_for.append(route.request.url)
        await route.continue_(url=str(httpx2.URL(route.request.url).copy_merge_params({"limit": "2"})))

    await page.route("**/gapped/index?*", few)
    await go(page, server.url("runs/gapped"))
    missing = page.locator("cb-run > [role=status] .failure")
    await expect(missing).to_contain_text(f"Event {lost.n} cannot be read")
    await expect(page.locator(".live .live")).to_be_visible()
    await publish_malformed(sequence, [last])
    await expect(missing).to_contain_text(f"2 events cannot be read, from event {lost.n} on")
    await expect(page.locator(".where")).to_contain_text(f"of {last.n}")
    rows = await evaluate(page, "() => document.querySelector('cb-run').run.rows.map((row) => [row.n, row.type])")
    unread = (lost.n, late.n)
    assert rows == [[one.n, "unreadable" if one.n in unread else one.type] for one in created.events[: last.n]]
    assert len(asked_for) <= 2 * last.n


KEPT = """
const kept = window.kept = new Set(), {addEventListener, removeEventListener} = EventTarget.prototype
const lasts = (one, type) => one instanceof MediaQueryList || (one === window && type.startsWith('pointer'))
EventTarget.prototype.addEventListener = function (type, listener, how) {
  const self = this ?? window
  if (lasts(self, type)) {
    kept.add(listener)
    how?.signal?.addEventListener('abort', () => kept.delete(listener))
  }
  return addEventListener.call(self, type, listener, how)
}
window.ResizeObserver = class extends ResizeObserver {
  observe(element) { kept.add(this); super.observe(element) }
  disconnect() { kept.delete(this); super.disconnect() }
}
"""
"""Records listeners and observers that would outlive a view."""


async def test_a_run_view_that_is_left_keeps_no_listeners_or_observers(server: PageServer) -> None:
    await server.start("left-behind")
    page = await server.browser.page("about:blank", alone=True)
    await page.add_init_script(KEPT)
    await page.goto(server.url("definitions"))
    await expect(page.get_by_role("heading", name="Definitions")).to_be_visible()
    before = await evaluate(page, "() => window.kept.size")
    await evaluate(page, f"() => {{ history.pushState(null, '', '{server.url('runs/left-behind')}') }}")
    await evaluate(page, "() => dispatchEvent(new PopStateEvent('popstate'))")
    await expect(page.locator(".gnode").first).to_be_visible()
    await page.locator(".event-row").nth(2).hover()
    await page.mouse.down()
    assert await evaluate(page, "() => window.kept.size") > before
    await page.keyboard.press("g")
    await page.keyboard.press("d")
    await expect(page.get_by_role("heading", name="Definitions")).to_be_visible()
    assert await evaluate(page, "() => window.kept.size") == before
    await page.mouse.up()
