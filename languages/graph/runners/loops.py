"""Runners that fan out: LOOP, WHILE and FOR_EACH. They determine all rounds before the first of them runs."""

from msgspec.structs import replace

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.runners.passthrough import passthrough
from callboard.languages.graph.topology import ITERATION
from callboard.languages.graph.work import NodeFailed, Outputs, Work
from callboard.lib.json_types import JSON

ROUNDS_MAX = 100_000
"""The greatest number of rounds, whatever the node's configuration allows."""


async def loop(work: Work) -> Outputs:
    """LOOP: put an item for each round out at ``iteration``, and a summary at ``completed`` and ``result``."""
    return await work.compute(_run_loop)


def _run_loop(work: Work) -> Outputs:
    match work.setting("loop_type"):
        case "for_each":
            rounds = _each(work)
        case "while":
            rounds = _while(work)
        case _:
            rounds = _range(work)
    return _outputs(work, rounds)


async def while_loop(work: Work) -> Outputs:
    """WHILE: a LOOP of the type ``while``; without a condition pass through."""
    if not work.setting("loop_condition", "condition_expression"):
        return await passthrough(work)
    return await work.compute(lambda counted: _outputs(counted, _while(counted)))


async def for_each(work: Work) -> Outputs:
    """FOR_EACH: put the items of the input out at ``iteration`` and ``result``."""
    match work.data:
        case list() as items:
            pass
        case {"items": list() as items}:
            pass
        case data:
            items = [data]
    return Outputs({ITERATION: items, RESULT: items})


def _outputs(work: Work, rounds: list[JSON]) -> Outputs:
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


def _most(work: Work) -> int:
    return max(0, min(int(work.number("max_iterations", otherwise=100)), ROUNDS_MAX))


def _range(work: Work) -> list[JSON]:
    """Count from start to end, the end included."""
    start, end = int(work.number("start_value")), int(work.number("end_value"))
    step = int(work.number("step_value", otherwise=1))
    if not step:
        raise NodeFailed("graph.configuration", "step_value is 0: such a loop has no end", final=True)
    return list(range(start, end + (1 if step > 0 else -1), step)[: _most(work)])


def _each(work: Work) -> list[JSON]:
    path = work.setting("array_path")
    found = work.value_in(work.data, path) if isinstance(path, str) and path.strip() else work.data
    return found[: _most(work)] if isinstance(found, list) else []


def _while(work: Work) -> list[JSON]:
    condition = work.setting("loop_condition", "condition_expression")
    written = condition if isinstance(condition, str) else ""
    rounds: list[JSON] = []
    scope, most = work.scope(), _most(work)
    while len(rounds) < most and work.holds(written, replace(scope, local={"iteration": len(rounds)})):
        rounds.append(len(rounds))
    return rounds
