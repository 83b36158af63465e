"""Checks across a workflow document: the structure of the graph, and legal parts that are probably mistakes.

The structural rules and their codes are those of the specification (*Workflow: Structural Validation*). They are
checked on the plain value of the document, so that their problems are reported together with those of its models.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from callboard.bus.events import Problem
from callboard.languages.problems import Location, Tree, did_you_mean, hint_at
from callboard.languages.skills.near_misses import UNFILLED, server_near_misses
from callboard.languages.variables import blank_out_code, find_references
from callboard.languages.workflow.checks import OutputMatch
from callboard.languages.workflow.document import RESERVED_NODE_IDS, Node, Workflow
from callboard.languages.workflow.evaluators import JudgeEvaluator
from callboard.languages.workflow.lookup import Unresolved, parse_path
from callboard.lib.javascript import regex
from callboard.lib.json_types import JSON

_MOVED = "'verify' is called 'eval' now: a list of named evaluators (value, function, judge)"


class _Arc(Struct, frozen=True):
    """An edge of the document with both ends; ``index`` is its place in the list."""

    index: int
    source: str
    target: str
    bounded: bool
    conditional: bool


class _Graph(Struct, frozen=True):
    entry: str | None
    nodes: list[str]
    arcs: list[_Arc]
    whole: bool


def structure(tree: Tree) -> list[Problem]:
    """Return all violations of the structural rules, as far as the document is complete enough to check them."""
    if not isinstance(tree.value, dict):
        return []
    graph = _graph_of(tree.value)
    problems = [*_find_moved(tree), *_find_reserved(tree, graph), *_references(tree, graph), *_loops(tree, graph)]
    known = {arc.source for arc in graph.arcs} | {arc.target for arc in graph.arcs}
    if graph.whole and graph.entry in graph.nodes and known <= set(graph.nodes):
        problems += _unreachable(tree, graph)
    return problems


def _graph_of(raw: dict[str, Any]) -> _Graph:
    nodes, edges, entry = raw.get("nodes"), raw.get("edges"), raw.get("entry")
    arcs: list[_Arc] = []
    for index, edge in enumerate(edges if isinstance(edges, list) else []):
        match edge:
            case {"from": str(source), "to": str(target)}:
                when = edge.get("when")
                conditional = isinstance(when, str) and bool(when.strip())
                arcs.append(_Arc(index, source, target, edge.get("max_iterations") is not None, conditional))
            case _:
                pass
    return _Graph(
        entry=entry if isinstance(entry, str) else None,
        nodes=list(nodes) if isinstance(nodes, dict) else [],
        arcs=arcs,
        whole=isinstance(nodes, dict) and isinstance(edges, list) and len(arcs) == len(edges),
    )


def _find_moved(tree: Tree) -> Iterator[Problem]:
    if "verify" in tree.value:
        yield tree.problem("SCHEMA", _MOVED, ("verify",), expected="eval, at a node")
    nodes = tree.value.get("nodes")
    for name, node in nodes.items() if isinstance(nodes, dict) else []:
        if isinstance(node, dict) and "verify" in node:
            yield tree.problem("SCHEMA", f"{_MOVED} (node {name!r})", ("nodes", name, "verify"), expected="eval")


def _find_reserved(tree: Tree, graph: _Graph) -> Iterator[Problem]:
    for name in graph.nodes:
        if name in RESERVED_NODE_IDS:
            message = f"a node named {name!r} would hide the run's input from all other nodes"
            yield tree.problem("RESERVED_NODE_ID", message, ("nodes", name), expected="another id")


def _references(tree: Tree, graph: _Graph) -> Iterator[Problem]:
    if graph.entry is not None and graph.entry not in graph.nodes:
        yield _unknown_problem(tree, "MISSING_ENTRY", "entry node", graph.entry, ("entry",), graph)
    for arc in graph.arcs:
        if arc.source not in graph.nodes:
            yield _unknown_problem(
                tree, "UNKNOWN_EDGE_SOURCE", "edge source", arc.source, ("edges", arc.index, "from"), graph
            )
        if arc.target not in graph.nodes:
            yield _unknown_problem(
                tree, "UNKNOWN_EDGE_TARGET", "edge target", arc.target, ("edges", arc.index, "to"), graph
            )


def _unknown_problem(tree: Tree, code: str, what: str, name: str, location: Location, graph: _Graph) -> Problem:
    hint = hint_at(name, graph.nodes)
    return tree.problem(code, f"{what} {name!r} does not exist{hint}", location, expected="the id of a node")


def _loops(tree: Tree, graph: _Graph) -> Iterator[Problem]:
    for arc in graph.arcs:
        if arc.source == arc.target and not arc.bounded:
            message = f"edge from {arc.source!r} to itself has no bound"
            yield tree.problem("SELF_LOOP", message, ("edges", arc.index), expected="max_iterations")
    plain = [arc for arc in graph.arcs if not arc.conditional]
    onward: dict[str, list[str]] = {}
    ambiguous_at: dict[str, int] = {}
    for arc in plain:
        onward.setdefault(arc.source, []).append(arc.target)
        if len(onward[arc.source]) == 2:
            ambiguous_at[arc.source] = arc.index
    for source, index in ambiguous_at.items():
        yield ambiguous_edges(tree, source, index, onward)
    for arc in _back_edges(graph):
        message = f"unbounded cycle: no edge of the cycle through {arc.target!r} has max_iterations"
        yield tree.problem("UNBOUNDED_CYCLE", message, ("edges", arc.index), expected="max_iterations on one of them")


def _unreachable(tree: Tree, graph: _Graph) -> Iterator[Problem]:
    onward: dict[str | None, list[str]] = {}
    for arc in graph.arcs:
        onward.setdefault(arc.source, []).append(arc.target)
    reached = {graph.entry}
    frontier = [graph.entry]
    for source in frontier:
        fresh = [target for target in dict.fromkeys(onward.get(source, [])) if target not in reached]
        reached.update(fresh)
        frontier += fresh
    for name in graph.nodes:
        if name not in reached:
            message = f"node {name!r} is unreachable from entry {graph.entry!r}"
            yield tree.problem("UNREACHABLE_NODE", message, ("nodes", name), expected="an edge that leads to it")


def _back_edges(graph: _Graph) -> Iterator[_Arc]:
    """Yield edges that close a cycle after bounded edges and self-loops are removed, at most one for each root."""
    onward: dict[str, list[_Arc]] = {}
    for arc in graph.arcs:
        if not arc.bounded and arc.source != arc.target:
            onward.setdefault(arc.source, []).append(arc)
    finished: set[str] = set()
    for root in graph.nodes:
        if root in finished:
            continue
        on_way = {root}
        way = [(root, iter(onward.get(root, [])))]
        closing: _Arc | None = None
        while way:
            name, arcs = way[-1]
            arc = next(arcs, None)
            if arc is None:
                way.pop()
                on_way.discard(name)
                finished.add(name)
            elif arc.target in on_way:
                closing = closing or arc
            elif arc.target not in finished:
                on_way.add(arc.target)
                way.append((arc.target, iter(onward.get(arc.target, []))))
        if closing:
            yield closing


# -- unsupported parts and probable mistakes in a document that fits its models ----------------------------------------


def beyond_schema(document: Workflow, tree: Tree) -> list[Problem]:
    """Return errors and warnings about a document that fits its models."""
    problems = [*_unknown_top_level(tree), *_judge_budget(document, tree), *near_misses(document, tree)]
    for name, node in document.nodes.items():
        here = ("nodes", name)
        if node.eval_policy != "all_pass":
            message = f"the policy {node.eval_policy!r} is reserved and not available"
            problems.append(
                tree.problem("UNSUPPORTED_EVAL_POLICY", message, (*here, "eval_policy"), expected="all_pass")
            )
        problems += _node_warnings(node, here, tree)
    return problems


def unknown_skills(document: Workflow, known: set[str]) -> Iterator[tuple[str, Location]]:
    """Yield every mention of a skill that is neither defined by the document nor known."""
    for name, node in document.nodes.items():
        for index, skill in enumerate(node.skills):
            if skill not in document.skills and skill not in known:
                yield skill, ("nodes", name, "skills", index)


def _unknown_top_level(tree: Tree) -> Iterator[Problem]:
    known = list(Workflow.model_fields)
    for name in tree.value:
        if name not in known and (meant := did_you_mean(name, known)):
            message = f"the field {name!r} means nothing here; did you mean {meant!r}?"
            yield tree.problem("UNKNOWN_FIELD", message, (name,), warning=True)


def _judge_budget(document: Workflow, tree: Tree) -> Iterator[Problem]:
    calls = 0
    for node in document.nodes.values():
        judges = sum(isinstance(evaluator, JudgeEvaluator) for evaluator in node.eval or [])
        calls += judges * (1 + (node.retry.max if node.retry else 0))
    if calls > document.judge_budget:
        message = f"up to {calls} judge calls are expected on one pass, more than the judge_budget of "
        yield tree.problem("JUDGE_BUDGET", f"{message}{document.judge_budget}", ("judge_budget",), warning=True)


def _node_warnings(node: Node, here: Location, tree: Tree) -> Iterator[Problem]:
    names = Counter(evaluator.name for evaluator in node.eval or [])
    for name in [name for name, count in names.items() if count > 1]:
        message = f"several evaluators are named {name!r}; later nodes see only the last of them"
        yield tree.problem("DUPLICATE_EVALUATOR", message, (*here, "eval"), warning=True)
    if node.retry and not node.eval and node.output is None:
        message = "has no effect: only a failed evaluation or output is retried, and the node has neither"
        yield tree.problem("IDLE_RETRY", message, (*here, "retry"), warning=True)
    for location, fault in _rule_faults(node, here):
        yield tree.problem("CHECK_CANNOT_PASS", fault, location, warning=True)


def _rule_faults(node: Node, here: Location) -> Iterator[tuple[Location, str]]:
    """Yield the paths and patterns of a node's checks that can never hold."""
    if node.requires:
        yield from _check_faults(node.requires.output_required, node.requires.output_matches, (*here, "requires"))
    for index, evaluator in enumerate(node.eval or []):
        if not isinstance(evaluator, JudgeEvaluator):
            rule = evaluator.rule
            yield from _check_faults(rule.output_required, rule.output_matches, (*here, "eval", index, "rule"))


