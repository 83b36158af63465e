"""The trace projection: folds one run's events into the tree of `callboard.projections.trace.tree`."""

from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.events import Event, Payload
from callboard.bus.paths import last_id
from callboard.bus.prices import Prices, list_prices
from callboard.bus.run_ids import child_id
from callboard.projections.projection import known_payload
from callboard.projections.run.charges import usage_in, used_in
from callboard.projections.run.effects import (
    PROVIDER,
    Opened,
    OpenIntents,
    kind_and_name,
    outcome_of,
    outcome_with_answer,
)
from callboard.projections.run.fork_point import ForkPoint, ForkPointFold
from callboard.projections.trace.node_tree import RUN, NodeExecution, NodeExecutions
from callboard.projections.trace.tree import Attempt, Effect, Node, Note, Step, Trace


class TraceFold:
    """Folds one run into a `Trace` with costs. ``prices`` defaults to the list prices."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._trace = Trace(run="", definition="", language="", root=_blank(RUN, "run", ""))
        self._nodes: dict[NodeExecution, Node] = {RUN: self._trace.root}
        self._children: dict[NodeExecution, list[NodeExecution]] = {RUN: []}
        self._effects: dict[tuple[str, str], tuple[NodeExecution, int]] = {}
        self._places = NodeExecutions()
        self._open = OpenIntents()
        self._parting = ForkPointFold()

    def apply(self, event: Event) -> None:
        self._trace = msgspec.structs.replace(self._trace, run=event.run, until=event.time)
        payload = known_payload(event)
        self._parting.apply(event, payload)
        if payload is not None:
            self._apply_run(event, payload)
            self._apply_node(event, payload)
            self._apply_effect(event, payload)
        if (parting := self._parting.parting) is not None and event.n <= parting.n + 1:
            self._part(event, parting)

    def _part(self, event: Event, parting: ForkPoint) -> None:
        """Record the origin of a fork, the parting, and the child runs that the fork starts again."""
        self._trace = msgspec.structs.replace(
            self._trace, origin=parting.origin, parted_at=parting.n, shared_until=parting.then
        )
        if event.n > parting.n > 1:
            self._change(RUN, entered_at=event.time)
        if event.n == parting.n:
            for opened in self._open:
                self._begin_anew(opened, event.run)

    def _begin_anew(self, opened: Opened, run: str) -> None:
        """Set the id of a child run that was open at the parting to that of the fork's own child run."""
        if isinstance(opened.payload, ev.ChildStart):
            place, index = self._effects[opened.payload.type, opened.event.key]
            effects = self._nodes[place].effects
            effects[index] = msgspec.structs.replace(effects[index], run=child_id(run, opened.event.key))

    def view(self) -> Trace:
        return msgspec.structs.replace(self._trace, root=self._build(RUN))

    def _build(self, place: NodeExecution) -> Node:
        """Return a node with its subtree. Lists are copied, so that the view does not change later."""
        node = self._nodes[place]
        return msgspec.structs.replace(
            node,
            attempts=list(node.attempts),
            effects=list(node.effects),
            routes=list(node.routes),
            progress=list(node.progress),
            warnings=list(node.warnings),
            children=[self._build(child) for child in self._children[place]],
        )

    def _change(self, place: NodeExecution, **fields: Any) -> None:
        self._nodes[place] = msgspec.structs.replace(self._nodes[place], **fields)

    def _apply_run(self, event: Event, payload: Payload) -> None:
        match payload:
            case ev.RunAccepted(definition=ref):
                name = event.definition or ref.name or ref.hash[:12]
                self._trace = msgspec.structs.replace(self._trace, definition=name, language=ref.language)
                warnings = [(f"{one.where}: {one.message}".removeprefix(": "), one.code) for one in payload.warnings]
                notes = [Note(event.time, text, code) for text, code in warnings]
                entered_at = self._parting.began(event.time)
                self._change(RUN, node=name, name=name, entered_at=entered_at, first_n=event.n, warnings=notes)
            case ev.RunClaimed():
                own = not self._parting.is_shared(event)
                self._trace = msgspec.structs.replace(self._trace, claims=self._trace.claims + own)
                for opened in self._open:
                    place, index = self._effects[opened.payload.type, opened.event.key]
                    effects = self._nodes[place].effects
                    effects[index] = msgspec.structs.replace(effects[index], executions=effects[index].executions + 1)
            case ev.SourcesResolved(sources=sources):
                self._trace = msgspec.structs.replace(self._trace, sources=sources)
            case ev.RunEnd():
                self._change(
                    RUN,
                    exited_at=event.time,
                    outcome=payload.status,
                    result=payload.output,
                    error=payload.error,
                    last_n=event.n,
                )
            case _:
                pass

    def _apply_node(self, event: Event, payload: Payload) -> None:
        here = NodeExecution(event.path, event.iteration)
        if isinstance(payload, ev.NodeEnter):
            self._enter(event, payload)
            return
        node = self._nodes[self._owner(event)]
        match payload:
            case ev.NodeExit() if here in self._nodes:
                self._places.exit(here)
                self._change(
                    here,
                    exited_at=event.time,
                    outcome=payload.outcome,
                    result=payload.result,
                    error=payload.error,
                    last_n=event.n,
                )
            case ev.NodeRetry():
                node.attempts.append(_attempt(event, payload, node))
            case ev.Route():
                node.routes.append(Step(event.time, payload.source, payload.target, payload.reason, payload.edge))
            case ev.NodeProgress():
                node.progress.append(Note(event.time, payload.message))
            case ev.NodeWarning():
                node.warnings.append(Note(event.time, payload.reason, payload.code, payload.fields))
            case _:
                pass

    def _enter(self, event: Event, payload: ev.NodeEnter) -> None:
        place = NodeExecution(event.path, event.iteration)
        parent = self._places.parent(event.path)
        self._places.enter(place)
        if place not in self._nodes:
            self._children[parent].append(place)
            self._children[place] = []
        self._nodes[place] = msgspec.structs.replace(
            _blank(place, payload.kind_, payload.node or last_id(event.path)),
            name=payload.name,
            entered_at=event.time,
            first_n=event.n,
        )

    def _owner(self, event: Event) -> NodeExecution:
        place = self._places.owner(event.path, event.iteration)
        return place if place in self._nodes else RUN

    def _apply_effect(self, event: Event, payload: Payload) -> None:
        closed = self._open.apply(event, payload)
        if payload.kind == "intent":
            owner = self._owner(event)
            effects = self._nodes[owner].effects
            self._effects[payload.type, event.key] = owner, len(effects)
            effects.append(_open_effect(event, payload))
        elif closed:
            place, index = self._effects.pop((closed.payload.type, closed.event.key))
            effects = self._nodes[place].effects
            # The origin has paid for the events that a fork shares with it.
            prices = None if self._parting.is_shared(event) else self._prices
            effects[index] = _close_effect(effects[index], event, payload, closed, prices)
            if isinstance(payload, ev.ChildEnd):
                for warned in payload.warnings:
                    of = f"run {warned.run or effects[index].run}"
                    self._nodes[place].warnings.append(Note(event.time, f"{of}: {warned.reason}", warned.code))


