"""Runs of all languages whose worker processes are killed, with the commands that they wait for."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import anyio

from callboard.bus import events as ev
from callboard.bus.commands import Cancel
from callboard.bus.events import Event
from callboard.bus.log.recorded import Recorded
from callboard.bus.log.successors import SUCCESSOR_KEY, successor_of
from callboard.bus.run_ids import child_id
from callboard.languages import registry
from callboard.runtime.client.client import Client
from tests.support import killed_workflows
from tests.support.flows import call, caught, cleanup, failing, mock, retry, returned, subflow, timeout
from tests.support.flows import flow as flow_of
from tests.support.graphs import flow, graph, node, timeless, webhook
from tests.support.places import TESTS
from tests.support.playbook_cases import block, declared, doc, steps, sub
from tests.support.simulation import World
from tests.support.worker_interpreters import play
from tests.support.worker_processes import attend, say, until
from tests.support.workflows import document, scripted_skill


@dataclass(frozen=True)
class Member:
    """The log of a run of a family. ``keys`` lead to it: from a run to its child runs and to its successor."""

    keys: tuple[str, ...]
    recorded: list[Recorded]

    def id(self, run: str) -> str:
        """The id of this member in the family of another run."""
        return reduce(child_id, self.keys, run)


async def read_family(client: Client, run: str, recorded: list[Recorded], keys: tuple[str, ...] = ()) -> list[Member]:
    """Wait for the ends of the child runs and successors of a run; return the logs of all, that of the run first."""
    following = [item.event.key for item in recorded if item.event.type == ev.ChildStart.type]
    following += [SUCCESSOR_KEY] if successor_of(recorded[-1].event) else []
    found = [Member(keys, recorded)]
    for key in following:
        other = child_id(run, key)
        found += await read_family(client, other, await attend(client, other), (*keys, key))
    return found


@dataclass(frozen=True)
class Case:
    """A run, the commands that it is sent, and event types in its log, so that a sweep covers them.

    It is cancelled when ``cancelled_at`` holds for an event of the run, or of the member of its family to which
    ``cancelled_in`` leads. ``ending`` returns the part of its end that is the same in every run.
    """

    name: str
    start: dict[str, Any]
    contains: Sequence[str]
    world: World = field(default_factory=World)
    cancelled_at: Callable[[Event], bool] | None = None
    cancelled_in: tuple[str, ...] = ()
    ending: Callable[[ev.RunEnd], Any] = lambda end: (end.status, end.output, end.results, end.error, end.usage)

    def message(self, run_id: str) -> dict[str, Any]:
        return {"model": "scripted", "script": {}, **self.start, "run_id": run_id}

    async def attend(self, client: Client, run_id: str) -> list[Member]:
        """Follow a run and its family to their ends, and send the commands that they wait for."""
        recorded: list[Recorded] = []
        async with anyio.create_task_group() as tasks:
            if self.cancelled_at is not None:
                tasks.start_soon(self._cancel, client, run_id, self.cancelled_at)
            recorded = await attend(client, run_id, self.world)
        return await read_family(client, run_id, recorded)

    async def _cancel(self, client: Client, run_id: str, at: Callable[[Event], bool]) -> None:
        await until(client, Member(self.cancelled_in, []).id(run_id), at, "the event at which it is cancelled")
        await say(client, run_id, "cancel", Cancel(reason="enough", message="enough"))


def started(language: str, source: Any, **more: Any) -> dict[str, Any]:
    text = source if isinstance(source, str) else json.dumps(source)
    return {"definition": {"language": language, "source": text}, **more}


# -- a workflow: a scripted tool, one of a process and one of an MCP server; a retry; a route --------------------------

_FOUND = {"type": "object", "properties": {"found": {"type": "integer"}}, "required": ["found"]}
_ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "python": "tests.fixtures.tools.functions:add",
}
_SCALES = {"command": sys.executable, "args": ["-S", str(TESTS / "fixtures" / "tools" / "mcp_scales.py")]}
WORKFLOW = Case(
    "workflow",
    started(
        "workflow",
        document(
            {
                "gather": {
                    "skills": ["desk", "scales"],
                    "output": _FOUND,
                    "eval": [
                        {"name": "e", "kind": "value", "rule": {"output_matches": [{"path": "found", "equals": 3}]}},
                        {"name": "sound", "kind": "judge", "rubric": "Is it sound?"},
                    ],
                    "retry": {"max": 1, "instruction": {"reflect": "What was forgotten?"}},
                },
                "check": {},
                "report": {},
            },
            [("gather", "check", "something is unclear"), ("gather", "report", "all is clear"), ("check", "report")],
        ),
        input={},
        options={
            "skills": [
                {**scripted_skill("desk", "search"), "tools": [_ADD, *scripted_skill("desk", "search")["tools"]]},
                scripted_skill("scales", tools=[], mcp=_SCALES),
            ]
        },
        script={
            "turns": {
                "gather": [
                    {
                        "tool_calls": [
                            {"tool": "add", "input": {"a": 1, "b": 2}},
                            {"tool": "search", "input": {"q": "timeout"}},
                            {"tool": "weigh", "input": {"what": "fig"}},
                        ],
                        "usage": {"input_tokens": 10, "output_tokens": 3},
                    },
                    {"data": {"found": 1}},
                    {"tool_calls": [{"tool": "weigh", "input": {"what": "plum"}}]},
                    {"data": {"found": 3}},
                ],
                "check": [{"text": "clear now"}],
                "report": [{"text": "three", "usage": {"input_tokens": 7, "output_tokens": 1}}],
            },
            "judges": {"gather/sound": ["no", "yes"]},
            "asks": {"gather": ["You forgot to weigh the plum."]},
            "routes": {"gather": ["check"]},
            "tools": {"search": [{"output": {"hits": 3}}]},
        },
    ),
    ("tool.result", "model.result", "node.retry", "effect.result", "route"),
)

# -- flows: branches with clean-ups of which one fails, a bound, retries; frames that are cancelled --------------------


def _cleaned(target: dict[str, Any]) -> dict[str, Any]:
    """A subflow of one call and a clean-up that takes a moment."""
    return subflow({"in": call(target), "done": returned()}, middleware=[cleanup(mock(delay="PT0.05S"))])


_FAILS_FOR_TWO = mock(delay="PT0.1S", failure="{{ frame.input == 2.0 ? {'code': 'Order.Empty'} : null }}")
_FAN = {
    "action": "Gather",
    "over": [1, 2, 3, 4],
    "call": {"flow": _cleaned(_FAILS_FOR_TWO)},
    "completion": {"successes": 3},
    "assign": {"gathered": "{{ step.results.map(r, r.type == 'success' ? r.value : r.code) }}"},
    "next": "bounded",
}
_BACKOFF = {"match": {"codes": ["*"]}, "attempts": 2, "backoff": {"initial": "PT0.05S", "rate": 2}}
_BOUNDED = call(
    {"flow": _cleaned(mock(delay="PT60S"))},
    "retried",
    middleware=[timeout("PT0.3S"), cleanup(mock(delay="PT0.05S"))],
    catch=[caught("retried", "Provider.Middleware.Timeout.*")],
)
_RETRIED = call(
    failing("Store.Busy"),
    middleware=[{**retry(2), "onEntry": {"with": {"policies": [_BACKOFF]}}}],
    catch=[caught("told")],
)
FLOW = Case(
    "flow",
    started(
        "flow",
        flow_of(
            {
                "fan": _FAN,
                "bounded": _BOUNDED,
                "retried": _RETRIED,
                "told": returned("{{ [vars.gathered, failure.code] }}"),
                "done": returned(),
            },
            parameters={"type": "object", "properties": {"gathered": {"default": []}}},
            middleware=[cleanup(mock())],
        ),
    ),
    ("effect.result", "effect.cancelled", "timer.fired"),
)
_NAP = {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
_FRAMES = _cleaned({"flow": subflow(_NAP, middleware=[cleanup(failing("Room.Locked"))])})
CANCELLED_FLOW = Case(
    "cancelled flow",
    started(
        "flow",
        flow_of({"work": call({"flow": _FRAMES}), "done": returned()}, middleware=[cleanup(mock(delay="PT0.05S"))]),
    ),
    ("cancel.requested", "effect.cancelled", "effect.result"),
    cancelled_at=lambda event: event.type == ev.TimerSet.type,
)

# -- a graph: a fan-out of agents with a tool, a person with a deadline, a delay ---------------------------------------

_OF_THE_RUN = frozenset({"id", "execution_id", "activation_id", "parent_activation_id", "interaction_id"})
"""Members of an Execution that are made of the run's id."""