def _check_faults(
    required: list[str] | None, matches: list[OutputMatch] | None, here: Location
) -> Iterator[tuple[Location, str]]:
    for index, path in enumerate(required or []):
        if isinstance(parsed := parse_path(path), Unresolved):
            yield (*here, "output_required", index), f"invalid path: {parsed.reason}"
    for index, match in enumerate(matches or []):
        if isinstance(parsed := parse_path(match.path), Unresolved):
            yield (*here, "output_matches", index, "path"), f"invalid path: {parsed.reason}"
        try:
            regex.check(regex.units(match.matches or ""))
        except regex.InvalidRegex as fault:
            yield (*here, "output_matches", index, "matches"), f"the pattern {fault}"


CHAIN_EDGES_MAX = 6
"""How many edges of a chain a problem lists."""

_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_][\w-]*)((?:\.[\w-]+)*)\s*\}\}")

_DATA = ("output", "inputs", "skills")
"""Members that hold schemas, defaults and servers instead of texts for models."""


def near_misses(document: Workflow, tree: Tree) -> Iterator[Problem]:
    """Yield a warning for each reference in a document that resembles a variable or a template, but is not replaced."""
    for name, skill in document.skills.items():
        here: Location = ("skills", name)
        for below, message, expected in server_near_misses(skill.mcp) if skill.mcp else ():
            yield tree.problem(UNFILLED, message, (*here, "mcp", *below), expected=expected, warning=True)
        yield from _find_unfilled(tree, (*here, "instruction"), skill.instruction or "", document)
    for location, text in _texts(tree.value, ()):
        yield from _find_unfilled(tree, location, text, document)


