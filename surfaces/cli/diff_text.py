"""The differences between two runs as text: a section for each subject, cut where it gets long.

Lines with ``-`` are of the left run, with ``+`` of the right one, with ``~`` of both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET

from callboard.bus.effects import Failure
from callboard.bus.events import OutlineEdge, OutlineNode
from callboard.bus.prices import dollars
from callboard.projections.comparison.account import Measure
from callboard.projections.comparison.diff import DefinitionChange, NodeChange, Pair, Parting, RunDiff, SourceDrift
from callboard.projections.comparison.first_requests import Sight
from callboard.projections.comparison.json_differences import Difference
from callboard.projections.comparison.shared_events import Shared
from callboard.projections.trace.text_renderings import duration_text
from callboard.service.operations.narration import short
from callboard.surfaces.cli.output import style, table

LINES_MAX = 12
"""How many lines of a list of differences or of a text diff are shown; JSON has all of them."""

PATH_STEPS_MAX = 30

_COLOURS = {"-": "red", "+": "green", "~": "yellow", "@": "cyan"}


def diff_text(diff: RunDiff) -> str:
    """Return the comparison as text: the verdict, the differences, and the measures."""
    verdict = style("equal", fg="green", bold=True) if diff.equal else style("differ", fg="red", bold=True)
    lines = [f"{diff.left} and {diff.right}: {verdict}"]
    if diff.shared is not None:
        lines.append(f"They share events 2 to {diff.shared.n}; the differences are in later events.")
    for title, found in _sections(diff):
        told = list(found)
        if told:
            lines += ["", style(title, bold=True), *told]
    return "\n".join([*lines, "", *_measures(diff)])


def _sections(diff: RunDiff) -> Iterator[tuple[str, Iterable[str]]]:
    yield "Definition", _definition(diff.definition) if diff.definition else ()
    yield "Start", _differences(diff.start)
    yield "Sources", (line for drift in diff.sources for line in _source(drift))
    yield "Differences in shared events", _mark_replaced(diff.shared) if diff.shared else ()
    yield "Path", _path(diff)
    yield "Requests to models", _sight(diff.sight) if diff.sight else ()
    yield "Nodes", (line for change in diff.nodes for line in _node(change))
    used = {f"model {name}": pair for name, pair in diff.models.items()}
    yield "Model turns and tool calls", _counts(used | {f"tool {name}": pair for name, pair in diff.tools.items()})
    yield "Output", _differences(diff.output)
    yield "Status", _status(diff)


def _line(mark: str, text: str, depth: int = 1) -> str:
    return f"{'  ' * depth}{style(mark, fg=_COLOURS.get(mark))} {text}"


def _cut(lines: Sequence[str], what: str, depth: int = 1) -> Iterator[str]:
    yield from lines[:LINES_MAX]
    if len(lines) > LINES_MAX:
        yield f"{'  ' * depth}… {len(lines) - LINES_MAX} more {what} (--json has all)"


def _definition(change: DefinitionChange) -> Iterator[str]:
    yield _line("-", f"{change.name.left} ({change.language.left}, {change.hash.left[:12]})")
    yield _line("+", f"{change.name.right} ({change.language.right}, {change.hash.right[:12]})")
    outline = [_line("-", f"node {_outline_node(node)}") for node in change.nodes_removed]
    outline += [_line("+", f"node {_outline_node(node)}") for node in change.nodes_added]
    outline += [
        _line("~", f"node {_outline_node(pair.left)} → {_outline_node(pair.right)}") for pair in change.nodes_changed
    ]
    outline += [_line("-", f"edge {_edge(edge)}") for edge in change.edges_removed]
    outline += [_line("+", f"edge {_edge(edge)}") for edge in change.edges_added]
    yield from _cut(outline, "changes of the outline")
    yield from _text(change.text)


def _outline_node(node: OutlineNode) -> str:
    told = [node.id] if node.name in ("", node.id) else [node.id, f"“{short(node.name)}”"]
    return " ".join([*told, *(word for word in (node.type, node.subtype) if word and word != "node")])


def _edge(edge: OutlineEdge) -> str:
    return f"{edge.source} → {edge.target}" + (f"  when {short(edge.when)}" if edge.when else "")


def _text(lines: Sequence[str]) -> Iterator[str]:
    """Yield a unified diff, indented by one more step."""
    told = [f"    {style(line, fg=_COLOURS.get(line[:1]))}" for line in lines]
    yield from _cut(told, "lines", 2)


def _source(drift: SourceDrift) -> Iterator[str]:
    sides = [_hash(drift.hash.left), _hash(drift.hash.right)]
    origins = list(dict.fromkeys(short(one) for one in (drift.origin.left, drift.origin.right) if one is not None))
    yield _line("~", f"{drift.field}  {sides[0]} → {sides[1]}  ({' → '.join(origins)})")
    yield from _text(drift.text)


def _hash(value: str | None) -> str:
    return value[:12] if value else "none"


def _differences(found: Sequence[Difference], depth: int = 1, of: str = "") -> Iterator[str]:
    yield from _cut([line for each in found for line in _difference(each, depth, of)], "differences", depth)


def _difference(each: Difference, depth: int, of: str) -> Iterator[str]:
    where = f"{of}{each.pointer}" or "(whole value)"
    if each.left is UNSET:
        yield _line("+", f"{where}  {short(each.right)}", depth)
    elif each.right is UNSET:
        yield _line("-", f"{where}  {short(each.left)}", depth)
    else:
        yield _line("~", f"{where}  {_both(each.left, each.right)}", depth)


def _both(left: object, right: object) -> str:
    """Quote two values; long texts with the same beginning are cut shortly before they differ."""
    if isinstance(left, str) and isinstance(right, str):
        same = _alike(left, right)
        if same > 40:
            left, right = f"…{left[same - 20 :]}", f"…{right[same - 20 :]}"
        return f"“{short(left)}” → “{short(right)}”"
    return f"{_quote(left)} → {_quote(right)}"


def _alike(left: str, right: str) -> int:
    """Count the characters with which two texts begin alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(left), len(right)))


