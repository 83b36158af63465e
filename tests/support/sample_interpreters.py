"""Plays for simulations: small workflows that act as the interpreters of the four languages do. Their ends do
not depend on when, or how often, their workers die.
"""

import datetime as dt
from typing import Any

from callboard.bus.effects import (
    Failure,
    Message,
    ModelRequest,
    Recall,
    ScriptedTools,
    Text,
    ToolOutput,
    ToolSpec,
    user,
)
from callboard.languages.language import Ask, End, Expired, Failed, Node, Ok, Settled, SignalArrived, Stage, Task
from callboard.lib.json_types import JSON

LOST = Failure(code="lost", type="cancellation")


def value(settled: Settled[Any] | None) -> Any:
    """The value of a task, or the code of its failure."""
    return settled.value if isinstance(settled, Ok) else settled and settled.cause.code


def after(instant: dt.datetime, seconds: float) -> dt.datetime:
    return instant + dt.timedelta(seconds=seconds)


async def effect(node: Node, slot: str, wait_s: float = 0, **request: Any) -> JSON:
    """One effect; returns its value or the code of its failure."""
    match await node.call(slot, "http", {"after": wait_s, "value": slot, **request}):
        case Ok(found):
            return found
        case Failed(error):
            return error.code


# -- a workflow: an agent with parallel tools, an evaluation that is retried, a routed cycle ---------------------------

AGENT_SCRIPT = {
    "turns": {
        "gather": [
            {"tool_calls": [{"tool": "search", "input": {"q": n}} for n in (1, 2, 3)]},
            {"data": {"found": 3}},
            {"data": {"found": 4}},
            {"tool_calls": [{"tool": "search", "input": {"q": 9}}]},
            {"data": {"found": 5}},
        ],
        "report": [{"text": "three"}, {"text": "five"}],
    },
    "routes": {"report": ["gather", "end"]},
    "tools": {"search": [{"output": {"hits": 1}}, {"error": "rate limited"}, {"output": {"hits": 3}}, {"output": {}}]},
}

SEARCH = ToolSpec(name="search", description="Search.", input_schema={"type": "object"})


async def agent(stage: Stage, node: Node, question: str, parts: list[Any]) -> JSON:
    """Model turns that each continue the one before, with tool calls in parallel between them."""
    async with node.toolbox([ScriptedTools([SEARCH])]) as opened:
        assert isinstance(opened, Ok)
        asked = Message("user", [Text(question), *parts])
        request = ModelRequest(system="Search.", messages=[asked], tools=opened.value)
        for turn in range(1, 5):
            reply = await node.turn(f"turn.{turn}", request)
            assert isinstance(reply, Ok)
            calls = reply.value.tool_calls
            if not calls:
                return reply.value.data
            tasks = [
                stage.spawn(node.tool(f"tool.{turn}.{i}", call.tool, call.input, id=call.id))
                for i, call in enumerate(calls)
            ]
            await stage.join(*tasks)
            outputs: list[Any] = [ToolOutput(call.id, of=node.key(f"tool.{turn}.{i}")) for i, call in enumerate(calls)]
            request = ModelRequest(base=node.key(f"turn.{turn}"), messages=[Message("user", outputs)])
    raise AssertionError("the agent never comes to an end")


async def workflow(stage: Stage) -> End:
    stage.record_sources({"gather.instruction": {"content": "Search.", "kind": "inline"}})
    reports: list[JSON] = []
    recalled: list[Any] = []
    for visit in range(1, 4):
        gather = stage.enter("gather", instruction="Search.")
        found = await agent(stage, gather, f"visit {visit}", recalled)
        if visit == 1:
            gather.retry("three are too few", preamble="Try again.")
            reply = await gather.turn("turn.1", ModelRequest(messages=[user("again")]))
            assert isinstance(reply, Ok)
            found = reply.value.data
        gather.exit("ok", {"data": found})
        recalled = [Recall(of=f"gather#{visit}", at="/result/data")]
        gather.route("report", "only path", 0)
        report = stage.enter("report")
        said = await report.turn("turn.1", ModelRequest(messages=[Message("user", recalled)]))
        assert isinstance(said, Ok)
        reports.append(said.value.text)
        where = await report.turn("route", ModelRequest(purpose="route", base=report.key("turn.1")))
        report.exit("ok", {"text": said.value.text})
        target = where.value.text if isinstance(where, Ok) else None
        report.route(str(target), "the model chose", 0)
        if target == "end":
            break
    return End("completed", reports[-1], {"reports": reports})


