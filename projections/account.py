"""What a run amounts to, for a comparison with another: what it was given, the way it took, what came of it.

Folded from the trace and the run's first events. Whatever differs between any two runs (ids, instants, workers) is left
out; durations, tokens and costs are kept apart, as measures. Of runs that have their first events in common only what
lies behind those is accounted for.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import JSON, Failure, Usage
from callboard.bus.events import DefinitionRef, Event, ModelCall, NodeEnter, Outline, RunAccepted, RunEnd, RunStart
from callboard.bus.prices import Cost, Prices, added
from callboard.projections.projection import known
from callboard.projections.renders import effect_label
from callboard.projections.run_result import Results
from callboard.projections.trace import TraceFold
from callboard.projections.tree import Effect, Node, Step

_GIVEN_ELSEWHERE = frozenset({"definition", "name", "run_id", "fork", "files", "input", "arguments", "options"})
"""Members of a start message that are told by themselves, or name the run or what it goes on from."""


class Measure(Struct, frozen=True):
    """What a run or a node took: seconds from its beginning to its end (None while it goes on), tokens, and what these
    cost, None where none were used."""

    duration_s: float | None
    input_tokens: int
    output_tokens: int
    cost: Cost | None = None


class Execution(Struct, frozen=True):
    """An execution of a node. ``effects`` counts what it had done, by what that is called (``tool search``)."""

    path: str
    iteration: int
    outcome: str
    retries: int
    input: JSON
    result: JSON
    error: Failure | None
    effects: dict[str, int]
    routes: list[Step]
    measure: Measure


class Account(Struct, frozen=True, kw_only=True):
    """A run. ``start`` has its start message and what the worker gave; ``executions`` are in the order of enters."""

    run: str
    status: str
    definition: DefinitionRef
    name: str
    outline: Outline
    start: dict[str, Any]
    sources: dict[str, dict[str, JSON]]
    executions: list[Execution]
    models: dict[str, int]
    tools: dict[str, int]
    output: JSON
    error: Failure | None
    measure: Measure


class Accounting:
    """Folds one run into an `Account` of what lies behind event ``after``: executions that went on there, and what
    they did there. What the run was given and what it came to is told in any case. ``prices`` are the list prices, if
    none are given."""

    def __init__(self, prices: Prices | None = None, after: int = 0) -> None:
        self._after = after
        self._parted_at: dt.datetime | None = None
        self._inputs: dict[tuple[str, int], JSON] = {}
        self._trace = TraceFold(prices)
        self._results = Results(prices)
        self._accepted = RunAccepted(DefinitionRef("", "", ""), {})
        self._start: RunStart | None = None
        self._output: JSON = None

    def apply(self, event: Event) -> None:
        self._trace.apply(event)
        self._results.apply(event)
        if event.n > self._after > 0 and self._parted_at is None:
            self._parted_at = event.time
        match known(event):
            case RunAccepted() as accepted:
                self._accepted = accepted
            case RunStart() as start:
                self._start = start
            case NodeEnter(input=given):
                self._inputs[event.path, event.iteration] = given
            case RunEnd(output=output):
                self._output = output
            case _:
                pass

    def view(self) -> Account:
        trace, result = self._trace.view(), self._results.view()
        executions = [node for node in _walk(trace.root) if node.path and self._went_on(node)]
        effects = [effect for node in _walk(trace.root) for effect in self._done(node)]
        models, tools = _used(effects)
        spent = _spent(effects) if self._after else (result.usage, result.cost)
        return Account(
            run=trace.run or result.run,
            status=result.status,
            definition=self._accepted.definition,
            name=trace.definition,
            outline=self._accepted.outline,
            start=self._given(),
            sources=trace.sources,
            executions=[self._execution(node) for node in sorted(executions, key=lambda node: node.first_n)],
            models=models,
            tools=tools,
            output=self._output,
            error=result.error,
            measure=self._measure(result.accepted_at, result.ended_at, *spent),
        )

    def _went_on(self, node: Node) -> bool:
        parted_at = self._parted_at
        routed = any(parted_at is not None and step.at >= parted_at for step in node.routes)
        return not 0 < node.last_n <= self._after or routed or any(self._done(node))

    def _done(self, node: Node) -> list[Effect]:
        """What a node has had done, or has open."""
        return [effect for effect in node.effects if not 0 < effect.last_n <= self._after]

    def _execution(self, node: Node) -> Execution:
        effects = self._done(node)
        return Execution(
            path=node.path,
            iteration=node.iteration,
            outcome=node.outcome or "running",
            retries=len(node.attempts),
            input=self._inputs.get((node.path, node.iteration)),
            result=node.result,
            error=node.error,
            # Not with the ids of child runs: they are others in every run.
            effects=dict(Counter(effect_label(msgspec.structs.replace(effect, run=None)) for effect in effects)),
            routes=node.routes,
            measure=self._measure(node.entered_at, node.exited_at, *_spent(effects)),
        )

    def _measure(
        self, began: dt.datetime | None, ended: dt.datetime | None, usage: Usage, cost: Cost | None
    ) -> Measure:
        """What was taken from one time to another; the time before the parting does not count."""
        if began is not None and self._parted_at is not None:
            began = max(began, self._parted_at)
        # A node may have been left before, and have routed behind.
        lasted = max((ended - began).total_seconds(), 0.0) if began and ended else None
        return Measure(lasted, usage.input_tokens, usage.output_tokens, cost)

    def _given(self) -> dict[str, Any]:
        """What the run was given: input, arguments and options in force, other members of the start, environment."""
        message = self._accepted.start
        others = {name: value for name, value in message.items() if name not in _GIVEN_ELSEWHERE}
        if (forked := self._accepted.forked_from) is not None and forked.variables:
            others["variables"] = {str(n): values for n, values in forked.variables.items()}
        if self._start is None:
            return {name: message[name] for name in ("input", "arguments", "options") if name in message} | others
        return {
            "input": self._start.input,
            "arguments": self._start.arguments,
            "options": self._start.options,
            "environment": msgspec.to_builtins(self._start.environment),
            "breakpoints": self._accepted.breakpoints,
            "limits": self._accepted.limits,
            **others,
        }


def _walk(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        stack += here.children


def _spent(effects: Sequence[Effect]) -> tuple[Usage, Cost | None]:
    """What effects have used of models, and what that cost."""
    usage = sum((effect.usage for effect in effects if effect.usage), Usage())
    costs = [effect.cost for effect in effects if effect.cost]
    return usage, added(costs) if costs else None


def _used(effects: Iterable[Effect]) -> tuple[dict[str, int], dict[str, int]]:
    """Count the turns of each model and the calls of each tool."""
    models: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    for effect in effects:
        if effect.type == ModelCall.type:
            models[effect.name] += 1
        elif effect.kind == "tool":
            tools[effect.name] += 1
    return dict(models), dict(tools)
