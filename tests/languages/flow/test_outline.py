"""Diagrams and traces of flows: the outline, the nodes of paths, and which dispatches are shown."""

import datetime as dt
import json
from typing import Any

import pytest

from callboard.bus.events import Outline
from callboard.languages.flow.language import LANGUAGE
from callboard.languages.flow.outline import CONDITION_CHARS_MAX, outline
from callboard.languages.plan import Definition
from callboard.projections.drawing.edges import Shown, Ways, holder
from callboard.projections.trace.elision import DISPATCHES_MAX, FAILED_MAX, elide
from callboard.projections.trace.tree import Effect, Node, Trace
from tests.support.flow_cases import one_step
from tests.support.flows import call, caught, cleanup, failing, flow, mock, returned, subflow, timeout

AT = dt.datetime(2026, 11, 20, 11, tzinfo=dt.UTC)


def draw(definition: dict[str, Any]) -> Outline:
    parsed = LANGUAGE.parse(json.dumps(definition))
    assert isinstance(parsed, Definition), parsed
    return outline(parsed.document, "main")


def labels(found: Outline) -> list[tuple[str, str, str | None]]:
    return [(edge.source, edge.target, edge.when) for edge in found.edges]


# -- the outline -------------------------------------------------------------------------------------------------------


def test_a_node_names_its_action_its_target_and_its_middleware() -> None:
    inner = {"flow": subflow({"done": returned()})}
    steps = {
        "a": call(mock(), "b", middleware=[timeout("PT5S"), cleanup(mock())]),
        "b": {"action": "Gather", "calls": [mock(), inner, mock()], "next": "c"},
        "c": {"action": "Sleep", "for": "PT5S", "next": "d"},
        "d": {"action": "Sleep", "until": "{{ vars.at }}", "next": "e"},
        "e": call({"flow": "named"}),
        "done": returned(),
    }
    found = draw(flow(steps, flows={"named": subflow({"done": returned()})}))
    told = {node.name: (node.type, node.subtype) for node in found.nodes if node.id.count("/") == 1}
    assert told == {
        "a": ("Call", "mock in timeout, finally"),
        "b": ("Gather", "mock, flow"),
        "c": ("Sleep", "PT5S"),
        "d": ("Sleep", ""),
        "e": ("Call", "named"),
        "done": ("Return", ""),
    }
    assert [node.id for node in found.nodes if node.id.count("/") == 2] == ["main/b[1]/done", "main/e:call/done"]


def test_edges_have_their_conditions() -> None:
    long = " && ".join(["vars.number > 10.0"] * 9)
    clauses = [
        {"match": {"codes": ["A.*", "B"], "types": ["timeout", "error"]}, "next": "c"},
        {"match": {"retryable": False}, "next": "c"},
    ]
    steps = {
        "a": call(failing("X"), "b", catch=clauses),
        "b": {
            "action": "Match",
            "cases": [{"when": "{{ match.input ==\n 1.0 }}", "next": "c"}, {"when": f"{{{{ {long} }}}}", "next": "c"}],
            "default": {"next": "c"},
        },
        "c": returned(),
    }
    found = draw(flow(steps))
    assert labels(found)[:4] == [
        ("main/a", "main/b", None),
        ("main/a", "main/c", "catch A.* | B, error | timeout"),
        ("main/a", "main/c", "catch not retryable"),
        ("main/b", "main/c", "match.input == 1.0"),
    ]
    cut = labels(found)[4][2]
    assert cut is not None
    assert (len(cut), cut[-1]) == (CONDITION_CHARS_MAX, "…")
    assert labels(found)[5][2] == "default"


def test_subflows_are_connected_to_their_callers() -> None:
    inner = subflow({"in": call({"flow": subflow({"deep": returned()})}), "done": returned()})
    fan = {"action": "Gather", "over": [1], "call": {"flow": inner}, "next": "done"}
    found = draw(one_step(fan))
    down = [edge for edge in labels(found) if edge[2] in ("for each", "calls")]
    assert down == [("main/s", "main/s[]/in", "for each"), ("main/s[]/in", "main/s[]/in:call/deep", "calls")]


