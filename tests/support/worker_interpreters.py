"""Definitions for the worker processes of the tests: plays that wait, ask and are cancelled, and a real workflow.

The plays are the language ``play``, which a worker process registers beside the real ones. They use what
workflows do not: timers, signals, questions, clean-up. Their ends do not depend on when their workers die.

Effects of kind ``code`` are carried out by `tests.support.worker_process`: ``until`` waits for a file to appear,
``after`` for some seconds, ``hang`` without end; then the effect returns ``value``.
"""

import datetime as dt
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from callboard.languages.language import Ask, Cancelled, Continuation, End, Failed, Node, Ok, Settled, Stage
from callboard.lib.json_types import JSON
from tests.support import family_interpreters as deployments
from tests.support.run_harness import Interpreter, PlayLanguage
from tests.support.workflows import document


async def effect(node: Node, slot: str, **request: Any) -> JSON:
    match await node.call(slot, "code", {"value": slot, **request}):
        case Ok(value):
            return value
        case Failed(error):
            return error.code


def value(settled: Settled[Any] | None) -> Any:
    return settled.value if isinstance(settled, Ok) else settled and settled.cause.code


def soon(stage: Stage, seconds: float) -> dt.datetime:
    return stage.now() + dt.timedelta(seconds=seconds)


@contextmanager
def entered(stage: Stage, path: str) -> Generator[Node]:
    """A node that is left when its block ends, or is cancelled."""
    node = stage.enter(path)
    try:
        yield node
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    node.exit("ok")


async def waits(stage: Stage) -> End:
    """Parks three times: for a timer, for a person, for a signal; then races parallel work against a bound."""
    given: dict[str, Any] = stage.info.input or {}
    with entered(stage, "sleep") as sleep:
        await sleep.sleep("nap", soon(stage, given.get("sleep_s", 0.5)))
    with entered(stage, "person") as person:
        async with person.question("ask", Ask("Who is it?")) as question:
            answered = await question.answer()
            question.close("answered", answered.k, None)
    with entered(stage, "signal") as signal:
        arrived = await signal.signal("wait", "go")
    with entered(stage, "work") as work:
        both = stage.join(*(stage.spawn(effect(work, f"part.{i}")) for i in range(2)))
        raced = await stage.within(soon(stage, 3600), both, node=work, slot="bound")
    parts = [value(part) for part in raced.value] if isinstance(raced, Ok) else None
    return End("completed", [answered.user_response, arrived.data, parts])


async def unwinds(stage: Stage) -> End:
    """Two effects that never end, below a clean-up with an effect; meant to be cancelled."""
    top = stage.enter("top")

    async def endless(index: int) -> None:
        node = stage.enter(f"endless[{index}]", node="endless")
        try:
            await effect(node, "long", hang=True)
        finally:
            async with stage.shield():
                await effect(node, "undo")
            node.exit("cancelled")

    tasks = [stage.spawn(endless(index)) for index in range(2)]
    try:
        await stage.join(*tasks)
    finally:
        async with stage.shield():
            await effect(top, "tidy")
        top.exit("cancelled")
    return End("completed")


async def steps(stage: Stage) -> End:
    """As many effects one after the other as the input says, each as the input says."""
    given: dict[str, Any] = stage.info.input
    done: list[JSON] = []
    for i in range(given["count"]):
        with entered(stage, f"step[{i}]") as node:
            done.append(await effect(node, "do", **{**given.get("each", {}), "value": i}))
    return End("completed", done)


async def gated(stage: Stage) -> End:
    """Two effects with a gate before each, so that a run can pause between them; the first waits as its input says."""
    given: dict[str, Any] = stage.info.input
    for i, request in enumerate((given, {})):
        await stage.gate(None, f"step[{i}]")
        with entered(stage, f"step[{i}]") as node:
            await effect(node, "do", **request)
    return End("completed", "through")


async def links(stage: Stage) -> End:
    """Take signals, some per run, and perform an effect with each; continue as a new run until all have come."""
    given: dict[str, Any] = stage.info.input
    taken: list[JSON] = given.get("taken", [])
    for i in range(given["each"]):
        with entered(stage, f"take[{i}]") as node:
            arrived = await node.signal("item", "item")
            taken = [*taken, await effect(node, "do", value=arrived.data)]
    if len(taken) < given["total"]:
        return End("completed", continuation=Continuation({**given, "taken": taken}))
    return End("completed", taken)


INTERPRETERS: Mapping[str, Interpreter] = {
    "waits": waits,
    "unwinds": unwinds,
    "steps": steps,
    "gated": gated,
    "links": links,
    **deployments.INTERPRETERS,
}

LANGUAGE = PlayLanguage(INTERPRETERS)


def play(name: str, run_id: str, input: JSON = None) -> dict[str, Any]:
    """The start message of a play."""
    definition = {"language": "play", "source": name}
    return {"definition": definition, "input": input, "run_id": run_id, "model": "scripted", "script": {}}


# -- a workflow: tools in parallel, one of them in a process; an evaluation that is retried; a routed way --------------

_DESK = {
    "id": "desk",
    "name": "Desk",
    "description": "Adds and searches.",
    "category": "general",
    "tools": [
        {
            "name": "add",
            "description": "Add two numbers.",
            "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
            "python": "tests.fixtures.tools.functions:add",
        },
        {"name": "search", "description": "Search.", "input_schema": {"type": "object"}},
    ],
}

_FOUND = {"type": "object", "properties": {"found": {"type": "integer"}}, "required": ["found"]}

_TRIAGE = document(
    {
        "gather": {
            "skills": ["desk"],
            "output": _FOUND,
            "eval": [
                {"name": "enough", "kind": "value", "rule": {"output_matches": [{"path": "found", "equals": 3}]}},
            ],
            "retry": {"max": 1, "instruction": "Look again."},
        },
        "check": {},
        "report": {},
    },
    [("gather", "check", "something is unclear"), ("gather", "report", "all is clear"), ("check", "report")],
)

_SCRIPT = {
    "turns": {
        "gather": [
            {
                "tool_calls": [
                    {"tool": "add", "input": {"a": 1, "b": 2}},
                    {"tool": "search", "input": {"q": "timeout"}},
                ],
                "usage": {"input_tokens": 10, "output_tokens": 3},
            },
            {"data": {"found": 1}},
            {"data": {"found": 3}},
        ],
        "check": [{"text": "clear now"}],
        "report": [{"text": "three", "usage": {"input_tokens": 7, "output_tokens": 1}}],
    },
    "routes": {"gather": ["check"]},
    "tools": {"search": [{"output": {"hits": 3}}]},
}


def triage(run_id: str) -> dict[str, Any]:
    """The start message of the workflow."""
    return {
        "definition": {"language": "workflow", "source": json.dumps(_TRIAGE)},
        "input": {},
        "run_id": run_id,
        "model": "scripted",
        "script": _SCRIPT,
        "options": {"skills": [_DESK]},
    }
