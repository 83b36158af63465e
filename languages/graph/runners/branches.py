"""Runners that choose ways: IF and SPLIT."""

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import step_into
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.work import Outputs, Work, result


async def condition(work: Work) -> Outputs:
    """IF: the data goes to the port ``true`` or ``false``, the other is not taken; an empty condition is false."""
    written = work.setting("condition_expression", "expression")
    holds = await work.compute(Work.holds, written if isinstance(written, str) else "")
    payload = {"data": work.inputs.get(RESULT), "condition_result": holds}
    ports: Ports = {"true": payload if holds else None, "false": None if holds else payload}
    return Outputs(ports, {"condition_result": holds, "branch_taken": "true" if holds else "false"})


async def split(work: Work) -> Outputs:
    """SPLIT: the data to every port whose path is truthy; else its members to the ports of their names; else on."""
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
