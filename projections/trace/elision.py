"""Shorter traces: if a node has many dispatches, only some are shown, and one line represents the rest."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from callboard.projections.trace.tree import Effect, Node, Trace

DISPATCHES_MAX = 10
"""The maximum number of dispatches shown for one node, unless more of them did not succeed."""

FAILED_MAX = 20
"""The maximum number of dispatches shown that did not succeed or have not ended."""

ELIDED = "elided"
"""The kind of a node that represents the dispatches left out."""


def elide(trace: Trace) -> Trace:
    """Return the trace with only some of many dispatches: the first ones, and those that did not succeed."""
    return msgspec.structs.replace(trace, root=_node(trace.root))


def _node(node: Node) -> Node:
    """Elide dispatches inside a node. A node from which nothing is left out is returned unchanged."""
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
        kept = _choose(ended)
        left = [one for one in children if _index(node, one.path) not in kept]
        unseen = [one for one in effects if _index(node, one.key) not in kept]
        children = [one for one in children if _index(node, one.path) in kept]
        effects = [one for one in effects if _index(node, one.key) in kept]
        children.append(_rest(node, {index: ends for index, ends in ended.items() if index not in kept}, left, unseen))
    return msgspec.structs.replace(node, children=children, effects=effects)


_DISPATCH = re.compile(r"\[(\d+)\]")


def _index(node: Node, address: str) -> int | None:
    """Return the index of the dispatch that an address directly below a node belongs to; None if it is not in one."""
    if not address.startswith(f"{node.path}["):
        return None
    found = _DISPATCH.match(address, len(node.path))
    return int(found[1]) if found else None


def _choose(ended: dict[int, list[str | None]]) -> set[int | None]:
    """Choose the dispatches to show. Index None, for children that are not dispatches, is always included."""
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