# -- nodes and edges of events -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edge", "target", "index"),
    [
        ("next", "main/b", 0),
        ("catch.0", "main/c", 1),
        ("catch.1", "main/c", 2),
        ("catch.7", "main/c", 1),
        ("catch.0", "main/b", 0),
        (2, "main/c", 2),
        (None, "main/c", 1),
        ("next", "main/d", None),
    ],
)
def test_a_route_selects_one_of_several_edges_between_two_steps(edge: Any, target: str, index: int | None) -> None:
    clauses = [caught("c", "A"), caught("c", "B")]
    found = draw(flow({"a": call(mock(), "b", catch=clauses), "b": returned(), "c": returned()}))
    assert Ways(found).index("main/a", target, edge) == index


def test_cases_that_lead_to_the_same_step_are_different_edges() -> None:
    cases = [{"when": "{{ false }}", "next": "b"}, {"when": "{{ true }}", "next": "b"}]
    found = draw(flow({"a": {"action": "Match", "cases": cases, "default": {"next": "b"}}, "b": returned()}))
    ways = Ways(found)
    assert [ways.index("main/a", "main/b", edge) for edge in ("case.0", "case.1", "default")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("main/fan", "main/fan"),
        ("main/fan[12]/in", "main/fan[]/in"),
        ("main/fan[3]/both[1]/x", "main/fan[]/both[1]/x"),
        ("main/fan[3]/both[0]/x", None),
        ("main/else", None),
    ],
)
def test_a_node_represents_all_its_dispatches(path: str, node: str | None) -> None:
    shown = Shown(["main/fan", "main/fan[]/in", "main/fan[]/both[1]/x", "main/fan[]/both[2]/x"])
    assert shown.id_of(path) == node


def test_the_holder_of_a_subflow_is_the_step_that_calls_it() -> None:
    assert holder("main/fan[]") == "main/fan"
    assert holder("main/fan[]/in:call") == "main/fan[]/in"


# -- which dispatches are shown ----------------------------------------------------------------------------------------


def _fan(outcomes: list[str | None], *, frames: bool) -> Trace:
    node = Node(path="main/fan", iteration=1, kind="step", node="fan", name="", children=[], effects=[])
    for index, outcome in enumerate(outcomes):
        path, ended = f"main/fan[{index}]", AT + dt.timedelta(seconds=index) if outcome else None
        if frames:
            below = Node(
                path=path,
                iteration=1,
                kind="frame",
                node="flow",
                name="",
                entered_at=AT,
                exited_at=ended,
                outcome=outcome,
                first_n=index,
            )
            node.children.append(below)
        else:
            effect = Effect(
                key=f"{path}#1.1!call",
                type="effect.call",
                kind="provider",
                name="mock",
                attempt=1,
                started_at=AT,
                ended_at=ended,
                outcome=outcome,
                first_n=index,
            )
            node.effects.append(effect)
    root = Node(path="", iteration=0, kind="run", node="r", name="", children=[node])
    return Trace(run="r", definition="r", language="flow", root=root)


@pytest.mark.parametrize("frames", [True, False])
def test_a_few_dispatches_are_all_shown(frames: bool) -> None:
    trace = _fan(["ok"] * DISPATCHES_MAX, frames=frames)
    assert elide(trace) == trace


@pytest.mark.parametrize("frames", [True, False])
def test_of_many_dispatches_the_unsuccessful_are_all_shown(frames: bool) -> None:
    outcomes: list[str | None] = ["ok"] * 50
    outcomes[17], outcomes[31], outcomes[49] = "failed", None, "cancelled"
    [fan] = elide(_fan(outcomes, frames=frames)).root.children
    shown = [*(node.path for node in fan.children), *(effect.key.partition("#")[0] for effect in fan.effects)]
    assert {f"main/fan[{index}]" for index in (0, 17, 31, 49)} < set(shown)
    assert len(shown) == DISPATCHES_MAX + 1
    rest = next(node for node in fan.children if node.kind == "elided")
    assert (rest.node, rest.name, rest.outcome) == ("… 40 more", "40 ok", "ok")
    assert (rest.entered_at, rest.exited_at) == (AT, AT + dt.timedelta(seconds=48))


def test_the_shown_failures_are_bounded() -> None:
    [fan] = elide(_fan(["failed"] * 300, frames=True)).root.children
    assert len(fan.children) == FAILED_MAX + 1
    assert fan.children[-1].name == "280 failed"
