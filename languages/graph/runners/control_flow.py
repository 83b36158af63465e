"""Runners that control the flow of a graph.

IF, SPLIT and MERGE choose and join branches. LOOP, WHILE and FOR_EACH fan out; they determine all rounds before the
first of them runs. DELAY and TIMEOUT wait.
"""

from msgspec.structs import replace

from callboard.languages.graph.budget import WorkBudget
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import step_into
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.runners.passthrough import passthrough
from callboard.languages.graph.times import iso, seconds_between
from callboard.languages.graph.topology import ITERATION
from callboard.languages.graph.work import Delay, NodeAttempt, NodeFailed, Outcome, Outputs, number, result
from callboard.languages.language import Instant
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON


async def condition(work: NodeAttempt) -> Outputs:
    """IF: pass the data on at the port ``true`` or ``false``; an empty condition is false."""
    written = work.setting("condition_expression", "expression")
    holds = await work.compute(NodeAttempt.holds, written if isinstance(written, str) else "")
    payload = {"data": work.inputs.get(RESULT), "condition_result": holds}
    ports: Ports = {"true": payload if holds else None, "false": None if holds else payload}
    return Outputs(ports, {"condition_result": holds, "branch_taken": "true" if holds else "false"})


async def split(work: NodeAttempt) -> Outputs:
    """SPLIT: pass the data on at every port whose path is truthy; else its members at the ports of their names.

    If no port is taken that way, the data leaves at ``result``.
    """
    return await work.compute(_split)


def _split(work: NodeAttempt) -> Outputs:
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


async def merge(work: NodeAttempt) -> Outputs:
    """MERGE: concatenate all values that arrived, lists item by item; a union may drop items with equal keys."""
    return await work.compute(_run_merge)


def _run_merge(work: NodeAttempt) -> Outputs:
    merged: list[JSON] = []
    for value in work.arrivals:
        merged += value if isinstance(value, list) else [value]
    kept = merged
    if work.setting("merge_strategy") == "union":
        kept = _distinct(merged, str(work.setting("handle_duplicates")), work.text("merge_key"), work.budget)
    mapping = [{"source": RESULT, "range": [0, len(kept) - 1]}] if kept else []
    stats = {
        "total_inputs": len(work.arrivals),
        "items_merged": len(kept),
        "duplicates_removed": len(merged) - len(kept),
        "merge_time_ms": 0,
    }
    return result({"merged_data": kept, "merge_stats": stats, "source_mapping": mapping})


def _distinct(items: list[JSON], handling: str, key: str, budget: WorkBudget) -> list[JSON]:
    """Keep the first or the last of equal items, if ``handling`` asks for that, in the order of the kept items."""
    if handling not in ("remove_duplicates", "keep_first", "keep_last"):
        return items
    kept: dict[bytes, JSON] = {}
    for item in reversed(items) if handling == "keep_last" else items:
        kept.setdefault(_identity(item, key, budget), item)
    return list(reversed(kept.values())) if handling == "keep_last" else list(kept.values())


def _identity(item: JSON, key: str, budget: WorkBudget) -> bytes:
    named = step_into(item, key, budget) if key and isinstance(item, dict) else None
    made = canonical(["item", item] if named is None else ["key", named])
    budget.take_text(len(made))
    return made


ROUNDS_MAX = 100_000
"""The greatest number of rounds, whatever the node's configuration allows."""


async def loop(work: NodeAttempt) -> Outputs:
    """LOOP: put an item for each round out at ``iteration``, and a summary at ``completed`` and ``result``."""
    return await work.compute(_run_loop)


def _run_loop(work: NodeAttempt) -> Outputs:
    match work.setting("loop_type"):
        case "for_each":
            rounds = _each(work)
        case "while":
            rounds = _while(work)
        case _:
            rounds = _range(work)
    return _outputs(work, rounds)


