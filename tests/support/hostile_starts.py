"""Starts that ask too much: definitions and messages made to keep a worker busy, and the end of each.

They are made when they are asked for. ``ends`` is the code of a problem, if the start is to be refused, or that of the
run's error; an empty one is a run that completes, which a naive implementation would take minutes for.
"""

import json
from asyncio import Queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
from nats.aio.msg import Msg

from callboard.bus.commands import REPLY_HEADER
from callboard.bus.events import RunEnd, payload_of
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.connection import Connection
from tests.support.flow_cases import shaper
from tests.support.flows import call, cleanup, flow, mock, returned, subflow
from tests.support.workflows import document

FAULT = "System.ExpressionEvaluationError"
VIOLATED = "System.ParameterValidationFailed"
KB = 1024

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Hostile:
    """A start, and how it ends."""

    ends: str
    message: Callable[[], dict[str, Any] | bytes]


def start(source: Any, **fields: Any) -> dict[str, Any]:
    text = source if isinstance(source, str) else json.dumps(source)
    return {"definition": {"source": text}, "model": "scripted", "script": {"default": {"text": "done"}}, **fields}


# -- texts that are hard to read ---------------------------------------------------------------------------------------


def _yaml(size: int) -> str:
    nodes = "\n".join(f"  n{n}: {{name: N{n}, instruction: Do it}}" for n in range(size))
    edges = "\n".join(f"  - {{from: n{n}, to: n{n + 1}}}" for n in range(size - 1))
    return f"id: w\nname: W\nentry: n0\nnodes:\n{nodes}\nedges:\n{edges}\n"


def _aliases() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join([*lines, "nodes: {}", "entry: a"])


TEXTS: dict[str, Hostile] = {
    "blank lines without end": Hostile("UNKNOWN_LANGUAGE", lambda: start("\n" * 400 * KB + "x")),
    "blanks without end": Hostile("PARSE", lambda: start(" " * 700 * KB + "x: [")),
    "a YAML of thousands of lines": Hostile("PARSE", lambda: start(_yaml(6_000))),
    "aliases of aliases": Hostile("PARSE", lambda: start(_aliases())),
    "brackets within brackets": Hostile("PARSE", lambda: start("a: " + "[" * 5_000)),
    "objects within objects": Hostile("PARSE", lambda: start('{"a":' * 5_000)),
    "an array of numbers": Hostile("PARSE", lambda: start("[" + "1," * 300_000 + "1]")),
    "braces that open and never close": Hostile("", lambda: start(flow({"r": returned("{{ " * 200_000)}))),
    "quotes that open and never close": Hostile(
        "EXPRESSION", lambda: start(flow({"r": returned("{{ " + "'" * 300_000 + " }}")}))
    ),
    "headings without end": Hostile("TOO_LARGE", lambda: start("# T\n\n## STEP 1: A\n\nDo.\n\n" + "##\n" * 200_000)),
    "text that is no JSON": Hostile("start.nesting", lambda: b"[" * 900 * KB),
    "fields that nobody knows": Hostile(
        "start.unknown_field", lambda: {**start("x"), **{f"field {n}": n for n in range(40_000)}}
    ),
    "an input within an input": Hostile("start.nesting", lambda: b'{"input":' + b"[" * 900 + b"]" * 900 + b"}"),
}

# -- definitions that are hard to check --------------------------------------------------------------------------------


def _edges_to_nowhere() -> dict[str, Any]:
    nodes: dict[str, Any] = {f"some long name of a node {n:05}": {} for n in range(3_000)}
    return document(
        nodes, [(f"some long name of a node {n:05}", f"some long mane of a node {n:05}") for n in range(3_000)]
    )


def _steps_to_nowhere() -> dict[str, Any]:
    names = _names(2_000, "step")
    return flow({name: {"action": "Pass", "next": name.replace("name", "mane")} for name in names})


def _unknown_words() -> dict[str, Any]:
    words = " + ".join(f"unknown_name_{n}.member + unknown_function_{n}()" for n in range(1_500))
    return flow({"r": returned(f"{{{{ {words} }}}}")})


