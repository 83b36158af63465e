"""Behaviour: the calls, routes, questions, errors and answer of a run, and the differences of two runs in these.

Unlike a comparison of two runs (`callboard.projections.comparison.diff`), this leaves out nodes, prompts and requests
to models, which an experiment changes. Turns, tokens, cost and duration are reported, and never count as a difference.
"""

import datetime as dt
import difflib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, cast

from msgspec import Struct, field

from callboard.bus.effects import Usage
from callboard.bus.events import (
    ChildStart,
    EffectCall,
    Event,
    HumanAsked,
    ModelCall,
    NodeEnter,
    NodeProgress,
    Payload,
    Route,
    RunAccepted,
    RunEnd,
    SignalAwaited,
    ToolCall,
)
from callboard.bus.prices import Prices, list_prices
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON
from callboard.projections.comparison.json_differences import Difference, differences
from callboard.projections.comparison.requests import name_of_call
from callboard.projections.projection import known_payload
from callboard.projections.run.charges import usage_in, used_in
from callboard.projections.run.effects import OpenIntents

ANSWERED = "answered"
"""The member of a progress event's data that says how an effect was answered that another run had recorded or not."""

HARMLESS = frozenset({"toolbox", "source", "prompt", "code", "case"})
"""Kinds of effects that change nothing outside: lists of tools, texts that are read, code in the sandbox."""

Kind = Literal["status", "error", "calls", "arguments", "order", "routes", "questions", "output", "wording"]

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

WORST_FIRST: tuple[Kind, ...] = (
    *("status", "error", "arguments", "calls", "order", "routes", "questions", "output", "wording"),
)


class Action(Struct, frozen=True):
    """A request to the outside: a call, a question, a signal that is awaited, a child run."""

    kind: Literal["call", "question", "signal", "child"]
    name: str
    input: JSON
    path: str


class Effort(Struct, frozen=True, omit_defaults=True):
    """The turns, tokens, cost and time of a run. A recorded answer counts with its recorded tokens, cost and time."""

    turns: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


class RunBehaviour(Struct, frozen=True):
    """The behaviour of a run. ``answered`` counts its effects by how they were answered: ``live`` if by a worker."""

    status: str
    output: JSON
    error: str
    actions: list[Action]
    routes: list[str]
    answered: dict[str, int]
    effort: Effort


class Change(Struct, frozen=True, omit_defaults=True):
    """A difference of behaviour: its kind, where it is, and both sides; without one side there is nothing there."""

    kind: Kind
    where: str
    left: Any = None
    right: Any = None
    places: list[Difference] = []


class _Spent(Struct):
    """The usage and the seconds of a run's effects, by the number of the outcome."""

    usage: dict[int, tuple[Usage, float]] = field(default_factory=dict[int, tuple[Usage, float]])
    seconds: dict[int, float] = field(default_factory=dict[int, float])


def behaviour_of(events: Sequence[Event], origin: Sequence[Event] = (), prices: Prices | None = None) -> RunBehaviour:
    """Return the behaviour of a run. ``origin`` are the events of the run whose record has answered its effects."""
    earlier = _Fold(prices or list_prices(), _Spent())
    for event in origin:
        earlier.apply(event)
    fold = _Fold(prices or list_prices(), earlier.spent)
    for event in events:
        fold.apply(event)
    return fold.view()


class _Fold:
    """Folds one run. ``recorded`` has the usage of the run whose record answers this one's effects."""

    def __init__(self, prices: Prices, recorded: _Spent) -> None:
        self.spent = _Spent()
        self._recorded = recorded
        self._prices = prices
        self._open = OpenIntents()
        self._began: dict[str, dt.datetime] = {}
        self._answers: dict[str, tuple[str, int]] = {}
        self._answered: Counter[str] = Counter()
        self._actions: list[Action] = []
        self._routes: list[str] = []
        self._nodes: dict[str, str] = {}
        self._turns, self._usd, self._seconds = 0, 0.0, 0.0
        self._usage = Usage()
        self._shared = 0
        self._last: dt.datetime | None = None
        self._end: RunEnd | None = None

    def apply(self, event: Event) -> None:
        payload = known_payload(event)
        if payload is None:
            return
        closed = self._open.apply(event, payload)
        self._time(event)
        match payload:
            case RunAccepted(forked_from=forked):
                self._shared = forked.n if forked is not None else 0
            case NodeEnter(node=node):
                self._nodes[event.path] = node
            case NodeProgress(data={"answered": str(how), **more}) if event.key:
                self._answers[event.key] = how, int(cast("int", more.get("n", 0)))
            case ModelCall():
                self._turns += 1
            case Route(source=source, target=target):
                self._routes.append(f"{source} → {target}")
            case RunEnd():
                self._end = payload
            case _:
                if (action := _action(event, payload)) is not None:
                    self._actions.append(action)
        if payload.kind == "intent":
            self._began[event.key] = event.time
        elif payload.kind == "outcome" and event.key in self._began:
            self._close(event, payload, closed)

    def _close(self, event: Event, payload: Payload, closed: Any) -> None:
        seconds = (event.time - self._began.pop(event.key)).total_seconds()
        usage = usage_in(payload) or Usage()
        usd = self._prices.bill(used_in(payload, closed), event.time).cost.usd
        how, n = self._answers.get(event.key, ("shared" if event.n <= self._shared else "live", 0))
        if how == "recorded":
            usage, usd = self._recorded.usage.get(n, (usage, usd))
            self._seconds += self._recorded.seconds.get(n, 0.0)
        if payload.type in ("model.result", "tool.result", "effect.result"):
            self._answered["recorded" if how == "shared" else how] += 1
        self.spent.usage[event.n], self.spent.seconds[event.n] = (usage, usd), seconds
        self._usage += usage
        self._usd += usd

    def _time(self, event: Event) -> None:
        """Add the time since the event before; the pause between a record and the run that forks it does not count."""
        if self._last is not None and event.n != self._shared + 1:
            self._seconds += max((event.time - self._last).total_seconds(), 0.0)
        self._last = event.time

    def view(self) -> RunBehaviour:
        end = self._end
        return RunBehaviour(
            status=end.status if end is not None else "running",
            output=end.output if end is not None else None,
            error=end.error.code if end is not None and end.error is not None else "",
            actions=self._actions,
            routes=self._routes,
            answered=dict(sorted(self._answered.items())),
            effort=Effort(self._turns, self._usage.tokens, round(self._usd, 6), round(self._seconds, 3)),
        )


