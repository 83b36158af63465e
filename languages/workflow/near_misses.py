"""Near misses of workflows: references in texts that are not replaced, and edges that are meant as a chain."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.problems import Location, Tree
from callboard.languages.skills.near_misses import UNFILLED, server_near_misses
from callboard.languages.variables import blank_out_code, find_references
from callboard.languages.workflow.document import Workflow
from callboard.lib.json_types import JSON

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
