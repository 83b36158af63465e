"""Accounts: summaries of runs for comparison, with the input, the path taken and the results of each run.

An account is folded from the trace and the run's first events. It leaves out values that differ between any two runs
(ids, timestamps, workers) and keeps durations, tokens and costs apart, as measures. If the runs share their first
events, as a fork and its origin do, the account covers only later events.

A script or a recorded run may have replaced the models of a run that was rehearsed. That is one fact of the start: the
nodes and turns are compared by the models that the definition names, and the default models of both runs count as one.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import DefinitionRef, Event, ModelCall, NodeEnter, Outline, RunAccepted, RunEnd, RunStart
from callboard.bus.model_names import exact_name, stands_in
from callboard.bus.prices import Cost, Prices, add_costs
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload
from callboard.projections.run.run_result import Results
from callboard.projections.trace.text_renderings import effect_label
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Effect, Node, Step

DEFAULT = "by default"
"""The name of both default models."""


def differing_defaults(left: Sequence[Event], right: Sequence[Event]) -> frozenset[str]:
    """Return the default models of two runs if their models were replaced in different ways; else an empty set."""
    one, other = _replacement(left), _replacement(right)
    return frozenset({one[1], other[1]} - {""}) if stand_in(*one) != stand_in(*other) else frozenset()


def stand_in(kind: str, default: str) -> str:
    """Return the name of the replacement: that of a recorded run, or its kind; empty without one."""
    return default if kind and stands_in(default) else kind


def compared_model(call: ModelCall, defaults: frozenset[str]) -> str:
    """Return the model of a turn as it is compared: the one that the definition names, or the default one."""
    return DEFAULT if call.model in defaults else exact_name(call.model)


def _replacement(events: Sequence[Event]) -> tuple[str, str]:
    """Return the kind of the replacement of a run's models, empty without one, and its default model."""
    for event in events:
        match known_payload(event) if event.type in (RunAccepted.type, RunStart.type) else None:
            case RunAccepted(forked_from=forked) if forked is not None and forked.default_model:
                return forked.stand_in, forked.default_model
            case RunStart(environment=environment):
                return environment.stand_in, environment.default_model
            case _:
                pass
    return "", ""


_GIVEN_ELSEWHERE = frozenset({"definition", "name", "run_id", "fork", "files", "input", "arguments", "options"})
"""Members of a start message that an account reports separately, or that name the run or its origin."""


_OF_STAND_INS, _OF_ENVIRONMENT = ("model", "script"), ("default_model", "models")
"""Members of a start and of its environment that say who answers for the models, as ``stand_in`` does."""


class Measure(Struct, frozen=True):
    """The duration, tokens and cost of a run or a node.

    The duration is None until it ends. The cost is None if it used no tokens.
    """

    duration_s: float | None
    input_tokens: int
    output_tokens: int
    cost: Cost | None = None


class ExecutionAccount(Struct, frozen=True):
    """An execution of a node. ``effects`` counts its effects by label (``tool search``)."""

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


class RunAccount(Struct, frozen=True, kw_only=True):
    """A run. ``start`` has the start message and the worker's environment. ``executions`` are in order of enters."""

    run: str
    status: str
    definition: DefinitionRef
    name: str
    outline: Outline
    start: dict[str, Any]
    sources: dict[str, dict[str, JSON]]
    executions: list[ExecutionAccount]
    models: dict[str, int]
    tools: dict[str, int]
    output: JSON
    error: Failure | None
    measure: Measure