def _graph_ending(end: ev.RunEnd) -> Any:
    """An end without its times, and without members that are made of the run's id."""
    return end.status, end.usage, timeless(end.results, _OF_THE_RUN), timeless(end.output, _OF_THE_RUN)


_USAGE = {"input_tokens": 3, "output_tokens": 1}
GRAPH = Case(
    "graph",
    started(
        "graph",
        graph(
            [
                webhook(),
                flow("each", "LOOP", loop_type="for_each", array_path="body", iteration_variable="message"),
                node("write", "AI_AGENT", "ANTHROPIC_CLAUDE", ["search"], model="claude"),
                node("search", "TOOL", "NOTION_MCP_TOOL"),
                node(
                    "approve",
                    "HUMAN_IN_THE_LOOP",
                    "IN_APP_APPROVAL",
                    interaction_type="approval",
                    message="Send?",
                    timeout_seconds=7200,
                ),
                flow("pause", "DELAY", duration_seconds=0.3),
            ],
            "t -> each",
            "each.iteration -> write",
            "write -> approve",
            "approve.confirmed -> pause",
        ),
        input={"body": ["a", "b"]},
        options={"parallel": True},
        script={
            "turns": {
                "each[0]/write": [
                    {"tool_calls": [{"tool": "notion_search", "input": {"q": "a"}}]},
                    {"text": "One.", "usage": _USAGE},
                ],
                "each[1]/write": [{"text": "Two.", "usage": _USAGE}],
            },
            "tools": {"notion_search": [{"output": {"hits": 1}}]},
        },
    ),
    ("human.closed", "timer.fired", "tool.result", "model.result", "route"),
    World(answers={"approve#1.1!ask": [{"approved": True}]}),
    ending=_graph_ending,
)