def _long_names() -> dict[str, Any]:
    nodes: dict[str, Any] = {"a" * 10_000 + str(n): {} for n in range(15)}
    return document(nodes, [("a" * 10_000 + str(n), "a" * 5_000 + "b" * 5_000 + str(n)) for n in range(10)])


def _parameters(count: int) -> dict[str, Any]:
    properties = {f"p{n}": {"type": "string", "minLength": 1} for n in range(count)}
    return flow({"r": returned(1)}, parameters={"type": "object", "properties": properties})


def _patterns() -> dict[str, Any]:
    properties = {f"p{n}": {"pattern": f"(?i)(ä|ö|\\pL){{{100 + n}}}"} for n in range(100)}
    return flow({"r": returned(1)}, parameters={"type": "object", "properties": properties})


def _flows_in_flows() -> dict[str, Any]:
    inner = subflow({"r": returned(1)})
    for _ in range(60):
        inner = subflow({"c": call({"flow": inner}, "r"), "r": returned()})
    return flow({"c": call({"flow": inner}, "r"), "r": returned()})


def _chain_of_calls() -> dict[str, Any]:
    """Each flow calls the next one twice: 2^60 ways through them."""
    flows = {
        f"f{n}": subflow(
            {"a": call({"flow": f"f{n + 1}"}, next="b"), "b": call({"flow": f"f{n + 1}"}), "done": returned()}
        )
        for n in range(60)
    }
    flows["f60"] = subflow({"done": returned(1)})
    return flow({"r": returned(1), "c": call({"flow": "f0"}, next="r")}, flows=flows) | {"entrypoint": "r"}


def _skill(number: int) -> dict[str, Any]:
    return {"id": f"s{number}", "name": "S", "description": "d", "category": "general"}


DEFINITIONS: dict[str, Hostile] = {
    "edges to nodes that are not there": Hostile("UNKNOWN_EDGE_TARGET", lambda: start(_edges_to_nowhere())),
    "steps to steps that are not there": Hostile("UNKNOWN_STEP", lambda: start(_steps_to_nowhere())),
    "names and functions that are not there": Hostile(FAULT, lambda: start(_unknown_words())),
    "names as long as pages": Hostile("UNKNOWN_EDGE_TARGET", lambda: start(_long_names())),
    "a schema of thousands of members": Hostile("", lambda: start(_parameters(4_000))),
    "a schema that is too much": Hostile("PARAMETERS", lambda: start(_parameters(14_000))),
    "patterns that are large once they are compiled": Hostile("PARAMETERS", lambda: start(_patterns())),
    "flows within flows": Hostile("", lambda: start(_flows_in_flows())),
    "flows that call each other in all ways": Hostile("", lambda: start(_chain_of_calls())),
    "an expression of parentheses": Hostile(
        "EXPRESSION", lambda: start(flow({"r": returned("{{ " + "(" * 40_000 + "1" + ")" * 40_000 + " }}")}))
    ),
    "an expression of terms": Hostile(FAULT, lambda: start(flow({"r": returned("{{ 1" + " + a.b" * 14_000 + " }}")}))),
    "expressions by the thousand": Hostile(
        "", lambda: start(flow({"r": returned([f"{{{{ {n}.0 + 2.0 }}}}" for n in range(8_000)])}))
    ),
    "skills of one name": Hostile(
        "DUPLICATE_SKILL",
        lambda: start(document({"a": {}}), options={"skills": [{**_skill(1), "instruction": "x"}] * 6_000}),
    ),
    "breakpoints that are not there": Hostile(
        "UNKNOWN_BREAKPOINT", lambda: start(document({"a": {}}), breakpoints=[f"b{n}" for n in range(60_000)])
    ),
    "inputs that are not there": Hostile(
        "", lambda: start(document({"a": {}}, inputs=dict.fromkeys(_names(300, "known input"), _TEXT)), input=_given())
    ),
}

_TEXT = {"type": "string"}


def _names(count: int, words: str) -> list[str]:
    return [f"{words} of a long name {n:05}" for n in range(count)]


def _given() -> dict[str, Any]:
    return dict.fromkeys(_names(10_000, "given input"), "x")


