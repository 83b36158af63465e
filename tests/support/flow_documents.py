"""Small flows for tests of problems, and the public definitions and schemas if they are present."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.flow.specified_providers import MOCK, SPECIFIED
from callboard.languages.flow.structure import FLOW_SCHEMA, find_problems
from callboard.languages.json_text import read_json
from callboard.languages.problems import Tree
from callboard.languages.provider_contracts import Contract, PhaseContract
from tests.support.conformance import CORPUS, FLOW_SCHEMAS

Json = dict[str, Any]

OWN_CALL = "mwl:provider.call/acme/fetch/v1"
OWN_MIDDLEWARE = "mwl:provider.middleware/acme/guard/v1"
CONTRACTS = {
    **SPECIFIED,
    OWN_CALL: Contract(OWN_CALL, "Fetch", parameters={"type": "object", "properties": {"url": {"type": "string"}}}),
    OWN_MIDDLEWARE: Contract(
        OWN_MIDDLEWARE,
        "Guard",
        attachment=("flow",),
        phases={"onEntry": PhaseContract("control", {"type": "object", "properties": {"plan": {}}}, ("plan",))},
    ),
}


def flow(steps: Json | None = None, **more: Any) -> Json:
    steps = {"end": {"action": "Return"}} if steps is None else steps
    return {"$schema": FLOW_SCHEMA, "entrypoint": next(iter(steps), "end"), "steps": steps, **more}


def inner(steps: Json | None = None, **more: Any) -> Json:
    return {name: value for name, value in flow(steps, **more).items() if name != "$schema"}


def one(step: Json, **more: Any) -> Json:
    """A flow whose first step is the given one; the next step ends the flow."""
    return flow({"a": step, "end": {"action": "Return"}}, **more)


def called(call: Json, **more: Any) -> Json:
    return one({"action": "Call", "call": call, "next": "end"}, **more)


def wrapped(*entries: Json, call: Json | None = None) -> Json:
    return one({"action": "Call", "call": call or {"provider": MOCK}, "middleware": list(entries), "next": "end"})


def caught(*clauses: Json) -> Json:
    return one({"action": "Call", "call": {"provider": MOCK}, "catch": list(clauses), "next": "end"})


def problems_of(document: Any) -> list[Problem]:
    tree = read_json(json.dumps(document, indent=1))
    assert isinstance(tree, Tree)
    return find_problems(tree, CONTRACTS)


def codes_of(document: Any) -> list[tuple[str, str]]:
    """The codes and places of a document's problems, warnings with a question mark."""
    return [(one.code + ("?" if one.severity == "warning" else ""), one.where) for one in problems_of(document)]


# -- the public data -------------------------------------------------------------------------------------------------


def read(path: Path) -> Json:
    return json.loads(path.read_text())


def published_definitions() -> list[Path]:
    return [*sorted(CORPUS.glob("*/definition.json")), *sorted(FLOW_SCHEMAS.glob("cases/valid/flow/*.json"))]


def walk(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    yield way, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in below:
        yield from walk(part, (*way, step))


VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2.0,
    "",
    "x",
    "{{ 1 }}",
    "{{ 1 + }}",
    "success",
    [],
    {},
    [""],
    {"when": True},
]
"""Values that mutations insert."""
