"""The work of a runner: inputs, configurations and effects of one attempt of a node, and the outcomes of runners."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import Failure, Usage
from callboard.languages.agent import meter_node
from callboard.languages.computation import compute
from callboard.languages.graph.budget import CHARS_MAX, TooManySteps, WorkBudget, WorkTooLong
from callboard.languages.graph.coercion import UNFIT, coerce, coerce_members
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import (
    ExpressionInvalid,
    ExpressionNames,
    evaluate,
    holds,
    parse,
    step_into,
    text_of,
)
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.templates import render
from callboard.languages.graph.times import ms
from callboard.languages.graph.topology import Graph, GraphNode
from callboard.languages.language import Instant, Node, Stage
from callboard.lib.json_types import JSON

_NAMES = re.compile(r"""[^\s$.()\[\]{}<>=!&|,"'][^.()\[\]{}<>=!&|,"']*(\.[^.()\[\]{}<>=!&|,"']+)*""")

_WHOLE = ("data", "input", "item")
"""Names for the value itself at the beginning of a path, unless it has a member of that name."""


def member_at(path: str, value: JSON, scope: Callable[[], ExpressionNames], budget: WorkBudget) -> JSON:
    """Return the member of a value at a path, or the value of an expression in ``scope``.

    :raises ExpressionInvalid: if the text is neither a path nor an expression
    """
    budget.take_text(len(path))
    if _NAMES.fullmatch(path.strip()) is None:
        budget.take_parsed(path)
        return evaluate(parse(path), scope())
    first, *others = names = path.strip().split(".")
    if first in _WHOLE and not (isinstance(value, dict) and step_into(value, first, budget) is not None):
        names = others
    for name in names:
        budget.take(1)
        value = step_into(value, name, budget)
    return value


P = ParamSpec("P")
R = TypeVar("R")

TOO_MUCH = "graph.too_much"
"""The code of the failure of a node whose work exceeds its budget."""


class NodeFailed(Exception):
    """A runner failed. The node's retries apply, unless the failure is ``final``."""

    def __init__(self, code: str, message: str, *, details: JSON = None, final: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.failure = Failure(code, message, details=details)
        self.final = final


def failed_effect(failure: Failure) -> NodeFailed:
    """Make a runner's failure of that of an effect."""
    made = NodeFailed(failure.code, failure.message or failure.code, details=failure.details)
    made.failure = failure
    return made


# -- the outcomes of a runner ------------------------------------------------------------------------------------------


class Outputs(Struct, frozen=True):
    """A payload for each port that was taken, and the details for the node's record."""

    ports: Ports
    details: dict[str, JSON] = field(default_factory=dict[str, JSON])


class Delay(Struct, frozen=True):
    """Wait for a number of seconds; ``after`` makes the outputs of the beginning and the end of the wait."""

    seconds: float
    after: Callable[[Instant, Instant], Outputs]


class Suspend(Struct, frozen=True):
    """Wait for a person, or as ``wait`` does it; it returns the outputs.

    If it raises ``NodeFailed``, the node fails without a retry, since a question is not asked again.
    """

    wait: Callable[[], Awaitable[Outputs]]


Outcome = Outputs | Delay | Suspend


_OWN: Any = object()
"""Stands in for the node's own input."""


# -- the attempt -------------------------------------------------------------------------------------------------------


class ExecutionState(Struct):
    """The state of the execution: its trigger, user and variables, and the newest outputs of each node."""

    graph: Graph
    trigger: dict[str, JSON]
    user_id: str
    variables: dict[str, JSON]
    scripted_tools: frozenset[str] = frozenset()
    outputs: dict[str, Ports] = field(default_factory=dict[str, Ports])

    def remember(self, node: GraphNode, ports: Ports) -> None:
        """Keep a node's outputs, under its name and its id."""
        self.outputs[node.name] = ports
        self.outputs[node.id] = ports

    @property
    def trigger_data(self) -> JSON:
        return self.trigger["trigger_data"]

    def trigger_root(self) -> dict[str, JSON]:
        """Return the value of ``$trigger`` in expressions."""
        return {
            "type": self.trigger["trigger_type"],
            "data": self.trigger_data,
            "user_id": self.trigger["user_id"],
            "timestamp": self.trigger["timestamp"],
        }


class Meter(Struct):
    """The usage of the turns of one attempt."""

    usage: Usage = field(default_factory=Usage)

    def wrap(self, spend: Callable[[Usage], None]) -> Callable[[Usage], None]:
        """Return a function that counts usage here and passes it on to ``spend``."""

        def count(usage: Usage) -> None:
            self.usage += usage
            spend(usage)

        return count


class NodeAttempt(Struct, frozen=True):
    """One attempt of a node. ``arrivals`` are the values at its port, ``inputs`` the same in the form that is recorded.
    ``spend`` counts the usage of a model's turn. ``budget`` bounds the work on the data.
    """

    stage: Stage
    node: Node
    spec: GraphNode
    inputs: Mapping[str, JSON]
    arrivals: list[JSON]
    context: ExecutionState
    spend: Callable[[Usage], None] = lambda _usage: None
    budget: WorkBudget = field(default_factory=WorkBudget)

    async def compute(self, work: Callable[Concatenate["NodeAttempt", P], R], *args: P.args, **names: P.kwargs) -> R:
        """Call a pure function with this work and a new budget; a long computation moves to another thread.

        :raises NodeFailed: if the function raises it, or exceeds the budget
        """
        try:
            return await compute(self.stage, lambda: work(replace(self, budget=WorkBudget()), *args, **names))
        except TooManySteps as error:
            raise NodeFailed(TOO_MUCH, f"the node's work {error}; give it less data", final=True) from None
        except WorkTooLong:
            message = f"the node's work writes out more than {CHARS_MAX} characters; give it less data"
            raise NodeFailed(TOO_MUCH, message, final=True) from None
        except RecursionError:
            raise NodeFailed(TOO_MUCH, "the node's data nests too deep to work on; flatten it", final=True) from None

    @property
    def metered_node(self) -> Node:
        """The node; the usage of its turns is counted."""
        return meter_node(self.node, self.spend)

    @property
    def data(self) -> JSON:
        """The value on the port ``result``, with its declared members coerced."""
        declared = self.spec.spec.input_params if self.spec.spec is not None else {}
        return coerce_members(self.inputs.get(RESULT), declared)

    def input_member(self, name: str) -> JSON:
        """Return a member of the input; null if the input is not an object or lacks it."""
        data = self.data
        return data.get(name) if isinstance(data, dict) else None

    def items(self) -> list[JSON]:
        """Return the items of the input: those of a list, of the list in ``data``, or the input as the only item."""
        match self.data:
            case list() as items:
                return items
            case {"data": list() as items}:
                return items
            case None:
                return []
            case data:
                return [data]

    def setting(self, *names: str) -> JSON:
        """Return the first of the named configurations that is given, or the registry's default."""
        return self.spec.setting(*names)

    def text(self, *names: str) -> str:
        """Return a configuration as text, with its templates filled in; empty if it is missing."""
        return text_of(self.render(self.setting(*names)))

    def number(self, *names: str, otherwise: float = 0) -> float:
        """Return a configuration as a number; ``otherwise`` if it is missing or not a number."""
        return number(self.setting(*names), otherwise)

    def render(self, value: JSON) -> JSON:
        """Return a value with its templates filled in."""
        return render(value, self.scope())

    def render_with(self, value: JSON, names: JSON) -> JSON:
        """Return a value with its templates filled in; they can also refer to the members of an object."""
        return render(value, self.scope(**names) if isinstance(names, dict) else self.scope())

    def scope(self, data: JSON = _OWN, /, **local: JSON) -> ExpressionNames:
        """Return the scope of an expression of this node; ``data`` replaces the input."""
        return ExpressionNames(
            data=self.data if data is _OWN else data,
            inputs=self.inputs,
            config=self.spec.configurations,
            trigger=self.context.trigger_root(),
            nodes=self.context.outputs,
            variables=self.context.variables,
            local=local,
            now_ms=ms(self.stage.now()),
            budget=self.budget,
        )

    def holds(self, condition: str, scope: ExpressionNames | None = None) -> bool:
        """Whether a condition holds.

        :raises NodeFailed: if it is not an expression
        """
        try:
            return holds(condition, scope or self.scope())
        except ExpressionInvalid as invalid:
            raise NodeFailed("graph.expression", str(invalid)) from None

    def value_in(self, item: JSON, path: str, /, **local: JSON) -> JSON:
        """Return the value of a path, or of an expression, in an item; ``local`` has further names for expressions.

        :raises NodeFailed: if the text is neither a path nor an expression
        """
        try:
            return self.find_in(item, path, **local)
        except ExpressionInvalid as invalid:
            raise NodeFailed("graph.expression", str(invalid)) from None

    def find_in(self, item: JSON, path: str, /, **local: JSON) -> JSON:
        """Return the value of a path or an expression likewise.

        :raises ExpressionInvalid: if the text is neither a path nor an expression
        """
        return member_at(path, item, lambda: self.scope(item, **local), self.budget)


Runner = Callable[[NodeAttempt], Awaitable[Outcome]]
"""A function that does a node's work once; it raises `NodeFailed`."""


def result(payload: JSON, **details: JSON) -> Outputs:
    """Make outputs with the port ``result`` alone."""
    return Outputs({RESULT: payload}, details)


def number(value: Any, otherwise: float = 0) -> float:
    """Return a number, also one that is written as text; ``otherwise`` for any other value."""
    made = coerce(value, "number")
    return otherwise if made is UNFIT or made is None or isinstance(made, str) else made