async def while_loop(work: NodeAttempt) -> Outputs:
    """WHILE: a LOOP of the type ``while``; without a condition pass through."""
    if not work.setting("loop_condition", "condition_expression"):
        return await passthrough(work)
    return await work.compute(lambda counted: _outputs(counted, _while(counted)))


async def for_each(work: NodeAttempt) -> Outputs:
    """FOR_EACH: put the items of the input out at ``iteration`` and ``result``."""
    match work.data:
        case list() as items:
            pass
        case {"items": list() as items}:
            pass
        case data:
            items = [data]
    return Outputs({ITERATION: items, RESULT: items})


def _outputs(work: NodeAttempt, rounds: list[JSON]) -> Outputs:
    variable = work.text("iteration_variable") or "index"
    work.budget.take(len(rounds))
    items: list[JSON] = [{variable: value} for value in rounds]
    summary = {
        "final_result": work.inputs.get(RESULT),
        "iteration_results": items,
        "successful_iterations": len(items),
        "failed_iterations": 0,
    }
    return Outputs({ITERATION: items, "completed": summary, RESULT: summary})


def _most(work: NodeAttempt) -> int:
    return max(0, min(int(work.number("max_iterations", otherwise=100)), ROUNDS_MAX))


def _range(work: NodeAttempt) -> list[JSON]:
    """Count from start to end, the end included."""
    start, end = int(work.number("start_value")), int(work.number("end_value"))
    step = int(work.number("step_value", otherwise=1))
    if not step:
        raise NodeFailed("graph.configuration", "step_value is 0: such a loop has no end", final=True)
    return list(range(start, end + (1 if step > 0 else -1), step)[: _most(work)])


def _each(work: NodeAttempt) -> list[JSON]:
    path = work.setting("array_path")
    found = work.value_in(work.data, path) if isinstance(path, str) and path.strip() else work.data
    return found[: _most(work)] if isinstance(found, list) else []


def _while(work: NodeAttempt) -> list[JSON]:
    condition = work.setting("loop_condition", "condition_expression")
    written = condition if isinstance(condition, str) else ""
    rounds: list[JSON] = []
    scope, most = work.scope(), _most(work)
    while len(rounds) < most and work.holds(written, replace(scope, local={"iteration": len(rounds)})):
        rounds.append(len(rounds))
    return rounds


async def delay(work: NodeAttempt) -> Outcome:
    """DELAY: pass the data on after a pause; ``delay_config`` of the input overrides its length."""
    override = work.input_member("delay_config")
    seconds = _seconds(override if isinstance(override, dict) else {})
    if seconds is None:
        seconds = _seconds(work.spec.configurations)
    planned = number(work.setting("duration_seconds")) if seconds is None else seconds

    def after(start: Instant, end: Instant) -> Outputs:
        info = {
            "planned_delay_seconds": planned,
            "actual_delay_seconds": seconds_between(start, end),
            "delay_start_time": iso(start),
            "delay_end_time": iso(end),
            "delay_type_used": "fixed",
            "was_cancelled": False,
        }
        return Outputs({RESULT: {"data": work.inputs.get(RESULT), "delay_info": info}})

    return Delay(planned, after)


def _seconds(given: dict[str, JSON]) -> float | None:
    for name, unit in (("duration_seconds", 1.0), ("delay_seconds", 1.0), ("delay_ms", 0.001)):
        if given.get(name) is not None:
            return number(given[name]) * unit
    return None


async def timeout(work: NodeAttempt) -> Outcome:
    """TIMEOUT: pass the data on at ``completed`` if the condition holds at once, else at ``timeout`` after the time."""
    data = work.inputs.get(RESULT)
    condition = work.setting("condition_expression", "expression")
    if isinstance(condition, str) and await work.compute(NodeAttempt.holds, condition):
        port = "timeout" if work.setting("immediate_timeout") is True else "completed"
        return Outputs({port: data, RESULT: data})
    seconds = number(work.setting("timeout_seconds")) or number(work.setting("timeout_ms")) / 1000
    return Delay(seconds, lambda _start, _end: Outputs({"timeout": data, RESULT: data}))