class Accounting:
    """Folds one run into an `RunAccount` of the events after number ``after``.

    The account has the executions that were active after that event, with their later effects. It always includes the
    start and the result of the run. ``prices`` defaults to the list prices. ``defaults`` are models that count as one
    (`callboard.projections.comparison.account`).
    """

    def __init__(self, prices: Prices | None = None, after: int = 0, defaults: frozenset[str] = frozenset()) -> None:
        self._after = after
        self._defaults = defaults
        self._models: dict[str, str] = {}
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
        match known_payload(event):
            case RunAccepted() as accepted:
                self._accepted = accepted
            case RunStart() as start:
                self._start = start
            case ModelCall() as call if self._defaults:
                self._models[event.key] = compared_model(call, self._defaults)
            case NodeEnter(input=given):
                self._inputs[event.path, event.iteration] = given
            case RunEnd(output=output):
                self._output = output
            case _:
                pass

    def view(self) -> RunAccount:
        trace, result = self._trace.view(), self._results.view()
        executions = [node for node in _walk(trace.root) if node.path and self._was_active(node)]
        effects = [effect for node in _walk(trace.root) for effect in self._effects_after(node)]
        models, tools = _count_uses(effects)
        spent = _sum_usage(effects) if self._after else (result.usage, result.cost)
        return RunAccount(
            run=trace.run or result.run,
            status=result.status,
            definition=self._accepted.definition,
            name=trace.definition,
            outline=self._accepted.outline,
            start=self._describe_start(),
            sources=trace.sources,
            executions=[self._execution(node) for node in sorted(executions, key=lambda node: node.first_n)],
            models=models,
            tools=tools,
            output=self._output,
            error=result.error,
            measure=self._measure(result.accepted_at, result.ended_at, *spent),
        )

    def _was_active(self, node: Node) -> bool:
        parted_at = self._parted_at
        routed = any(parted_at is not None and step.at >= parted_at for step in node.routes)
        return not 0 < node.last_n <= self._after or routed or any(self._effects_after(node))

    def _effects_after(self, node: Node) -> list[Effect]:
        """Return the effects of a node that are still open or ended after ``after``."""
        found = [effect for effect in node.effects if not 0 < effect.last_n <= self._after]
        return [
            msgspec.structs.replace(one, name=name) if (name := self._models.get(one.key)) is not None else one
            for one in found
        ]

    def _execution(self, node: Node) -> ExecutionAccount:
        effects = self._effects_after(node)
        return ExecutionAccount(
            path=node.path,
            iteration=node.iteration,
            outcome=node.outcome or "running",
            retries=len(node.attempts),
            input=self._inputs.get((node.path, node.iteration)),
            result=node.result,
            error=node.error,
            # Leave out the ids of child runs, because they differ in every run.
            effects=dict(Counter(effect_label(msgspec.structs.replace(effect, run=None)) for effect in effects)),
            routes=node.routes,
            measure=self._measure(node.entered_at, node.exited_at, *_sum_usage(effects)),
        )

    def _measure(
        self, began: dt.datetime | None, ended: dt.datetime | None, usage: Usage, cost: Cost | None
    ) -> Measure:
        """Return the measure between two times. Time before the runs parted does not count."""
        if began is not None and self._parted_at is not None:
            began = max(began, self._parted_at)
        # A node may have ended before the parting and routed after it.
        lasted = max((ended - began).total_seconds(), 0.0) if began and ended else None
        return Measure(lasted, usage.input_tokens, usage.output_tokens, cost)

    def _describe_start(self) -> dict[str, Any]:
        """Return the start of the run: input, effective arguments and options, other members, environment."""
        message = self._accepted.start
        others = {name: value for name, value in message.items() if name not in _GIVEN_ELSEWHERE}
        if (forked := self._accepted.forked_from) is not None and forked.variables:
            others["variables"] = {str(n): values for n, values in forked.variables.items()}
        if self._start is None:
            return {name: message[name] for name in ("input", "arguments", "options") if name in message} | others
        # The prefixes say how names of models are read; the names themselves are compared with the turns.
        environment = msgspec.to_builtins(msgspec.structs.replace(self._start.environment, prefixes={}))
        if self._defaults:
            others = {name: value for name, value in others.items() if name not in _OF_STAND_INS}
            who = stand_in(environment.get("stand_in", ""), environment.get("default_model", ""))
            environment = {name: value for name, value in environment.items() if name not in _OF_ENVIRONMENT}
            environment |= {"stand_in": who} if who else {}
        return {
            "input": self._start.input,
            "arguments": self._start.arguments,
            "options": self._start.options,
            "environment": environment,
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


def _sum_usage(effects: Sequence[Effect]) -> tuple[Usage, Cost | None]:
    """Sum up the model usage of effects, and its cost."""
    usage = sum((effect.usage for effect in effects if effect.usage), Usage())
    costs = [effect.cost for effect in effects if effect.cost]
    return usage, add_costs(costs) if costs else None


def _count_uses(effects: Iterable[Effect]) -> tuple[dict[str, int], dict[str, int]]:
    """Count the turns of each model and the calls of each tool."""
    models: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    for effect in effects:
        if effect.type == ModelCall.type:
            models[effect.name] += 1
        elif effect.kind == "tool":
            tools[effect.name] += 1
    return dict(models), dict(tools)
