"""One attempt of a node as its runner has it: what arrived, what it is configured with, what it may ask; and what a
runner comes to.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import Failure, ModelReply, ModelRequest, Usage
from callboard.languages.computation import computed
from callboard.languages.graph.budget import CHARS_MAX, Budget, TooManySteps, TooMuchText
from callboard.languages.graph.coercion import UNFIT, coerce, coerce_members
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import ExpressionInvalid, Scope, holds, text_of
from callboard.languages.graph.member_paths import member_at
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.rules import BOUNDED_WORK
from callboard.languages.graph.templates import render
from callboard.languages.graph.times import ms
from callboard.languages.graph.topology import Graph, GraphNode
from callboard.languages.language import Failed, Instant, Node, Ok, Stage
from callboard.lib.json_types import JSON

P = ParamSpec("P")
R = TypeVar("R")

TOO_MUCH = "graph.too_much"
"""The code of the failure of a node whose work takes more than it may."""


class NodeFailed(Exception):
    """A runner failed. It is tried again as the node's retries say, unless the failure is ``final``."""

    def __init__(self, code: str, message: str, *, details: JSON = None, final: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.failure = Failure(code, message, details=details)
        self.final = final


def failed_effect(failure: Failure) -> NodeFailed:
    """Make a runner's failure of an effect's."""
    made = NodeFailed(failure.code, failure.message or failure.code, details=failure.details)
    made.failure = failure
    return made


# -- what a runner comes to --------------------------------------------------------------------------------------------


class Outputs(Struct, frozen=True):
    """A payload for each port that was taken, and what the node's record says of the work."""

    ports: Ports
    details: dict[str, JSON] = field(default_factory=dict[str, JSON])


class Delay(Struct, frozen=True):
    """Continue after so many seconds; ``after`` makes the outputs of when it began and ended."""

    seconds: float
    after: Callable[[Instant, Instant], Outputs]


class Await(Struct, frozen=True):
    """Wait for a signal, so many seconds at most; ``arrived`` makes the outputs of its data, ``expired`` of none."""

    signal: str
    timeout_s: float | None
    arrived: Callable[[JSON, Instant, Instant], Outputs]
    expired: Callable[[Instant, Instant], Outputs]


class AskHuman(Struct, frozen=True):
    """Wait for a person; ``ask`` does it all, and returns the outputs.

    ``NodeFailed`` that it raises is the node's end: a question is not asked again.
    """

    ask: Callable[[], Awaitable[Outputs]]


Outcome = Outputs | Delay | Await | AskHuman


_OWN: Any = object()
"""Represents the node's own input."""


# -- what a runner is given --------------------------------------------------------------------------------------------


class Context(Struct):
    """What is known of the execution: who started it with what, and what each node has put out, newest last."""

    graph: Graph
    trigger: dict[str, JSON]
    user_id: str
    variables: dict[str, JSON]
    scripted_tools: frozenset[str] = frozenset()
    outputs: dict[str, Ports] = field(default_factory=dict[str, Ports])

    def remember(self, node: GraphNode, ports: Ports) -> None:
        """Keep what a node has put out, under its name and its id."""
        self.outputs[node.name] = ports
        self.outputs[node.id] = ports

    @property
    def trigger_data(self) -> JSON:
        return self.trigger["trigger_data"]

    def trigger_root(self) -> dict[str, JSON]:
        """What expressions see of the trigger."""
        return {
            "type": self.trigger["trigger_type"],
            "data": self.trigger_data,
            "user_id": self.trigger["user_id"],
            "timestamp": self.trigger["timestamp"],
        }


class Metered:
    """A node that counts what the turns on it cost; in all else it is the node."""

    def __init__(self, node: Node, spend: Callable[[Usage], None]) -> None:
        self._node = node
        self._spend = spend

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    async def turn(self, slot: str, request: ModelRequest) -> Ok[ModelReply] | Failed:
        outcome = await self._node.turn(slot, request)
        if isinstance(outcome, Ok):
            self._spend(outcome.value.usage)
        return outcome


class Meter(Struct):
    """What the turns of one attempt cost."""

    usage: Usage = field(default_factory=Usage)

    def wrap(self, spend: Callable[[Usage], None]) -> Callable[[Usage], None]:
        """Count here too what is spent there."""

        def count(usage: Usage) -> None:
            self.usage += usage
            spend(usage)

        return count


class Work(Struct, frozen=True):
    """One attempt of a node. ``arrivals`` are the values at its port, ``inputs`` the same as they are recorded;
    ``spend`` takes what a model's turn has cost. ``budget`` is what the work on the data may take.
    """

    stage: Stage
    node: Node
    spec: GraphNode
    inputs: Mapping[str, JSON]
    arrivals: list[JSON]
    context: Context
    spend: Callable[[Usage], None] = lambda _usage: None
    budget: Budget = field(default_factory=Budget)

    @property
    def rules(self) -> int:
        """Which generation of rules the execution goes by."""
        return self.stage.info.rules

    async def compute(self, work: Callable[Concatenate["Work", P], R], *args: P.args, **names: P.kwargs) -> R:
        """Return what a pure function makes of this work; what takes long is done beside the worker's loop.

        :raises NodeFailed: if the function raises it, or takes more than a node may
        """
        try:
            return await computed(self.stage, lambda: work(replace(self, budget=self._new_budget()), *args, **names))
        except TooManySteps as error:
            raise NodeFailed(TOO_MUCH, f"the node's work {error}; give it less data", final=True) from None
        except TooMuchText:
            message = f"the node's work writes out more than {CHARS_MAX} characters; give it less data"
            raise NodeFailed(TOO_MUCH, message, final=True) from None
        except RecursionError:
            raise NodeFailed(TOO_MUCH, "the node's data nests too deep to work on; flatten it", final=True) from None

    def _new_budget(self) -> Budget:
        return Budget() if self.rules >= BOUNDED_WORK else Budget(sys.maxsize, sys.maxsize)

    @property
    def metered_node(self) -> Node:
        """The node, counting what turns on it cost."""
        return cast(Node, Metered(self.node, self.spend))

    @property
    def data(self) -> JSON:
        """What is on the port ``result``, its declared members coerced."""
        declared = self.spec.spec.input_params if self.spec.spec is not None else {}
        return coerce_members(self.inputs.get(RESULT), declared)

    def input_member(self, name: str) -> JSON:
        """A member of the input, if that is an object and has it."""
        data = self.data
        return data.get(name) if isinstance(data, dict) else None

    def items(self) -> list[JSON]:
        """The input as items: a list, the list in its ``data``, or itself as the only one."""
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
        """The configuration of the first of these names that is given, or the registry's default."""
        return self.spec.setting(*names)

    def text(self, *names: str) -> str:
        """A configuration that is a text, with its templates filled in; empty if none exists."""
        return text_of(self.render(self.setting(*names)))

    def number(self, *names: str, otherwise: float = 0) -> float:
        """A configuration that is a number."""
        return number(self.setting(*names), otherwise)

    def render(self, value: JSON) -> JSON:
        """A value with its templates filled in."""
        return render(value, self.scope())

    def render_with(self, value: JSON, names: JSON) -> JSON:
        """A value with its templates filled in, which find further names in an object."""
        return render(value, self.scope(**names) if isinstance(names, dict) else self.scope())

    def scope(self, data: JSON = _OWN, /, **local: JSON) -> Scope:
        """What an expression of this node sees; ``data`` takes the place of the input."""
        return Scope(
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

    def holds(self, condition: str, scope: Scope | None = None) -> bool:
        """Whether a condition holds.

        :raises NodeFailed: if it is none
        """
        try:
            return holds(condition, scope or self.scope())
        except ExpressionInvalid as invalid:
            raise NodeFailed("graph.expression", str(invalid)) from None

    def value_in(self, item: JSON, path: str, /, **local: JSON) -> JSON:
        """What a path, or any expression, comes to in an item; it may find further names.

        :raises NodeFailed: if it is none
        """
        try:
            return self.find_in(item, path, **local)
        except ExpressionInvalid as invalid:
            raise NodeFailed("graph.expression", str(invalid)) from None

    def find_in(self, item: JSON, path: str, /, **local: JSON) -> JSON:
        """The same.

        :raises ExpressionInvalid: if it is none
        """
        return member_at(path, item, lambda: self.scope(item, **local), self.rules, self.budget)


Runner = Callable[[Work], Awaitable[Outcome]]
"""Does a node's work once; raises `NodeFailed`."""


def result(payload: JSON, **details: JSON) -> Outputs:
    """Outputs on the port ``result`` alone."""
    return Outputs({RESULT: payload}, details)


def number(value: Any, otherwise: float = 0) -> float:
    """Return a number, also one that is written as text."""
    made = coerce(value, "number")
    return otherwise if made is UNFIT or made is None or isinstance(made, str) else made
