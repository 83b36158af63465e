"""A trace as plain text: a waterfall of bars and a table of steps. Pure functions that return strings."""

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from callboard.bus.effects import Usage
from callboard.bus.events import ModelCall
from callboard.projections.trace.elision import ELIDED
from callboard.projections.trace.tree import Effect, Node, Trace

WATERFALL_WIDTH = 100
"""The default width of a waterfall in columns."""

_WIDTH_MIN = 40
_LABEL_SHARE = 0.4
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
T = TypeVar("T", dt.datetime, dt.datetime | None)

_SUFFIX = re.compile(r"[\[:].*$")
_DISPATCH = re.compile(r"\[\d+\]")


class NodeRow(Struct, frozen=True):
    """A node execution as a row. ``duration_s`` is None until it ends. ``usage`` is that of its own model turns."""

    path: str
    iteration: int
    attempts: int
    kind: str
    outcome: str
    entered_at: dt.datetime | None
    duration_s: float | None
    effects: int
    usage: Usage
    error: str


def step_rows(trace: Trace) -> list[NodeRow]:
    """Return one row per node execution, in the order of their enters."""
    walks = zip(_walk(trace.root, 0), _walk(closed_up(trace).root, 0), strict=True)
    nodes = [(node, moved) for (node, _depth), (moved, _) in walks if node.path]
    return [_row(*pair) for pair in sorted(nodes, key=lambda pair: pair[0].first_n)]


def _row(node: Node, moved: Node) -> NodeRow:
    usage = sum((effect.usage for effect in node.effects if effect.usage), Usage())
    return NodeRow(
        path=node.path,
        iteration=node.iteration,
        attempts=len(node.attempts) + 1,
        kind=node.kind,
        outcome=node.outcome or "running",
        entered_at=node.entered_at,
        duration_s=_length_s(moved.entered_at, moved.exited_at),
        effects=len(node.effects),
        usage=usage,
        error=node.error.code if node.error else node.name if node.kind == ELIDED else "",
    )


_HEAD = ("node", "iteration", "attempts", "outcome", "duration", "effects", "tokens in/out", "error")


def step_table(rows: Sequence[NodeRow]) -> str:
    """Return the rows as an aligned table with a head, one line each, with a newline at its end."""
    cells = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines) + "\n"


def _cells(row: NodeRow) -> tuple[str, ...]:
    return (
        row.path,
        str(row.iteration),
        str(row.attempts),
        row.outcome,
        duration_text(row.duration_s),
        str(row.effects),
        f"{row.usage.input_tokens}/{row.usage.output_tokens}",
        row.error,
    )


def duration_text(seconds: float | None) -> str:
    """Format a duration: ``12 ms``, ``3.40 s``, ``5 min 02 s``, ``2 h 05 min``, ``3 d 04 h``."""
    if seconds is None:
        return "…"
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600:02} h"


def waterfall(trace: Trace, width: int = WATERFALL_WIDTH) -> str:
    """Return one line per node execution and effect, in ``width`` columns: its name, its bar, its duration.

    The bars share one scale, from the first event to the last. The bar of an execution that has not ended reaches the
    last event and has an ellipsis. In a fork, the executions of its origin are directly before the fork's own bar.
    """
    width = max(width, _WIDTH_MIN)
    trace = closed_up(trace)
    bars_of = list(_lines(trace.root))
    begin, until = min((start for _label, _depth, start, _end in bars_of), default=None), trace.until
    if begin is None or until is None:
        return ""
    labels = round(width * _LABEL_SHARE)
    numbers = max(len(duration_text(_length_s(begin, until))), len("59 min 59 s")) + 1
    bars = width - labels - numbers - 1
    lines: list[str] = []
    for label, depth, start, end in bars_of:
        name = _fit("  " * depth + label, labels)
        bar = _bar(_share(start, begin, until), _share(end or until, begin, until), bars)
        lines.append(f"{name}▕{bar}{duration_text(_length_s(start, end)).rjust(numbers)}")
    return "\n".join(lines) + "\n"