# -- expressions that are hard to evaluate -----------------------------------------------------------------------------

DATA: dict[str, Any] = {
    "numbers": list(range(20_000)),
    "lists": [[n] for n in range(20_000)],
    "square": [[1] * 400] * 400,
    "text": "a" * 100_000,
}


def evaluating(expression: str) -> dict[str, Any]:
    open_ = {"type": "object", "additionalProperties": True}
    # Only the variables that it names: to bind and record the others takes longer than most expressions.
    named = {name: value for name, value in DATA.items() if f"vars.{name}" in expression}
    return start(flow({"r": returned(f"{{{{ {expression} }}}}")}, parameters=open_), arguments=named)


EXPRESSIONS: dict[str, Hostile] = {
    expression: Hostile(ends, lambda expression=expression: evaluating(expression))
    for expression, ends in {
        "vars.lists.distinct().size()": "",
        "vars.lists.all(i, i in vars.lists)": "",
        "sets.equivalent(vars.lists, vars.lists)": "",
        "vars.square == vars.square": "",
        "vars.square.flatten().size()": "",
        "vars.numbers.all(i, vars.numbers.all(j, true))": FAULT,
        "vars.numbers.map(i, vars.numbers.map(j, i * j)).size()": FAULT,
        "vars.numbers.all(i, vars.numbers.sort().size() > 0)": FAULT,
        "vars.numbers.map(i, vars.text + string(i)).size()": FAULT,
        "vars.numbers.all(i, !vars.text.contains('b' + vars.text))": FAULT,
        "vars.text.lastIndexOf('b' + vars.text)": "",
        "double(vars.text.replace('a', '1') + 'x')": FAULT,
        "base64.decode(vars.text.replace('a', '\\n') + '*').size()": FAULT,
        "vars.text.replace('a', 'ab').matches('.*a.{999}c')": FAULT,
        "vars.numbers.exists(i, 'x'.matches(string(i) + '{200}'))": FAULT,
        "vars.numbers.map(i, now().getHours(string(i)))": FAULT,
        "vars.numbers.map(i, wallTime()).size()": FAULT,
        "lists.range(1000).map(i, vars.text)": FAULT,
        "[lists.range(1000)]" + ".map(x, [x, x])" * 30: FAULT,
        "fromJson('[' + vars.text.replace('a', '1,') + '1]').size()": "",
    }.items()
}

# -- flows that are hard to execute ------------------------------------------------------------------------------------

HEAVY = "lists.range(40000).filter(i, i > 0 && i < 5).size()"
"""Some ten milliseconds; a step may be made of many."""


def _passing(output: Any, turns: int) -> dict[str, Any]:
    steps = {f"s{n}": {"action": "Pass", "output": output, "next": f"s{n + 1}"} for n in range(turns)}
    return flow({**steps, f"s{turns}": returned(1)}, parameters={"type": "object", "additionalProperties": True})


def _matching() -> dict[str, Any]:
    cases = [{"when": f"{{{{ {HEAVY} == {n} + 100 }}}}", "next": "r"} for n in range(20)]
    return flow({"m": {"action": "Match", "cases": cases, "default": {"next": "r"}}, "r": returned(1)})


def _stacked() -> dict[str, Any]:
    heavy = {"when": f"{{{{ {HEAVY} > 3 }}}}"}
    return flow({"c": call(mock(value=1), "r", middleware=[shaper(heavy, onSuccess=heavy)] * 10), "r": returned()})


def _fanned_out() -> dict[str, Any]:
    arm = {"onSuccess": {"value": f"{{{{ {HEAVY} }}}}"}}
    gather = {"action": "Gather", "over": "{{ lists.range(20) }}", "call": mock(value=1) | arm, "next": "r"}
    return flow({"g": gather, "r": returned(1)})


def _cleaning() -> dict[str, Any]:
    shaped = mock(value=1) | {"onSuccess": {"assign": {"x": f"{{{{ {HEAVY} }}}}"}}}
    return flow({"c": call(mock(value=1), "r", middleware=[cleanup(shaped)] * 10), "r": returned()})


def _growing() -> dict[str, Any]:
    grow = {"action": "Pass", "output": "{{ [step.input, step.input] }}", "next": "s"}
    return flow({"s": grow})


