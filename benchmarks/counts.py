"""Counts: the calls, messages and system calls of one step. They do not depend on the speed of the machine.

A worker performs a small run and a large one. The difference, divided by the number of further steps, is what a step
costs, without the start and the end of a run.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import anyio
import msgspec

from benchmarks.counted_site import PROCESSOR, Call, Site, Totals, open_site
from benchmarks.counted_worker import C, Function
from benchmarks.staffed import start_message
from callboard.lib.canonical_json import canonical

T = TypeVar("T")

ROUNDS = 5
"""How often the difference is taken; each count is the median."""

REST_S = 2.0
"""How long a worker is counted that performs no run. Its heartbeats do not belong to a step."""

OWN = "benchmarks/counted_worker.py"
CALLERS = 3
"""How many callers of a function are listed."""

LEAST = 0.05
"""Callers, packages and system calls that are fewer are left out."""

SYSTEM_CALLS = "system calls of the worker"


class Workload(msgspec.Struct, frozen=True):
    """Runs with a number of steps that can be chosen, the definition of a step, and the code that the worker hosts."""

    step: str
    small: int
    large: int
    starts: Callable[[int], list[dict[str, Any]]]
    code: Path | None = None


def _chain(nodes: int) -> list[dict[str, Any]]:
    return [start_message(nodes, "") | {"options": {"max_steps": 2 * nodes}}]


def _runs(runs: int) -> list[dict[str, Any]]:
    return [start_message(1, "") for _ in range(runs)]


def _fan_out(width: int) -> list[dict[str, Any]]:
    call = {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"value": 1}}
    steps = {
        "all": {"action": "Gather", "over": f"{{{{ lists.range({width}) }}}}", "call": call, "next": "done"},
        "done": {"action": "Return"},
    }
    document = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "all", "steps": steps}
    return [{"definition": {"language": "flow", "source": canonical(document).decode()}}]


def _python(steps: int) -> list[dict[str, Any]]:
    return [{"definition": {"name": "chain"}, "input": {"steps": steps}}]


def _tools(nodes: int) -> list[dict[str, Any]]:
    document = {
        "id": f"tools-{nodes}",
        "name": "Tools",
        "entry": "n0",
        "nodes": {f"n{i}": {"name": f"Node {i}", "instruction": "Look.", "skills": ["look"]} for i in range(nodes)},
        "edges": [{"from": f"n{i}", "to": f"n{i + 1}"} for i in range(nodes - 1)],
    }
    tools = [{"name": "look", "description": "Look.", "input_schema": {}}]
    skill = {"id": "look", "name": "Look", "description": "Looks.", "category": "general", "tools": tools}
    turns = [{"tool_calls": [{"tool": "look", "input": {}}]}, {"text": "ok"}]
    start = {
        "definition": {"language": "workflow", "source": canonical(document).decode()},
        "model": "scripted",
        "script": {
            "turns": {f"n{i}": turns for i in range(nodes)},
            "tools": {"look": [{"output": "seen"}] * nodes},
        },
        "options": {"max_steps": 2 * nodes, "skills": [skill]},
    }
    return [start]


CODE = Path(__file__).with_name("counted_code.py")

WORKLOADS = {
    "chain": Workload("a node of the language workflow, with one turn of a scripted model", 50, 250, _chain),
    "tool": Workload("a node of the language workflow: a turn, a call of a tool, a turn", 20, 100, _tools),
    "fan-out": Workload("a call of a flow, parallel to the others", 200, 1_000, _fan_out),
    "python": Workload("a step of a workflow in Python, after the one before", 50, 250, _python, CODE),
    "run": Workload("a run of one node, after the one before", 10, 50, _runs),
}


class Counts(msgspec.Struct, frozen=True):
    """The counts of a step. ``calls`` are those of functions by caller and callee, ``figures`` all others by name."""

    calls: Mapping[Call, float]
    figures: Mapping[str, float]

    def by_function(self) -> dict[Function, float]:
        """Return the calls of each function."""
        found = defaultdict[Function, float](float)
        for (_caller, function), count in self.calls.items():
            found[function] += count
        return found

    def by_package(self) -> dict[str, float]:
        """Return the calls of each package: of its Python functions, and of functions in C from them."""
        found = defaultdict[str, float](float)
        for (caller, function), count in self.calls.items():
            found[function.package if function.package != C or caller is None else caller.package] += count
        return found

    def callers_of(self, function: Function) -> list[tuple[Function, float]]:
        """Return the callers of a function, and how often each calls it."""
        found = {caller: n for (caller, callee), n in self.calls.items() if callee == function and caller is not None}
        return _most(found)


MARKS = {
    "loop iterations": ("asyncio/base_events.py", "BaseEventLoop._run_once"),
    "tasks created": ("", "Loop.create_task"),
    "cancel scopes entered": ("anyio/", "CancelScope.__enter__"),
    "anyio events created": ("anyio/", "Event.__init__"),
}
"""Figures that are the calls of a function: the beginning of its file, and the end of its name."""


def second_difference(before: Totals, between: Totals, after: Totals) -> Totals:
    """Return by how much more the second interval between three totals counted than the first."""
    counts = defaultdict[Call | str, float](float)
    for totals, sign in ((before, 1), (between, -2), (after, 1)):
        for name, count in totals.counts.items():
            counts[name] += sign * count
    return Totals(after.at - 2 * between.at + before.at, counts)


async def rest(site: Site, seconds: float) -> Totals:
    """Return the counts of a worker that performs no run, without those of counting."""
    before, between = await site.totals(), await site.totals()
    await anyio.sleep(seconds)
    return second_difference(before, between, await site.totals())


async def measure(site: Site, workload: Workload, resting: Totals) -> Counts:
    """Perform few and many steps; return the counts of a step, without those of the rest that it would have been."""
    before = await site.totals()
    await site.perform(workload.starts(workload.small))
    between = await site.totals()
    await site.perform(workload.starts(workload.large))
    more = second_difference(before, between, await site.totals())
    steps, share = workload.large - workload.small, more.at / resting.at
    found = {name: (count - share * resting.counts.get(name, 0.0)) / steps for name, count in more.counts.items()}
    calls = {name: count for name, count in found.items() if not isinstance(name, str) and not _is_ours(name)}
    others = {name: count for name, count in found.items() if isinstance(name, str)}
    return Counts(calls, _figures_of(calls) | others)


def _is_ours(call: Call) -> bool:
    caller, function = call
    return OWN in (function.file, caller.file if caller is not None and function.package == C else "")


def _figures_of(calls: Mapping[Call, float]) -> dict[str, float]:
    functions = Counts(calls, {}).by_function()
    figures = {
        "function calls": sum(functions.values()),
        "  of Python": sum(count for function, count in functions.items() if function.package != C),
        "  of C": sum(count for function, count in functions.items() if function.package == C),
    }
    for name, (file, end) in MARKS.items():
        figures[name] = sum(n for one, n in functions.items() if one.file.startswith(file) and one.name.endswith(end))
    return figures


def middle(rounds: Collection[Counts]) -> Counts:
    """Return the median of each count."""
    pairs = {pair for one in rounds for pair in one.calls}
    calls = {pair: median(one.calls.get(pair, 0.0) for one in rounds) for pair in pairs}
    names = dict.fromkeys(name for one in rounds for name in one.figures)
    return Counts(calls, {name: median(one.figures.get(name, 0.0) for one in rounds) for name in names})


async def count_steps(site: Site, workload: Workload, resting: Totals, rounds: int = ROUNDS) -> Counts:
    """Return the median counts of a step. The first runs of both definitions do not count: they fill caches."""
    await site.perform([*workload.starts(workload.large), *workload.starts(workload.small)])
    return middle([await measure(site, workload, resting) for _ in range(rounds)])


async def count_system_calls(site: Site, workload: Workload) -> dict[str, float]:
    """Return the system calls of a step at its worker, none if they cannot be traced here."""
    less = await site.system_calls(workload.starts(workload.small))
    more = await site.system_calls(workload.starts(workload.large))
    steps = workload.large - workload.small
    return {name: (count - less.get(name, 0)) / steps for name, count in more.items()}


async def report(only: Collection[str], top: int) -> None:
    print("Counts of a step: the difference of two runs of one worker, divided by the further steps of the larger one")
    columns: dict[str, dict[str, dict[str, float]]] = {}
    for name in only or WORKLOADS:
        workload = WORKLOADS[name]
        print(f"{name}: {workload.step}")
        async with open_site(workload.code) as site:
            counts = await count_steps(site, workload, await rest(site, REST_S))
        async with open_site(workload.code, counts_calls=False) as site:
            timed = (await count_steps(site, workload, await rest(site, REST_S))).figures
            traced = await count_system_calls(site, workload)
        columns[name] = {
            "": {name: count for name, count in counts.figures.items() if not name.startswith(PROCESSOR)},
            "function calls by package": counts.by_package(),
            SYSTEM_CALLS: {"all": sum(traced.values())} | traced if traced else {},
            "without a profiler": {name: count for name, count in timed.items() if name.startswith(PROCESSOR)},
        }
        if top:
            _print_functions(counts, top)
    _print_table(columns)
    if not any(column[SYSTEM_CALLS] for column in columns.values()):
        print("System calls were not counted: strace is not installed, or may not trace processes here.")


def place_of(function: Function) -> str:
    return f"{function.file}:{function.line} {function.name}" if function.file else function.name


def _print_functions(counts: Counts, top: int) -> None:
    for function, count in _most(counts.by_function())[:top]:
        callers = [one for one in counts.callers_of(function)[:CALLERS] if one[1] >= LEAST]
        print(f"{count:>9.2f}  {place_of(function)} < {', '.join(f'{place_of(one)} {n:.1f}' for one, n in callers)}")


def _most(counts: Mapping[T, float]) -> list[tuple[T, float]]:
    return sorted(counts.items(), key=lambda one: -one[1])


def _print_table(columns: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    print(f"{'':32}" + "".join(f"{name:>10}" for name in columns))
    for section in dict.fromkeys(section for column in columns.values() for section in column):
        print(section)
        most = dict[str, float]()
        for column in columns.values():
            most |= {name: max(n, most.get(name, 0.0)) for name, n in column[section].items()}
        for name, n in most.items() if not section else _most(most):
            if n >= LEAST or not section:
                cells = (column[section].get(name) for column in columns.values())
                print(f"  {name:30}" + "".join(f"{'' if n is None else format(n, ',.2f'):>10}" for n in cells))
