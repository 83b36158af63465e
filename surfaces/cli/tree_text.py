"""A trace as a tree of text: a line per node execution, effect, route and warning, with marks and durations."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from callboard.bus.prices import dollars
from callboard.lib.control_characters import visible_line
from callboard.projections.run.causes import brief
from callboard.projections.trace.elision import elide
from callboard.projections.trace.text_renderings import closed_up, duration_text, node_label, placed_label
from callboard.projections.trace.tree import Attempt, Effect, Node, Trace
from callboard.service.operations.narration import short
from callboard.surfaces.cli.views import evidence_of

State = Literal["running", "ok", "failed", "cancelled", "skipped", "note", "warning"]

MARKS: dict[State, str] = {
    "running": "●",
    "ok": "✓",
    "failed": "✗",
    "cancelled": "⊘",
    "skipped": "–",
    "note": " ",
    "warning": "!",
}

_STATES: dict[str | None, State] = {
    None: "running",
    "ok": "ok",
    "completed": "ok",
    "failed": "failed",
    "expired": "failed",
    "timeout": "failed",
    "cancelled": "cancelled",
    "skipped": "skipped",
}


PLAIN = "next"
"""The reason of a route that needed no decision."""


class TreeLine(NamedTuple):
    """One line of the tree: its branches, state and text, and a dimmed text after it; ``of`` is its node or effect."""

    branches: str
    state: State
    text: str
    aside: str
    of: Node | Effect | None = None


class _Item(NamedTuple):
    n: int
    state: State
    text: str
    aside: str
    below: Node | None = None
    behind: Sequence[str] = ()
    """Lines below the item."""
    effect: Effect | None = None


def rows(trace: Trace, *, all_effects: bool = True) -> list[TreeLine]:
    """Return the rows of the tree, the run first; of many dispatches of a node, only some have rows.

    Without ``all_effects``, nodes that have ended show no effects.
    """
    root = elide(closed_up(trace)).root
    parted = f"forked from {trace.origin} after event {trace.parted_at}" if trace.origin else ""
    aside = "  ".join(part for part in (_node_aside(root), parted) if part)
    head = TreeLine("", _STATES[root.outcome], f"{trace.run}  {trace.definition}", aside, root)
    return [head, *_rows_below(root, "", all_effects)]


def tree_text(trace: Trace) -> str:
    """Return the tree as text, with a newline at its end."""
    return "".join(f"{row_text(row)}\n" for row in rows(trace))


def row_text(row: TreeLine) -> str:
    """Return one line of the tree."""
    told = visible_line(f"{row.text}{'  ' if row.aside else ''}{row.aside}")
    return f"{row.branches}{MARKS[row.state]} {told}"


def _rows_below(node: Node, indent: str, all_effects: bool) -> Iterator[TreeLine]:
    items = list(_items(node, all_effects))
    for position, item in enumerate(items):
        last = position == len(items) - 1
        of = item.below or item.effect
        yield TreeLine(f"{indent}{'└─ ' if last else '├─ '}", item.state, item.text, item.aside, of)
        inner = f"{indent}{'   ' if last else '│  '}"
        if all_effects:
            yield from (TreeLine(inner, "note", line, "") for line in item.behind)
        if item.below is not None:
            yield from _rows_below(item.below, inner, all_effects)


def _items(node: Node, all_effects: bool) -> Iterator[_Item]:
    """Yield effects and inner nodes in the order of the log, then retries, warnings and routes."""
    found = [
        _Item(child.first_n, _STATES.get(child.outcome, "note"), node_label(child), _node_aside(child), child)
        for child in node.children
    ]
    if all_effects or node.outcome is None:
        found += [_effect_item(effect, node) for effect in node.effects]
    yield from sorted(found, key=lambda item: item.n)
    for retry in node.attempts:
        yield _retry_item(retry)
    for warning in node.warnings:
        yield _Item(0, "warning", warning.code or "warning", " ".join(warning.message.split()))
    for step in node.routes:
        # If the reason only says that the run continues, show the field of the definition instead.
        why = step.edge if isinstance(step.edge, str) and step.reason == PLAIN else step.reason
        yield _Item(0, "note", f"→ {step.target}", " ".join(why.split()))


def _node_aside(node: Node) -> str:
    told: list[str] = []
    if node.entered_at and node.exited_at:
        told.append(duration_text((node.exited_at - node.entered_at).total_seconds()))
    elif node.progress:
        told.append(short(node.progress[-1].message))
    if node.error:
        told.append(brief(node.error))
    return "  ".join(told)


def _retry_item(retry: Attempt) -> _Item:
    """Return a retry: the dispatch or call that retries unless it is the node itself, the delay, and the reason."""
    what = f"{retry.path.rpartition(':')[2]} " if retry.path else ""
    why = retry.error.code if retry.error else " ".join(retry.reason.split())
    waited = f"after {duration_text(retry.delay)}" if retry.delay else ""
    return _Item(0, "note", f"↻ {what}retry {retry.number}", "  ".join(part for part in (waited, why) if part))


def _effect_item(effect: Effect, node: Node) -> _Item:
    told: list[str] = []
    if effect.ended_at:
        told.append(duration_text((effect.ended_at - effect.started_at).total_seconds()))
    if effect.usage and (effect.usage.input_tokens or effect.usage.output_tokens):
        told.append(f"{effect.usage.input_tokens}/{effect.usage.output_tokens} tokens")
    if effect.cost and effect.cost.usd:
        told.append(dollars(effect.cost))
    if effect.executions > 1:
        told.append(f"executed {effect.executions}×")
    if effect.error:
        told.append(brief(effect.error))
    state = _STATES.get(effect.outcome, "note")
    behind = evidence_of(effect.error)
    return _Item(effect.first_n, state, placed_label(effect, node), "  ".join(told), behind=behind, effect=effect)