def _circle() -> dict[str, Any]:
    text = {"action": "Pass", "output": "{{ vars.text + vars.text + vars.text }}", "next": "a"}
    parameters = {"type": "object", "additionalProperties": True}
    turn = {"action": "Pass", "assign": {"n": "{{ vars.n + 1.0 }}"}, "next": "m"}
    match = {"action": "Match", "cases": [{"when": "{{ vars.n > 100.0 }}", "next": "r"}], "default": {"next": "a"}}
    return flow({"s": text, "a": turn, "m": match, "r": returned(1)}, parameters=parameters) | {"entrypoint": "s"}


def _dispatches(**more: Any) -> dict[str, Any]:
    """A flow that calls a mock for each item of its input, all at once."""
    each = {"action": "Gather", "over": "{{ step.input }}", "call": mock(value=1), "next": "r", **more}
    return flow({"g": each, "r": returned("done")})


LIMITED = {"limits": {"events": 3_000, "then": "cancel"}}

FLOWS: dict[str, Hostile] = {
    "a cancellation of thousands of dispatches": Hostile(
        "System.Cancelled", lambda: start(_dispatches(), input=list(range(6_000)), **LIMITED)
    ),
    "thousands of dispatches of which one is enough": Hostile(
        "", lambda: start(_dispatches(completion={"successes": 1, "wait": False}), input=list(range(4_000)))
    ),
    "heavy conditions": Hostile("", lambda: start(_matching())),
    "heavy arms": Hostile("", lambda: start(_fanned_out())),
    "a stack of heavy loops": Hostile("", lambda: start(_stacked())),
    "a stack of heavy clean-ups": Hostile("", lambda: start(_cleaning())),
    "heavy steps": Hostile("", lambda: start(_passing(f"{{{{ {HEAVY} }}}}", 10))),
    "a value that doubles": Hostile(FAULT, lambda: start(_growing(), input="x" * 10_000)),
    "a large value at every step": Hostile("", lambda: start(_circle(), arguments={"text": "x" * 250_000, "n": 0})),
    "as many dispatches as items": Hostile(
        "",
        lambda: start(
            flow(
                {
                    "g": {"action": "Gather", "over": "{{ lists.range(1000) }}", "call": mock(value=1), "next": "r"},
                    "r": returned(1),
                }
            )
        ),
    ),
}

# -- schemas that are hard to apply ------------------------------------------------------------------------------------

OBJECTS = [{"n": n} for n in range(8_000)]
T: dict[str, Any] = {"$ref": "#/$defs/t"}
TWICE: dict[str, Any] = {"anyOf": [{"type": "array", "items": T}] * 2}