# -- a playbook: three questions, two breakpoints, a branch and a tool -------------------------------------------------

_AT_LENGTH = sub("3a", "At length.\n@output(draft)") + "\n\n" + sub("3b", '@elicit(confirm, "Good?")')
PLAYBOOK = Case(
    "playbook",
    started(
        "playbook",
        doc(
            declared("- `topic` (string)"),
            steps(
                'Outline {{topic}}.\n@elicit(input, "For whom?")\n'
                '@output(outline: enum, "short", "long", extract:"form")',
                '@tool(desk, search, {"q": "{{topic}}", "for": "{{__elicit_step_1}}"})\n@output(found)',
                "Write about {{found}}.\n\n"
                + block(('if outline == "long"', _AT_LENGTH), ("else", sub("3c", "In short."))),
                '@elicit(select, "Where to?", "mail", "web")\n@output(channel)',
                "@prompt({{draft}})\nFor {{channel}}.",
            ),
            "## ARTIFACTS\n\ntype: markdown",
        ),
        input={"topic": "tides"},
        breakpoints=[2, 3],
        script={
            "turns": {
                "1": [{"text": 'As JSON: {"form": "long"}', "usage": {"input_tokens": 9, "output_tokens": 3}}],
                "3a": [{"text": "At great length."}],
                "5": [{"text": "Finished."}],
            },
            "tools": {"search": [{"output": {"hits": 3}}]},
        },
    ),
    ("human.closed", "run.resumed", "tool.result", "model.result", "route"),
    World(
        answers={"1#1.1!ask": ["children"], "3/3b#1.1!ask": [True], "4#1.1!ask": ["web"]},
        variables={"3": {"seen": "three"}},
    ),
)

# -- Python: a timer, a signal, a child run that continues as another run ----------------------------------------------

PYTHON = Case(
    "python",
    started("python", {"python": f"{killed_workflows.__name__}:waiting"}),
    ("timer.fired", "signal.received", "child.end", "effect.result"),
    World(signals={"go": 7}),
)

# -- stopped runs ------------------------------------------------------------------------------------------------------

CANCELLED = Case(
    "cancelled",
    play("unwinds", ""),
    ("cancel.requested", "effect.cancelled"),
    cancelled_at=lambda event: event.key == "endless[1]#1.1!long",
)
CANCELLED_PARENT = Case(
    "cancelled parent",
    play("keeps", "", {"child": {"hang": True}}),
    ("cancel.requested", "effect.cancelled"),
    cancelled_at=lambda event: event.key == "work#1.1!do",
    cancelled_in=("keep[0]#1.1!call",),
)

# Worker processes are forked after an import of this module, and need not read again what it has read.
for _case in (WORKFLOW, FLOW, GRAPH, PLAYBOOK):
    _definition = _case.start["definition"]
    registry.language(_definition["language"]).parse(_definition["source"])

CASES = (WORKFLOW, FLOW, CANCELLED_FLOW, GRAPH, PLAYBOOK, PYTHON, CANCELLED, CANCELLED_PARENT)