def _action(event: Event, payload: Payload) -> Action | None:
    match payload:
        case ToolCall(input=given):
            return Action("call", name_of_call(payload), given, event.path)
        case EffectCall(kind_=kind, request=request) if kind not in HARMLESS:
            return Action("call", name_of_call(payload), request, event.path)
        case HumanAsked(question=question, options=options, request_data=data):
            return Action("question", question, {"options": options, "data": data}, event.path)
        case SignalAwaited(name=name, match=match):
            return Action("signal", name, match, event.path)
        case ChildStart(definition=definition, input=given):
            named = str(definition.get("name") or definition.get("file") or "child")
            return Action("child", named, given, event.path)
        case _:
            return None


def compare_behaviour(left: RunBehaviour, right: RunBehaviour) -> list[Change]:
    """Return the differences of behaviour, the worst first."""
    found: list[Change] = []
    if left.status != right.status:
        found.append(Change("status", "the run", left.status, right.status))
    if left.error != right.error:
        found.append(Change("error", "the run", left.error or None, right.error or None))
    found += _actions(left.actions, right.actions)
    if left.routes != right.routes:
        found += _sequence("routes", left.routes, right.routes)
    if places := differences(left.output, right.output):
        kind: Kind = "wording" if all(map(_is_prose, places)) else "output"
        found.append(Change(kind, "the output", left.output, right.output, places))
    return sorted(found, key=lambda one: WORST_FIRST.index(one.kind))


def _is_prose(place: Difference) -> bool:
    """Whether both sides are texts of several words with the same numbers: models word them otherwise each time."""
    left, right = place.left, place.right
    if not isinstance(left, str) or not isinstance(right, str) or min(len(left.split()), len(right.split())) < 2:
        return False
    return Counter(_NUMBER.findall(left)) == Counter(_NUMBER.findall(right))


def _actions(left: Sequence[Action], right: Sequence[Action]) -> list[Change]:
    ours, theirs = ([(one.kind, one.name, canonical(one.input)) for one in side] for side in (left, right))
    if ours == theirs:
        return []
    if Counter(ours) == Counter(theirs):
        return _sequence("order", [one.name for one in left], [one.name for one in right])
    found: list[Change] = []
    matcher = difflib.SequenceMatcher(None, [one[:2] for one in ours], [one[:2] for one in theirs], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(left[i1:i2], right[j1:j2], strict=True)
            found += [_arguments(one, other) for one, other in pairs if canonical(one.input) != canonical(other.input)]
            continue
        found += [Change(_kind_of(one), _where(one), one.input or {}, None) for one in left[i1:i2]]
        found += [Change(_kind_of(one), _where(one), None, one.input or {}) for one in right[j1:j2]]
    return found


def _arguments(left: Action, right: Action) -> Change:
    kind: Kind = "questions" if left.kind == "question" else "arguments"
    return Change(kind, _where(left), left.input, right.input, differences(left.input, right.input))


def _kind_of(action: Action) -> Kind:
    return "questions" if action.kind == "question" else "calls"


def _where(action: Action) -> str:
    return f"{action.name} at {action.path or 'the run'}"


def _sequence(kind: Kind, left: Sequence[str], right: Sequence[str]) -> list[Change]:
    """Return one change with the parts of two sequences that differ."""
    begin = next((k for k, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), None)
    at = min(len(left), len(right)) if begin is None else begin
    return [Change(kind, f"after {at} of {len(left)}", list(left[at:]), list(right[at:]))]
