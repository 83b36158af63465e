"""Runners that choose and join branches: IF, SPLIT and MERGE."""

from callboard.languages.graph.budget import Budget
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import step_into
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.rules import INCLUSIVE_RANGES
from callboard.languages.graph.work import Outputs, Work, result
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON


async def condition(work: Work) -> Outputs:
    """IF: pass the data on at the port ``true`` or ``false``; an empty condition is false."""
    written = work.setting("condition_expression", "expression")
    holds = await work.compute(Work.holds, written if isinstance(written, str) else "")
    payload = {"data": work.inputs.get(RESULT), "condition_result": holds}
    ports: Ports = {"true": payload if holds else None, "false": None if holds else payload}
    return Outputs(ports, {"condition_result": holds, "branch_taken": "true" if holds else "false"})


async def split(work: Work) -> Outputs:
    """SPLIT: pass the data on at every port whose path is truthy; else its members at the ports of their names.

    If no port is taken that way, the data leaves at ``result``.
    """
    return await work.compute(_split)


def _split(work: Work) -> Outputs:
    data = work.inputs.get(RESULT)
    work.budget.take(1)
    paths = work.setting("predicate_paths")
    ports: Ports = {}
    if isinstance(paths, dict):
        ports = {port: data for port, path in paths.items() if isinstance(path, str) and work.value_in(work.data, path)}
    keys = work.setting("by_key")
    if not ports and isinstance(keys, list):
        found = {key: step_into(data, key, work.budget) for key in keys if isinstance(key, str)}
        ports = {key: value for key, value in found.items() if value is not None}
    return Outputs(ports) if ports else result(data)


async def merge(work: Work) -> Outputs:
    """MERGE: concatenate all values that arrived, lists item by item; a union may drop items with equal keys."""
    return await work.compute(_run_merge)


def _run_merge(work: Work) -> Outputs:
    merged: list[JSON] = []
    for value in work.arrivals:
        merged += value if isinstance(value, list) else [value]
    kept = merged
    if work.setting("merge_strategy") == "union":
        kept = _distinct(merged, str(work.setting("handle_duplicates")), work.text("merge_key"), work.budget)
    mapping = [{"source": RESULT, "range": [0, len(kept) - 1]}] if kept else []
    if work.rules < INCLUSIVE_RANGES and merged:
        mapping = [{"source": RESULT, "range": [0, len(merged)]}]
    stats = {
        "total_inputs": len(work.arrivals),
        "items_merged": len(kept),
        "duplicates_removed": len(merged) - len(kept),
        "merge_time_ms": 0,
    }
    return result({"merged_data": kept, "merge_stats": stats, "source_mapping": mapping})


def _distinct(items: list[JSON], handling: str, key: str, budget: Budget) -> list[JSON]:
    """Keep the first or the last of equal items, if ``handling`` asks for that, in the order of the kept items."""
    if handling not in ("remove_duplicates", "keep_first", "keep_last"):
        return items
    kept: dict[bytes, JSON] = {}
    for item in reversed(items) if handling == "keep_last" else items:
        kept.setdefault(_identity(item, key, budget), item)
    return list(reversed(kept.values())) if handling == "keep_last" else list(kept.values())


def _identity(item: JSON, key: str, budget: Budget) -> bytes:
    named = step_into(item, key, budget) if key and isinstance(item, dict) else None
    made = canonical(["item", item] if named is None else ["key", named])
    budget.take_text(len(made))
    return made