# -- a flow: a gather of frames that is decided early, with clean-up; a timeout over a retry ---------------------------


async def frame(stage: Stage, index: int) -> JSON:
    """A frame of the gather: two effects, and a clean-up that no cancellation enters."""
    node = stage.enter(f"main/fan-out[{index}]", "frame", node="fan-out")
    outcome = "cancelled"
    try:
        first = await effect(node, "first", index)
        second = await effect(node, "second", 3 * index)
        outcome = "ok"
        return [first, second, index]
    finally:
        async with stage.shield():
            tidied = await stage.within(after(stage.now(), 500), effect(node, "tidy", 1), node=node, slot="bound")
            assert isinstance(tidied, Ok)
        node.exit("ok" if outcome == "ok" else "cancelled", tidied.value)


async def flaky(stage: Stage) -> JSON:
    """Retried with a growing pause until the bound around it runs out."""
    for attempt in range(1, 50):
        node = stage.enter("main/flaky", "call")
        came = await effect(node, "call", 1, fail="flaky.down")
        node.exit("failed", came)
        await node.sleep("pause", after(stage.now(), 60 * attempt * (1 + node.random("jitter") / 10)), "retry")
    raise AssertionError("the bound has run out long ago")


async def flow(stage: Stage) -> End:
    main = stage.enter("main", "frame", input=stage.info.input)
    running: list[Task[JSON]] = [stage.spawn(frame(stage, index)) for index in range(4)]
    done: list[JSON] = []
    while len(done) < 2:
        first = await stage.first(*running)
        running.remove(first)
        done.append(value(first.settled))
    for task in running:
        stage.cancel(task, LOST, main)
    losers = [value(settled) for settled in await stage.join(*running)]
    bounded = await stage.within(after(stage.now(), 600), flaky(stage), node=main, slot="timeout")
    assert isinstance(bounded, Expired)
    first_read, second_read = main.wall_time("clock.1"), main.wall_time("clock.2")
    assert first_read <= second_read
    main.exit("ok", done)
    return End("completed", {"done": done, "losers": losers, "bounded": value(bounded.settled)})


# -- a playbook: a breakpoint, a question, a signal, a sleep over night ------------------------------------------------


async def playbook(stage: Stage) -> End:
    resumed = await stage.gate(None, "1")
    step = stage.enter("1", "step", name="Greet")
    async with step.question("ask", Ask("Who is it?", options=["Ada", "Bob"])) as question:
        answered = await question.answer()
        question.close("answered", answered.k, None)
    if answered.user_response != "Ada":
        step.warn("enum.mismatch", "not an option", ["who"])
    step.progress("asked", milestone="greeting")
    step.exit("ok", {"output": answered.user_response})
    night = stage.enter("2", "step")
    await night.sleep("wait", after(night.entered_at, 36_000), "wait")
    arrived = await night.signal("signal", "morning")
    night.exit("ok", arrived.data)
    twice: list[JSON] = []
    for _ in range(2):
        repeated = stage.enter("3", "step")
        twice.append([repeated.iteration, await effect(repeated, "prompt", 1)])
        repeated.exit("ok")
    again = stage.enter("4", "step")
    after_step = await stage.gate(again, "4", "after")
    again.exit("skipped", after_step.variables if after_step else None)
    output = {
        "who": answered.user_response,
        "variables": resumed.variables if resumed else None,
        "data": arrived.data,
        "twice": twice,
    }
    return End("completed", output)


# -- a graph: nodes with a timeout each, a person with a deadline, a caller's tool -------------------------------------


async def approval(stage: Stage, node: Node) -> str:
    """Ask until an answer can be classified; the first that can decides."""
    async with node.question("ask", Ask("Approve?", "approval")) as question:
        while True:
            answered = await question.answer()
            request = ModelRequest(purpose="classify", messages=[user(str(answered.user_response))])
            label = await node.turn(f"classify.{answered.k}", request)
            assert isinstance(label, Ok)
            if label.value.text != "irrelevant":
                question.close("answered", answered.k, label.value.text)
                return label.value.text


