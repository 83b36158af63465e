"""Differences between two runs: definition, start, sources, the path taken, nodes and their results, status.

This is a pure comparison of two `RunAccount`s, each folded from one run's log. Durations, tokens and costs are
measures: they are reported and never count as a difference. A fork and its origin, and forks of the same run, are
compared from the event where they parted.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, OutlineEdge, OutlineNode
from callboard.bus.prices import Prices
from callboard.projections.comparison.account import (
    Accounting,
    ExecutionAccount,
    Measure,
    RunAccount,
    differing_defaults,
)
from callboard.projections.comparison.first_requests import Sight, first_sight
from callboard.projections.comparison.json_differences import Difference, differences
from callboard.projections.comparison.shared_events import Shared, find_shared
from callboard.projections.comparison.text_marks import Mark, Marker
from callboard.projections.projection import fold
from callboard.projections.trace.tree import Step

STAND_IN = "/environment/stand_in"
"""The place in the start with the replacement of the models. It is reported, and does not count."""


class Pair(Struct, frozen=True):
    """The values of both sides; None for a side that has none."""

    left: Any
    right: Any


class DefinitionChange(Struct, frozen=True, omit_defaults=True):
    """The differences of two definitions: hashes, nodes and edges of their outlines, their texts as a unified diff.

    ``marks`` are the stretches of both texts, if they have words in common.
    """

    hash: Pair
    name: Pair
    language: Pair
    nodes_removed: list[OutlineNode] = []
    nodes_added: list[OutlineNode] = []
    nodes_changed: list[Pair] = []
    edges_removed: list[OutlineEdge] = []
    edges_added: list[OutlineEdge] = []
    text: list[str] = []
    marks: list[Mark] = []


class SourceDrift(Struct, frozen=True, omit_defaults=True):
    """A source, named by its field, that differs: hash and origin of each side, and the text as a unified diff.

    ``marks`` are the stretches of both texts, if they have words in common.
    """

    field: str
    hash: Pair
    origin: Pair
    text: list[str] = []
    marks: list[Mark] = []


class Parting(Struct, frozen=True, omit_defaults=True):
    """The point where the paths of two runs first part: after ``after`` (``node#iteration``; empty at the beginning).

    ``left`` and ``right`` are the targets of the routes taken from there, and ``reasons`` their reasons.
    """

    after: str
    left: list[str]
    right: list[str]
    reasons: Pair


class NodeChange(Struct, frozen=True, omit_defaults=True):
    """An execution with different outcomes or results. A side without this execution has no outcome."""

    path: str
    iteration: int
    outcome: Pair
    retries: Pair | None = None
    error: Pair | None = None
    input: list[Difference] = []
    result: list[Difference] = []
    effects: dict[str, Pair] = {}


class Measures(Struct, frozen=True):
    """Durations, tokens and costs of the runs, and of the executions that both have, by ``node#iteration``."""

    run: Pair
    executions: dict[str, Pair]


class RunDiff(Struct, frozen=True, kw_only=True):
    """The comparison of two runs. ``equal`` is true if only measures and the replacement of models differ.

    ``shared`` describes the events that both runs have; they are not compared. ``sight`` is the first model turn whose
    request differs.
    """

    left: str
    right: str
    equal: bool
    shared: Shared | None
    sight: Sight | None
    definition: DefinitionChange | None
    start: list[Difference]
    sources: list[SourceDrift]
    path: Pair
    parting: Parting | None
    visits: dict[str, Pair]
    nodes: list[NodeChange]
    models: dict[str, Pair]
    tools: dict[str, Pair]
    status: Pair
    output: list[Difference]
    error: Pair | None
    measures: Measures


def compare_logs(left: Sequence[Event], right: Sequence[Event], prices: Prices | None = None) -> RunDiff:
    """Compare two runs, from their parting if they share events. ``prices`` are those of `Accounting`."""
    marker = Marker()
    common = find_shared(left, right, marker)
    after = common.n if common is not None else 0
    defaults = differing_defaults(left, right)
    one, other = (fold(Accounting(prices, after, defaults), side) for side in (left, right))
    return compare(one, other, marker, common, first_sight(left, right, marker, after, defaults))


def compare(
    left: RunAccount, right: RunAccount, marker: Marker, common: Shared | None = None, sight: Sight | None = None
) -> RunDiff:
    """Compare two accounts. ``common`` are the shared events, ``sight`` the first model turn that differs."""
    ways = Pair([label(each) for each in left.executions], [label(each) for each in right.executions])
    found: dict[str, Any] = {
        "definition": _definition(left, right, marker),
        "start": differences(left.start, right.start, marker),
        "sources": _sources(left, right, marker),
        "parting": _parting(left, right),
        "visits": _counts(*(Counter(each.path for each in side.executions) for side in (left, right))),
        "nodes": _nodes(left, right, marker),
        "models": _counts(left.models, right.models),
        "tools": _counts(left.tools, right.tools),
        "output": differences(left.output, right.output, marker),
        "error": _errors(left.error, right.error),
        "sight": sight,
    }
    replaced = common is not None and bool(common.replaced)
    start_differs = any(one.pointer != STAND_IN for one in found["start"])
    return RunDiff(
        left=left.run,
        right=right.run,
        equal=left.status == right.status and not any({**found, "start": start_differs}.values()) and not replaced,
        shared=common,
        path=ways,
        status=Pair(left.status, right.status),
        measures=_measures(left, right),
        **found,
    )


def label(execution: ExecutionAccount) -> str:
    """Name an execution: its path, with its iteration if it is not the first."""
    return execution.path if execution.iteration <= 1 else f"{execution.path}#{execution.iteration}"


def _definition(left: RunAccount, right: RunAccount, marker: Marker) -> DefinitionChange | None:
    ours, theirs = left.definition, right.definition
    if (ours.hash, ours.language, left.name) == (theirs.hash, theirs.language, right.name):
        return None
    nodes = {node.id: node for node in left.outline.nodes}, {node.id: node for node in right.outline.nodes}
    edges = [Counter((edge.source, edge.target, edge.when) for edge in side.outline.edges) for side in (left, right)]
    return DefinitionChange(
        hash=Pair(ours.hash, theirs.hash),
        name=Pair(left.name, right.name),
        language=Pair(ours.language, theirs.language),
        nodes_removed=[node for name, node in nodes[0].items() if name not in nodes[1]],
        nodes_added=[node for name, node in nodes[1].items() if name not in nodes[0]],
        nodes_changed=[
            Pair(node, nodes[1][name]) for name, node in nodes[0].items() if name in nodes[1] and node != nodes[1][name]
        ],
        edges_removed=[OutlineEdge(*edge) for edge in (edges[0] - edges[1]).elements()],
        edges_added=[OutlineEdge(*edge) for edge in (edges[1] - edges[0]).elements()],
        text=_text(ours.source, theirs.source),
        marks=marker.mark(ours.source, theirs.source),
    )


def _sources(left: RunAccount, right: RunAccount, marker: Marker) -> list[SourceDrift]:
    """Compare sources by their hashes, or by their contents if a side has no hash."""
    found: list[SourceDrift] = []
    for field in dict.fromkeys((*left.sources, *right.sources)):
        ours, theirs = left.sources.get(field, {}), right.sources.get(field, {})
        key = "hash" if "hash" in ours and "hash" in theirs else "content"
        if ours and theirs and ours.get(key) == theirs.get(key):
            continue
        contents = [str(side.get("content") or "") for side in (ours, theirs)]
        drift = SourceDrift(
            field,
            Pair(ours.get("hash"), theirs.get("hash")),
            Pair(ours.get("origin"), theirs.get("origin")),
            _text(*contents),
            marker.mark(*contents),
        )
        found.append(drift)
    return found


def _text(left: str, right: str) -> list[str]:
    """Return a unified diff without its two header lines."""
    return list(difflib.unified_diff(left.splitlines(), right.splitlines(), lineterm="", n=1))[2:]


def _parting(left: RunAccount, right: RunAccount) -> Parting | None:
    """Find the first execution, in the order of the left run, after which the runs took different routes."""
    first = [next((label(each) for each in side.executions), "") for side in (left, right)]
    if first[0] != first[1]:
        left_first, right_first = ([name] if name else [] for name in first)
        return Parting("", left_first, right_first, Pair([], []))
    theirs = {label(each): each for each in right.executions}
    for ours in left.executions:
        other = theirs.get(label(ours))
        if other is None:
            continue
        targets = _targets(ours.routes), _targets(other.routes)
        if targets[0] != targets[1]:
            reasons = Pair([step.reason for step in ours.routes], [step.reason for step in other.routes])
            return Parting(label(ours), *targets, reasons)
    return None


def _targets(routes: list[Step]) -> list[str]:
    return [step.target for step in routes]


def _nodes(left: RunAccount, right: RunAccount, marker: Marker) -> list[NodeChange]:
    sides = [{label(each): each for each in side.executions} for side in (left, right)]
    changes = [_node(sides[0].get(name), sides[1].get(name), marker) for name in dict.fromkeys((*sides[0], *sides[1]))]
    return [change for change in changes if change]


def _node(left: ExecutionAccount | None, right: ExecutionAccount | None, marker: Marker) -> NodeChange | None:
    one = left or right
    assert one is not None
    outcome = Pair(left.outcome if left else None, right.outcome if right else None)
    if left is None or right is None:
        return NodeChange(one.path, one.iteration, outcome)
    change = NodeChange(
        one.path,
        one.iteration,
        outcome,
        Pair(left.retries, right.retries) if left.retries != right.retries else None,
        _errors(left.error, right.error),
        differences(left.input, right.input, marker),
        differences(left.result, right.result, marker),
        _counts(left.effects, right.effects),
    )
    plain = NodeChange(one.path, one.iteration, outcome)
    return None if left.outcome == right.outcome and change == plain else change


def _errors(left: Failure | None, right: Failure | None) -> Pair | None:
    """Compare failures without the places that they name."""
    one, other = (msgspec.to_builtins(error) if error else None for error in (left, right))
    return Pair(left, right) if differences(one, other) else None


def _counts(left: dict[str, int], right: dict[str, int]) -> dict[str, Pair]:
    names = dict.fromkeys((*left, *right))
    return {
        name: Pair(left.get(name, 0), right.get(name, 0)) for name in names if left.get(name, 0) != right.get(name, 0)
    }


def _measures(left: RunAccount, right: RunAccount) -> Measures:
    theirs: dict[str, Measure] = {label(each): each.measure for each in right.executions}
    both = [(label(each), each.measure) for each in left.executions if label(each) in theirs]
    return Measures(Pair(left.measure, right.measure), {name: Pair(measure, theirs[name]) for name, measure in both})