def _blank(place: NodeExecution, kind: str, node: str) -> Node:
    """Return a node with new lists, which grow in place until a view copies them."""
    return Node(
        path=place.path,
        iteration=place.iteration,
        kind=kind,
        node=node,
        name="",
        attempts=[],
        effects=[],
        routes=[],
        progress=[],
        warnings=[],
    )


def _attempt(event: Event, retry: ev.NodeRetry, node: Node) -> Attempt:
    path = "" if event.path == node.path else event.path
    return Attempt(retry.attempt, event.time, retry.reason, retry.error, retry.delay, path)


def _open_effect(event: Event, payload: Payload) -> Effect:
    kind, name = kind_and_name(payload)
    return Effect(
        key=event.key,
        type=payload.type,
        kind=kind,
        name=name,
        attempt=max(event.attempt, 1),
        started_at=event.time,
        first_n=event.n,
        run=payload.child if isinstance(payload, ev.ChildStart) else None,
    )


def _close_effect(effect: Effect, event: Event, payload: Payload, closed: Opened, prices: Prices | None) -> Effect:
    outcome, error = outcome_with_answer(payload) if effect.kind == PROVIDER else outcome_of(payload)
    models = used_in(payload, closed)
    return msgspec.structs.replace(
        effect,
        ended_at=event.time,
        outcome=outcome,
        error=error,
        usage=usage_in(payload),
        cost=prices.bill(models, event.time).cost if prices and any(one.counts for one in models) else None,
        last_n=event.n,
    )