def closed_up(trace: Trace) -> Trace:
    """Return a fork's trace as if it had continued at once: its origin's executions end where its own begin.

    The time between the last shared event and the fork's first own event thus does not count. Other traces are
    returned unchanged.
    """
    then, gone_on = trace.shared_until, trace.root.entered_at
    if trace.parted_at <= 1 or then is None or gone_on is None:
        return trace
    return msgspec.structs.replace(trace, root=_shift(trace.root, then, gone_on - then), shared_until=gone_on)


def _shift(node: Node, then: dt.datetime, by: dt.timedelta) -> Node:
    return msgspec.structs.replace(
        node,
        entered_at=_later(node.entered_at, then, by),
        exited_at=_later(node.exited_at, then, by),
        effects=[
            msgspec.structs.replace(
                effect,
                started_at=_later(effect.started_at, then, by),
                ended_at=_later(effect.ended_at, then, by),
            )
            for effect in node.effects
        ],
        children=[_shift(child, then, by) for child in node.children],
    )


def _later(time: T, then: dt.datetime, by: dt.timedelta) -> T:
    """Return ``time`` plus ``by`` if it is not after ``then``, else ``time`` itself."""
    return time + by if time is not None and time <= then else time


def _lines(root: Node) -> Iterator[tuple[str, int, dt.datetime, dt.datetime | None]]:
    for node, depth in _walk(root, 0):
        if node.entered_at is not None:
            yield node_label(node), depth, node.entered_at, node.exited_at
        for effect in node.effects:
            mark = {"failed": "✗ ", "cancelled": "⊘ ", "timeout": "⊘ "}.get(effect.outcome or "", "")
            yield mark + placed_label(effect, node), depth + 1, effect.started_at, effect.ended_at


def node_label(node: Node) -> str:
    """Return the node's name, with the index or aspect of its path, and the visit: ``fan[3]``, ``fetch:call #2``."""
    name = node.node or "run"
    suffix = _SUFFIX.search(node.path.rpartition("/")[2])
    if node.kind == ELIDED:
        name += f": {node.name}"
    elif suffix and not name.endswith(suffix.group()):
        name += suffix.group()
    return f"{name} #{node.iteration}" if node.iteration > 1 else name


def effect_label(effect: Effect) -> str:
    """Name an effect in one line: its kind, its name, and the purpose of a model turn (turn, route …).

    The label of a child includes the run.
    """
    label = effect.kind if effect.name in ("", effect.kind) else f"{effect.kind} {effect.name}"
    if effect.type == ModelCall.type:
        purpose, *rest = effect.key.rpartition("!")[2].split(".")
        evaluator = ".".join(rest[:-1])
        label += "".join(f" {word}" for word in (purpose and f"· {purpose}", evaluator) if word)
    if effect.run is not None:
        label += f" → run {effect.run}"
    return " ".join(label.split())


def placed_label(effect: Effect, node: Node) -> str:
    """Name an effect of a node, with the index of its dispatch, if it has one."""
    found = _DISPATCH.match(effect.key, len(node.path)) if effect.key.startswith(f"{node.path}[") else None
    return effect_label(effect) + (f" {found.group()}" if found else "")


def _walk(node: Node, depth: int) -> Iterator[tuple[Node, int]]:
    yield node, depth
    for child in node.children:
        yield from _walk(child, depth + 1)


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def _share(time: dt.datetime, begin: dt.datetime, until: dt.datetime) -> float:
    whole = (until - begin).total_seconds()
    return (time - begin).total_seconds() / whole if whole else 0.0


def _bar(start: float, end: float, width: int) -> str:
    """Return a bar from ``start`` to ``end`` (fractions of the whole), at least one eighth of a column wide."""
    first = min(int(start * width), width - 1)
    eighths = max(1, min(round((end * width - first) * 8), (width - first) * 8))
    bar = _FULL * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return (" " * first + bar).ljust(width)


def _length_s(start: dt.datetime | None, end: dt.datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None