def _quote(value: object) -> str:
    return f"“{short(value)}”" if isinstance(value, str) else short(value)


def _mark_replaced(common: Shared) -> Iterator[str]:
    for event in common.replaced:
        yield _line("~", " ".join(["event", str(event.n), event.type, event.path]).rstrip())
        yield from _differences(event.payload, 2)


def _sight(sight: Sight) -> Iterator[str]:
    yield _line("~", f"first at {sight.key} (event {sight.left}, event {sight.right})")
    yield from _differences(sight.request, 2)


def _path(diff: RunDiff) -> Iterator[str]:
    if diff.path.left == diff.path.right and not diff.parting:
        return
    if diff.path.left != diff.path.right:
        yield _line("-", _steps(diff.path.left))
        yield _line("+", _steps(diff.path.right))
    if diff.parting:
        beginning = "after the shared events" if diff.shared else "at the beginning"
        yield f"  {_parting(diff.parting, beginning)}"
    yield from _cut([_line("~", f"{path}: {_times(pair)}") for path, pair in diff.visits.items()], "nodes")


def _steps(steps: Sequence[str]) -> str:
    shown = " → ".join(steps[:PATH_STEPS_MAX])
    return f"{shown} → … {len(steps) - PATH_STEPS_MAX} more" if len(steps) > PATH_STEPS_MAX else shown or "(nowhere)"


def _parting(parting: Parting, beginning: str) -> str:
    sides = [
        (", ".join(targets) or "nothing") + (f" ({short('; '.join(filter(None, reasons)))})" if any(reasons) else "")
        for targets, reasons in ((parting.left, parting.reasons.left), (parting.right, parting.reasons.right))
    ]
    where = f"after {parting.after}" if parting.after else beginning
    return f"They diverge {where}: {sides[0]} on the left, {sides[1]} on the right."


def _times(pair: Pair) -> str:
    return f"{pair.left}× → {pair.right}×"


def _node(change: NodeChange) -> Iterator[str]:
    name = change.path if change.iteration <= 1 else f"{change.path}#{change.iteration}"
    if change.outcome.right is None:
        yield _line("-", f"{name}  {change.outcome.left}")
        return
    if change.outcome.left is None:
        yield _line("+", f"{name}  {change.outcome.right}")
        return
    same = change.outcome.left == change.outcome.right
    yield _line("~", f"{name}  {change.outcome.left if same else f'{change.outcome.left} → {change.outcome.right}'}")
    if change.retries:
        yield _line("~", f"retries: {change.retries.left} → {change.retries.right}", 2)
    if change.error:
        yield from _errors(change.error, 2)
    yield from _differences(change.input, 2, "input")
    yield from _differences(change.result, 2)
    yield from _counts(change.effects, 2)


def _counts(counts: Mapping[str, Pair], depth: int = 1) -> Iterator[str]:
    yield from _cut([_line("~", f"{name}: {_times(pair)}", depth) for name, pair in counts.items()], "counts", depth)


def _errors(error: Pair, depth: int = 1) -> Iterator[str]:
    for mark, side in (("-", error.left), ("+", error.right)):
        if isinstance(side, Failure):
            yield _line(mark, f"{side.code}: {short(side.message)}", depth)


def _status(diff: RunDiff) -> Iterator[str]:
    if diff.status.left != diff.status.right:
        yield _line("~", f"{diff.status.left} → {diff.status.right}")
    if diff.error:
        yield from _errors(diff.error)


def _measures(diff: RunDiff) -> Iterator[str]:
    """Yield a table of durations, tokens and costs of both runs."""
    rows = [("", *(short(run) for run in (diff.left, diff.right)))]
    measures = [("run", diff.measures.run), *diff.measures.executions.items()]
    rows += [(name, _measure(pair.left), _measure(pair.right)) for name, pair in measures]
    hidden = len(rows) - 1 - LINES_MAX
    rows = rows[: LINES_MAX + 1]
    yield style("Durations, tokens in/out, costs", bold=True)
    yield from (f"  {line}" for line in table(rows).split("\n"))
    if hidden > 0:
        yield f"  … {hidden} more nodes (--json has all)"


def _measure(measure: Measure) -> str:
    used = f"  {measure.input_tokens}/{measure.output_tokens}" if measure.input_tokens or measure.output_tokens else ""
    return duration_text(measure.duration_s) + used + (f"  {dollars(measure.cost)}" if measure.cost else "")
