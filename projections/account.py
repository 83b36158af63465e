"""What a run amounts to, for a comparison with another: what it was given, the way it took, what came of it.

Folded from the trace and the run's first events. Whatever differs between any two runs (ids, instants, workers) is left
out; durations and tokens are kept apart, as measures.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import JSON, Failure, Usage
from callboard.bus.events import DefinitionRef, Event, ModelCall, Outline, RunAccepted, RunEnd, RunStart
from callboard.projections.projection import known
from callboard.projections.renders import effect_label
from callboard.projections.run_result import Results
from callboard.projections.trace import TraceFold
from callboard.projections.tree import Node, Step

_GIVEN_ELSEWHERE = frozenset({"definition", "run_id", "files", "input", "arguments", "options"})
"""Members of a start message that are told by themselves, or name the run."""


class Measure(Struct, frozen=True):
    """What a run or a node took: seconds from its beginning to its end (None while it goes on), and tokens."""

    duration_s: float | None
    input_tokens: int
    output_tokens: int


class Execution(Struct, frozen=True):
    """An execution of a node. ``effects`` counts what it had done, by what that is called (``tool search``)."""

    path: str
    iteration: int
    outcome: str
    retries: int
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
    """Folds one run into an `Account`."""

    def __init__(self) -> None:
        self._trace = TraceFold()
        self._results = Results()
        self._accepted = RunAccepted(DefinitionRef("", "", ""), {})
        self._start: RunStart | None = None
        self._output: JSON = None

    def apply(self, event: Event) -> None:
        self._trace.apply(event)
        self._results.apply(event)
        match known(event):
            case RunAccepted() as accepted:
                self._accepted = accepted
            case RunStart() as start:
                self._start = start
            case RunEnd(output=output):
                self._output = output
            case _:
                pass

    def view(self) -> Account:
        trace, result = self._trace.view(), self._results.view()
        executions = [node for node in _walk(trace.root) if node.path]
        models, tools = _used(trace.root)
        return Account(
            run=trace.run or result.run,
            status=result.status,
            definition=self._accepted.definition,
            name=trace.definition,
            outline=self._accepted.outline,
            start=self._given(),
            sources=trace.sources,
            executions=[_execution(node) for node in sorted(executions, key=lambda node: node.first_n)],
            models=models,
            tools=tools,
            output=self._output,
            error=result.error,
            measure=Measure(
                _length_s(result.accepted_at, result.ended_at), result.usage.input_tokens, result.usage.output_tokens
            ),
        )

    def _given(self) -> dict[str, Any]:
        """What the run was given: input, arguments and options in force, other members of the start, environment."""
        message = self._accepted.start
        others = {name: value for name, value in message.items() if name not in _GIVEN_ELSEWHERE}
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


def _execution(node: Node) -> Execution:
    usage = sum((effect.usage for effect in node.effects if effect.usage), Usage())
    return Execution(
        path=node.path,
        iteration=node.iteration,
        outcome=node.outcome or "running",
        retries=len(node.attempts),
        result=node.result,
        error=node.error,
        # Not with the ids of child runs: they are others in every run.
        effects=dict(Counter(effect_label(msgspec.structs.replace(effect, run=None)) for effect in node.effects)),
        routes=node.routes,
        measure=Measure(_length_s(node.entered_at, node.exited_at), usage.input_tokens, usage.output_tokens),
    )


def _used(root: Node) -> tuple[dict[str, int], dict[str, int]]:
    """Count the turns of each model and the calls of each tool."""
    models: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    for node in _walk(root):
        for effect in node.effects:
            if effect.type == ModelCall.type:
                models[effect.name] += 1
            elif effect.kind == "tool":
                tools[effect.name] += 1
    return dict(models), dict(tools)


def _length_s(start: dt.datetime | None, end: dt.datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None
