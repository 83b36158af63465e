"""A trace with fewer lines: of many dispatches of one node, some that are worth a look, and one line for the rest."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from callboard.projections.tree import Effect, Node, Trace

DISPATCHES_MAX = 10
"""How many dispatches of one node are shown, unless more of them did not succeed."""

FAILED_MAX = 20
"""How many that did not succeed, or have not yet, are shown."""

ELIDED = "elided"
"""The kind of a node that stands for others."""


def elided(trace: Trace) -> Trace:
    """Return the trace with many dispatches told in few: the first ones, and those that did not succeed."""
    return msgspec.structs.replace(trace, root=_node(trace.root))


def _node(node: Node) -> Node:
    """Elide what is inside of a node; a node of which nothing is left out is returned as it is."""
    children = [_node(child) for child in node.children]
    effects = node.effects
    ended: dict[int, list[str | None]] = {}
    for child in children:
        if (index := _index(node, child.path)) is not None:
            ended.setdefault(index, []).append(child.outcome)
    for effect in effects:
        if (index := _index(node, effect.key)) is not None:
            ended.setdefault(index, []).append(effect.outcome)
    if len(ended) > DISPATCHES_MAX:
        kept = _kept(ended)
        left = [one for one in children if _index(node, one.path) not in kept]
        unseen = [one for one in effects if _index(node, one.key) not in kept]
        children = [one for one in children if _index(node, one.path) in kept]
        effects = [one for one in effects if _index(node, one.key) in kept]
        children.append(_rest(node, {index: ends for index, ends in ended.items() if index not in kept}, left, unseen))
    return msgspec.structs.replace(node, children=children, effects=effects)


_DISPATCH = re.compile(r"\[(\d+)\]")


def _index(node: Node, address: str) -> int | None:
    """The index of the dispatch that something right below a node is of; None for what is no dispatch."""
    if not address.startswith(f"{node.path}["):
        return None
    found = _DISPATCH.match(address, len(node.path))
    return int(found[1]) if found else None


def _kept(ended: dict[int, list[str | None]]) -> set[int | None]:
    """Choose the dispatches to show; what is no dispatch, of index None, is always among them."""
    odd = [index for index, ends in ended.items() if set(ends) != {"ok"}]
    first = list(ended)[: max(DISPATCHES_MAX - len(odd), 1)]
    return {None, *first, *odd[:FAILED_MAX]}


def _rest(node: Node, ended: dict[int, list[str | None]], nodes: Sequence[Node], effects: Sequence[Effect]) -> Node:
    counts = Counter("ok" if set(ends) == {"ok"} else (ends[-1] or "running") for ends in ended.values())
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    begins = [one.entered_at for one in nodes if one.entered_at] + [one.started_at for one in effects]
    ends = [*(one.exited_at for one in nodes), *(one.ended_at for one in effects)]
    over: list[dt.datetime] = [one for one in ends if one is not None]
    return Node(
        path=f"{node.path}[…]",
        iteration=node.iteration,
        kind=ELIDED,
        node=f"… {len(ended)} more",
        name=told,
        entered_at=min(begins, default=None),
        exited_at=max(over) if len(over) == len(ends) and over else None,
        outcome=next(iter(counts)) if len(counts) == 1 else "mixed",
        first_n=max([one.first_n for one in (*nodes, *effects)], default=0),
    )
