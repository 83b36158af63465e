"""Budgets of a step, in counts, which do not depend on the speed of the machine.

A change that makes a step cheaper lowers the budget in the same commit, and a commit that raises one says why.
`python -m benchmarks counts --only chain --top 60` lists the functions that a step calls.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.counted_site import open_site
from benchmarks.counts import CODE, WORKLOADS, count_steps, rest

pytestmark = pytest.mark.usefixtures("own_servers")

CALLS = "function calls"

BUDGETS = {
    CALLS: {"chain": 940, "tool": 4_000, "fan-out": 595, "python": 1_170, "run": 5_050},
    "loop iterations": {"chain": 2.2, "tool": 17.5, "fan-out": 0.1, "python": 10, "run": 20.5},
    "tasks created": {"chain": 0, "tool": 4, "fan-out": 0, "python": 2, "run": 4},
    "cancel scopes entered": {"chain": 0, "tool": 7, "fan-out": 0, "python": 1, "run": 10},
    "anyio events created": {"chain": 0, "tool": 10, "fan-out": 0, "python": 0, "run": 12},
    "events": {"chain": 5, "tool": 11, "fan-out": 2, "python": 2, "run": 11},
    "bytes stored": {"chain": 3_620, "tool": 7_600, "fan-out": 1_470, "python": 1_180, "run": 7_400},
    "messages: worker sent": {"chain": 6, "tool": 12, "fan-out": 2, "python": 2, "run": 15},
    "messages: worker received": {"chain": 1, "tool": 4, "fan-out": 0, "python": 1, "run": 6},
    "messages: observers received": {"chain": 0, "tool": 0, "fan-out": 0, "python": 0, "run": 4},
}
"""With Python 3.11. Later versions call fewer functions."""

SIZES = {"chain": (10, 60), "tool": (5, 25), "fan-out": (50, 250), "python": (10, 60), "run": (2, 12)}
"""The steps of the small and of the large run, fewer than in the benchmark."""

SHARE, LEAST = 0.1, 0.4
"""How far a count may be from its budget: a tenth, or this number."""

ROUNDS = 3
"""How often a step is counted if it was out of its budget."""

REST_S = 1.0


@pytest.mark.parametrize("code", [None, CODE], ids=["declared", "python"])
async def test_a_step_costs_its_budget(code: Path | None) -> None:
    problems: list[str] = []
    async with open_site(code) as site:
        resting = await rest(site, REST_S)
        for name, (small, large) in SIZES.items():
            if WORKLOADS[name].code == code:
                workload = replace(WORKLOADS[name], small=small, large=large)
                found = find_problems(name, (await count_steps(site, workload, resting, 1)).figures)
                if found:
                    # A heartbeat may have fallen into a run.
                    found = find_problems(name, (await count_steps(site, workload, resting, ROUNDS)).figures)
                problems += found
    assert not problems, "\n".join(problems)


def find_problems(workload: str, figures: Mapping[str, float]) -> list[str]:
    """Compare the counts of a step with its budgets."""
    problems: list[str] = []
    for name, budgets in BUDGETS.items():
        budget, found = budgets[workload], figures[name]
        far = max(SHARE * budget, LEAST)
        if found > budget + far:
            problems.append(f"{workload}: {found:.1f} {name} exceed the budget of {budget:,}")
        elif found < budget - far and (name != CALLS or sys.version_info < (3, 12)):
            problems.append(f"{workload}: {found:.1f} {name}: lower the budget of {budget:,}")
    return problems


def test_a_count_beyond_a_tenth_of_its_budget_is_a_problem() -> None:
    figures = {name: float(budgets["chain"]) for name, budgets in BUDGETS.items()}
    assert find_problems("chain", figures) == []
    assert find_problems("chain", figures | {CALLS: 1.09 * figures[CALLS]}) == []
    assert len(find_problems("chain", figures | {CALLS: 1.11 * figures[CALLS]})) == 1
    assert len(find_problems("chain", figures | {"bytes stored": 0.89 * figures["bytes stored"]})) == 1