def validating(schema: dict[str, Any], value: Any, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": schema}, **more}
    return start(flow({"r": returned(1)}, parameters=parameters), arguments={"a": value})


SCHEMAS: dict[str, Hostile] = {
    "objects that are all different": Hostile("", lambda: validating({"uniqueItems": True}, OBJECTS)),
    "numbers whose hashes are equal": Hostile(
        "",
        lambda: validating(
            {"uniqueItems": True}, [[-1 if n >> b & 1 else -2 for b in range(12)] for n in range(4_096)]
        ),
    ),
    "branches of branches": Hostile(
        VIOLATED,
        lambda: validating({"$ref": "#/$defs/t"}, json.loads("[" * 40 + "1" + "]" * 40), **{"$defs": {"t": TWICE}}),
    ),
    "a schema of itself": Hostile(VIOLATED, lambda: validating({"$ref": "#/properties/a"}, 1)),
    "a pattern that backtracks": Hostile(VIOLATED, lambda: validating({"pattern": "^(?=a)(a+)+$"}, "a" * 60 + "!")),
    "a pattern of many states": Hostile(VIOLATED, lambda: validating({"pattern": ".*a.{999}c"}, "ab" * 100_000)),
    "branches that violate at length": Hostile(
        VIOLATED, lambda: validating({"anyOf": [{"required": ["x"]}] * 5_000}, {"a": ["x" * 100] * 3_000})
    ),
    "every name asked of every object": Hostile(
        VIOLATED, lambda: validating({"items": {"not": {"required": [f"n{n}" for n in range(4_000)]}}}, [{}] * 100_000)
    ),
}

# -- what workflows make of models and tools ---------------------------------------------------------------------------


def _answering(schema: dict[str, Any], data: Any) -> dict[str, Any]:
    node = {"output": schema}
    return start(document({"a": node})) | {"script": {"turns": {"a": [{"data": data}]}, "default": {"data": data}}}


def _calling(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    tool = {"name": "t", "description": "d", "input_schema": schema, "python": "tests.fixtures.tools.naughty:behaves"}
    script = {"turns": {"a": [{"tool_calls": [{"tool": "t", "input": value}]}, {"text": "so be it"}]}}
    return start(document({"a": {"skills": ["s1"]}}), options={"skills": [_skill(1) | {"tools": [tool]}]}) | {
        "script": script
    }


def _judged(match: dict[str, Any], data: Any) -> dict[str, Any]:
    node = {"output": {"type": "object"}, "eval": [{"name": "e", "kind": "value", "rule": {"output_matches": [match]}}]}
    return start(document({"a": node})) | {"script": {"default": {"data": data}}}


WORKFLOWS: dict[str, Hostile] = {
    "an answer of thousands of objects": Hostile(
        "", lambda: _answering({"type": "object", "properties": {"l": {"uniqueItems": True}}}, {"l": OBJECTS})
    ),
    "an input that a pattern backtracks over": Hostile(
        "", lambda: _calling({"properties": {"q": {"pattern": "^(a+)+$"}}}, {"q": "a" * 60 + "!"})
    ),
    "a schema of a tool that is too much": Hostile(
        "SCHEMA",
        lambda: _calling({"properties": {f"p{n}": {"type": "string", "minLength": 1} for n in range(14_000)}}, {}),
    ),
    "a rule that backtracks": Hostile(
        "workflow.node_failed", lambda: _judged({"path": "q", "matches": "^(?=a)(a+)+$"}, {"q": "a" * 60 + "!"})
    ),
    "a rule over all pairs": Hostile(
        "", lambda: _judged({"path": "q[*].r[*]", "equals": 1}, {"q": [{"r": [1] * 300}] * 300})
    ),
}

GROUPS: dict[str, dict[str, Hostile]] = {
    "texts": TEXTS,
    "definitions": DEFINITIONS,
    "expressions": EXPRESSIONS,
    "flows": FLOWS,
    "schemas": SCHEMAS,
    "workflows": WORKFLOWS,
}
CORPUS: dict[str, Hostile] = {name: hostile for group in GROUPS.values() for name, hostile in group.items()}

# -- starting them -----------------------------------------------------------------------------------------------------


async def say(connection: Connection, message: dict[str, Any] | bytes) -> Verdict:
    """Publish a start as a bare client does; return its verdict."""
    inbox, verdicts = connection.nc.new_inbox(), Queue[Verdict]()

    async def take(answer: Msg) -> None:
        verdicts.put_nowait(msgspec.json.decode(answer.data, type=Verdict))

    subscription = await connection.nc.subscribe(inbox, cb=take)
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    await connection.nc.publish(f"cb.start.{connection.config.tenant}", body, headers={REPLY_HEADER: inbox})
    with anyio.fail_after(PATIENCE_S):
        verdict = await verdicts.get()
    await subscription.unsubscribe()
    return verdict


async def end_of(connection: Connection, run: str) -> RunEnd:
    """Wait for a run's end."""
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type=RunEnd.type) as feed:
            async for recorded in feed:
                payload = payload_of(recorded.event)
                assert isinstance(payload, RunEnd)
                return payload
    raise AssertionError(f"{run} never ended")


async def what_becomes(connection: Connection, hostile: Hostile) -> str:
    """Start it; return the code of the first problem or of the run's error; empty if the run completes."""
    verdict = await say(connection, hostile.message())
    if verdict.status != "accepted" or verdict.run_id is None:
        return verdict.problems[0].code
    end = await end_of(connection, verdict.run_id)
    return end.error.code if end.error is not None else ""
