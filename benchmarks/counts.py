"""Counts: the calls, messages and system calls of one step. They do not depend on the speed of the machine.

A worker performs a small run and a large one. The difference, divided by the number of further steps, is what a step
costs, without the start and the end of a run.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec

from benchmarks.counted_site import Site, Totals, open_site
from benchmarks.counted_worker import C, Function
from benchmarks.staffed import start_message
from callboard.lib.canonical_json import canonical

T = TypeVar("T")

ROUNDS = 3
"""How often the difference is taken; each count is the median."""

OWN = "benchmarks/counted_worker.py"
CALLERS = 3
"""How many callers of a function are listed."""

LEAST = 0.05
"""Rows of packages and system calls that are fewer in every workload are left out."""

PROCESSOR = "milliseconds of processor time, without a profiler: "
SYSTEM_CALLS = "system calls of the worker, without a profiler"


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


CODE = Path(__file__).with_name("peers") / "callboard_code.py"

WORKLOADS = {
    "chain": Workload("a node of the language workflow, with one turn of a scripted model", 50, 250, _chain),
    "tool": Workload("a node of the language workflow: a turn, a call of a tool, a turn", 20, 100, _tools),
    "fan-out": Workload("a call of a flow, parallel to the others", 200, 1_000, _fan_out),
    "python": Workload("a step of a workflow in Python, after the one before", 50, 250, _python, CODE),
    "run": Workload("a run of one node, after the one before", 10, 50, _runs),
}


class Counts(msgspec.Struct, frozen=True):
    """What a step costs. ``calls`` are those of functions by caller and callee, ``figures`` all other counts."""

    calls: Mapping[tuple[Function | None, Function], float]
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


def difference(before: Totals, between: Totals, after: Totals, steps: int) -> Counts:
    """Return the counts of a step from the totals before a small run, between it and a large one, and after that."""

    def each(count: Callable[[Totals], float]) -> float:
        return (count(after) - 2 * count(between) + count(before)) / steps

    calls = Counter[tuple[Function | None, Function]]()
    for totals, sign in ((before, 1), (between, -2), (after, 1)):
        for caller, function, count in totals.worker.calls:
            if OWN not in (function.file, "" if caller is None else caller.file):
                calls[caller, function] += sign * count
    found = Counts({pair: count / steps for pair, count in calls.items() if count}, {})
    functions = found.by_function()
    figures = {
        "function calls": sum(functions.values()),
        "  of Python": sum(count for function, count in functions.items() if function.package != C),
        "  of C": sum(count for function, count in functions.items() if function.package == C),
    }
    for name, (file, end) in MARKS.items():
        figures[name] = sum(n for one, n in functions.items() if one.file.startswith(file) and one.name.endswith(end))
    figures |= {
        "events": each(lambda one: one.events),
        "bytes stored": each(lambda one: one.bytes),
        "messages: worker sent": each(lambda one: one.worker.sent),
        "messages: worker received": each(lambda one: one.worker.received),
        "messages: server sent": each(lambda one: one.server_sent),
        "messages: server received": each(lambda one: one.server_received),
        "messages: observers sent": each(lambda one: one.observers_sent),
        "messages: observers received": each(lambda one: one.observers_received),
    }
    for name in after.processor_ms:
        figures[f"{PROCESSOR}{name}"] = each(lambda one, name=name: one.processor_ms[name])
    return Counts(found.calls, figures)


async def measure(site: Site, workload: Workload) -> Counts:
    """Perform few and many steps, and return the counts of a step."""
    before = await site.totals()
    await site.perform(workload.starts(workload.small))
    between = await site.totals()
    await site.perform(workload.starts(workload.large))
    return difference(before, between, await site.totals(), workload.large - workload.small)


def middle(rounds: Collection[Counts]) -> Counts:
    """Return the median of each count."""
    pairs = {pair for one in rounds for pair in one.calls}
    calls = {pair: median(one.calls.get(pair, 0.0) for one in rounds) for pair in pairs}
    names = [name for one in rounds for name in one.figures]
    return Counts(calls, {name: median(one.figures.get(name, 0.0) for one in rounds) for name in names})


async def count_steps(workload: Workload, rounds: int = ROUNDS) -> Counts:
    """Return the counts of a step of a workload, which a worker that does nothing else performs."""
    async with open_site(workload.code) as site:
        await site.perform(workload.starts(workload.small))
        return middle([await measure(site, workload) for _ in range(rounds)])


async def count_unprofiled(workload: Workload) -> dict[str, dict[str, float]]:
    """Return the system calls of a step at its worker, and the processor time of each process.

    Without strace, or where it may not trace processes, there are no system calls.
    """
    async with open_site(workload.code, counts_calls=False) as site:
        few, many = workload.starts(workload.small), workload.starts(workload.large)
        await site.perform(few)
        timed = middle([await measure(site, workload) for _ in range(ROUNDS)]).figures
        less, more = await site.system_calls(few), await site.system_calls(many)
    steps = workload.large - workload.small
    traced = {name: (count - less.get(name, 0)) / steps for name, count in more.items()}
    return {
        SYSTEM_CALLS: {"all": sum(traced.values())} | traced if traced else {},
        PROCESSOR: {name.removeprefix(PROCESSOR): n for name, n in timed.items() if name.startswith(PROCESSOR)},
    }


async def report(only: Collection[str], top: int) -> None:
    print("Counts of a step: the difference of two runs of one worker, divided by the further steps of the larger one")
    columns: dict[str, dict[str, dict[str, float]]] = {}
    for name in only or WORKLOADS:
        workload = WORKLOADS[name]
        print(f"{name}: {workload.step}")
        counts = await count_steps(workload)
        figures = {name: count for name, count in counts.figures.items() if not name.startswith(PROCESSOR)}
        columns[name] = {"": figures, "function calls by package": counts.by_package()}
        columns[name] |= await count_unprofiled(workload)
        if top:
            _print_functions(counts, top)
    _print_table(columns)
    if not any(column[SYSTEM_CALLS] for column in columns.values()):
        print("System calls were not counted: strace is not installed, or may not trace processes here.")


def place_of(function: Function) -> str:
    return f"{function.file}:{function.line} {function.name}" if function.file else function.name


def _print_functions(counts: Counts, top: int) -> None:
    for function, count in _most(counts.by_function())[:top]:
        callers = counts.callers_of(function)[:CALLERS]
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