def _texts(value: JSON, location: Location) -> Iterator[tuple[Location, str]]:
    match value:
        case str():
            yield location, value
        case dict():
            for name, member in value.items():
                if name not in _DATA or location == ("nodes",):
                    yield from _texts(member, (*location, name))
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, (*location, index))
        case _:
            pass


def _find_unfilled(tree: Tree, location: Location, text: str, document: Workflow) -> Iterator[Problem]:
    if "{" not in text:
        return
    plain = blank_out_code(text)
    if found := next((one for one in find_references(plain) if not one.ours), None):
        message = f"{found.text!r} is passed on as it is written: nothing is filled in in a workflow's texts"
        expected = "the `config` or the `mcp` of a skill for a secret, a field of `inputs` for any other value"
        yield tree.problem(UNFILLED, message, location, expected=expected, warning=True)
    known = {"input", "inputs", *document.nodes, *(document.inputs or {})}
    for match in _TEMPLATE.finditer(plain):
        if match[1] in known and not plain[: match.start()].endswith("$"):
            meant = _meant(match[1], match[2], document)
            message = (
                f"{match[0]!r} is passed on as it is written: the model sees the input and earlier results as data"
            )
            yield tree.problem("UNFILLED_TEMPLATE", message, location, expected=meant, warning=True)
            return


def _meant(name: str, below: str, document: Workflow) -> str:
    if name == "inputs":
        return f"input{below}"
    return f"{name}{below}" if name == "input" or name in document.nodes else f"input.{name}{below}"


# -- several edges without a condition ---------------------------------------------------------------------------------


def write_chain(source: str, onward: Mapping[str, Sequence[str]]) -> str:
    """Return edges that visit the targets of several unconditional edges of a node one after the other.

    ``onward`` has the targets of the unconditional edges of each node. The common target of the targets comes last.
    """
    targets = list(dict.fromkeys(onward[source]))
    after = [onward.get(target, []) for target in targets]
    join = after[0][0] if all(len(one) == 1 for one in after) and len({one[0] for one in after}) == 1 else None
    way = [source, *targets, *([join] if join is not None and join not in targets else [])]
    edges = [f"{{from: {a}, to: {b}}}" for a, b in pairwise(way)]
    return ", ".join([*edges[:CHAIN_EDGES_MAX], *(["…"] if len(edges) > CHAIN_EDGES_MAX else [])])


def ambiguous_edges(tree: Tree, source: str, index: int, onward: Mapping[str, Sequence[str]]) -> Problem:
    """Make the problem of a node with several unconditional edges; ``index`` is that of the second one."""
    targets: list[Any] = list(dict.fromkeys(onward[source]))
    message = (
        f"node {source!r} has {len(onward[source])} edges without a condition; only one can be the default, since one "
        "node is visited at a time"
    )
    if len(targets) < 2:
        expected = "one edge"
    else:
        expected = f"a `when` on all but one; or, to visit all of them, a chain: {write_chain(source, onward)}"
    return tree.problem("AMBIGUOUS_EDGES", message, ("edges", index), expected=expected)