APPROVAL_SCRIPT = {"turns": {"approve": [{"text": "irrelevant"}, {"text": "approved"}]}}


async def waits(stage: Stage, node: Node) -> str:
    arrived: SignalArrived = await node.signal("signal", "never sent")
    return arrived.name


async def graph(stage: Stage) -> End:
    approve = stage.enter("approve", due=after(stage.now(), 86_400))
    decided = await stage.within(
        after(approve.entered_at, 86_400), approval(stage, approve), node=approve, slot="timeout"
    )
    approve.exit("ok", value(decided) if isinstance(decided, Ok) else None)
    fetch = stage.enter("fetch")
    came: JSON = None
    for attempt in range(1, 4):
        came = await effect(fetch, "http", 1, **({"fail": "http.503"} if attempt < 3 else {}))
        if came == "http":
            break
        fetch.retry(str(came), delay=30.0)
        await fetch.sleep("pause", after(stage.now(), 30), "retry")
    fetch.exit("ok", came)
    loops = [stage.enter(f"loop[{i}]/body", node="body") for i in range(3)]
    bodies = await stage.join(*[stage.spawn(effect(node, "run", 2 * i)) for i, node in enumerate(loops)])
    for node in loops:
        node.exit("ok")
    called = await stage.root.tool("tool.0.0", "caller_tool", {"x": 1}, via="caller")
    wait = stage.enter("wait")
    first = await stage.within(after(wait.entered_at, 600), waits(stage, wait), node=wait, slot="timeout")
    wait.exit("skipped" if isinstance(first, Expired) else "ok")
    output = {
        "decided": value(decided) if isinstance(decided, Ok) else "expired",
        "bodies": [value(body) for body in bodies],
        "called": called.value if isinstance(called, Ok) else called.error.code,
        "waited": isinstance(first, Ok),
    }
    return End("completed", output, {"status": "SUCCESS"})


# -- ends before the end -----------------------------------------------------------------------------------------------


async def cancelled(stage: Stage) -> End:
    """Cancelled from outside while effects are running; cleans up below three levels of tasks."""
    top = stage.enter("top")

    async def work(index: int) -> None:
        node = stage.enter(f"work[{index}]", node="work")
        try:
            await stage.join(stage.spawn(frame(stage, 2 * index)), stage.spawn(frame(stage, 2 * index + 1)))
            await effect(node, "long", hang=True)
        finally:
            async with stage.shield():
                await effect(node, "undo", 1)
            node.exit("cancelled")

    try:
        await effect(top, "begin", 1)
        tasks = [stage.spawn(work(index)) for index in range(2)]
        await effect(top, "now", 2, tell="cancel")
        await stage.join(*tasks)
    finally:
        async with stage.shield():
            await top.sleep("settle", after(stage.now(), 3600))
        top.exit("cancelled")
    return End("completed")


async def killed(stage: Stage) -> End:
    """Killed while effects are running and a question is open."""
    top = stage.enter("top")
    stage.spawn(frame(stage, 1))
    async with top.question("ask", Ask("Who?")) as question:
        await effect(top, "now", 1, tell="kill", hang=True)
        await question.answer()
    return End("completed")


async def stuck(stage: Stage) -> End:
    """An interpreter with a fault: its tasks wait for each other."""
    top = stage.enter("top")
    tasks: list[Task[None]] = []

    async def waiting(other: int) -> None:
        inner = stage.enter(f"inner[{other}]")
        await effect(inner, "one", other)
        await stage.join(tasks[other])

    tasks.extend(stage.spawn(waiting(1 - index)) for index in range(2))
    await stage.join(*tasks)
    top.exit("ok")
    return End("completed")


async def broken(stage: Stage) -> End:
    """An interpreter with a fault: it raises in the midst of its tasks."""
    top = stage.enter("top")
    stage.spawn(frame(stage, 5))

    async def fault() -> None:
        inner = stage.enter("inner")
        try:
            await effect(inner, "one", 2)
            raise LookupError("no such edge")
        finally:
            inner.progress("leaving")

    await stage.join(stage.spawn(fault()))
    top.exit("ok")
    return End("completed")
