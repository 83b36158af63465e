"""The spans projection: folds one run's log into finished OpenTelemetry spans, each returned once, the root last.

One run is one trace. The run is ``invoke_workflow``, the execution of a node that calls a model ``invoke_agent``, a
model turn ``chat``, a tool call ``execute_tool``; other nodes and effects have the name of their kind. Waits (timers,
questions, signals, pauses), retries, routes, progress and warnings are events on the span that they belong to.

A child run has a separate trace. Its root and the span of the effect that started it are linked both ways. The root is
also linked to the caller's span, if the run was started from one. The trace of a fork includes the spans that it shares
with its origin. They are marked and have no usage, because backends add usage up, and the origin's trace has it.
Content of messages and calls is left out unless requested. Names are those of `semconv`.
"""

from callboard.bus import events as ev
from callboard.bus.effects import Failure, used_by
from callboard.bus.events import Event, Payload
from callboard.bus.paths import last_id
from callboard.bus.prices import Prices, list_prices
from callboard.bus.run_ids import child_id
from callboard.bus.tracecontext import TraceContext
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import address_closed, outcome_with_answer
from callboard.projections.run.fork_point import ForkPointFold
from callboard.projections.run.span_ids import RUN_ADDRESS, SpanIds, effect_address, ids_of
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Attribute, OpenSpan, Span, SpanLink, nanoseconds
from callboard.projections.spans.span_attributes import (
    SPENDING,
    Attributes,
    agent_attributes,
    intent_span,
    outcome_attributes,
    wait_note,
)
from callboard.projections.spans.span_content import Contents
from callboard.projections.spans.span_effects import ToolCatalogue
from callboard.projections.trace.node_tree import RUN, NodeExecution, NodeExecutions


class SpanFold:
    """Folds one run. `apply` returns the spans that an event finished.

    A node's span ends at its exit. Later effects, such as a routing question, belong to the execution that contains the
    node. Spans still open at ``run.end`` (of a killed run) are closed there and marked ``callboard.unfinished``.
    """

    def __init__(self, *, content: bool = False, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._content = content
        self._contents = Contents() if content else None
        self._tools = ToolCatalogue()
        self._places = NodeExecutions()
        self._nodes: dict[NodeExecution, OpenSpan] = {}
        self._effects: dict[tuple[str, str], OpenSpan] = {}
        self._claims = self._own_claims = 0
        self._parting = ForkPointFold()
        self._ids = SpanIds()

    def apply(self, event: Event) -> list[Span]:
        """Apply the next event. Return the spans that it closes, inner ones first."""
        payload = known_payload(event)
        self._parting.apply(event, payload)
        closed = self._take(event, payload) if payload is not None else []
        if (parting := self._parting.parting) is not None and event.n == parting.n:
            self._begin_anew(event)
        return closed

    def _take(self, event: Event, payload: Payload) -> list[Span]:
        if RUN not in self._nodes:
            if isinstance(payload, ev.RunAccepted):
                self._ids = ids_of(payload)
            self._nodes[RUN] = self._root(event)
        self._tools.learn(payload)
        said = self._contents.of(event, payload) if self._contents is not None else {}
        match payload:
            case ev.NodeEnter():
                self._enter(event, payload, said)
            case ev.NodeExit():
                return self._exit(event, payload, said)
            case ev.RunClaimed():
                self._claim(event, payload)
            case ev.RunEnd():
                self._nodes[RUN].put(said, cut=False)
                return self._end(event, payload)
            case ev.RunStart():
                self._nodes[RUN].put(said, cut=False)
                self._nodes[RUN].note(event, payload.type)
            case _:
                self._describe_run(event, payload)
                self._note(event, payload)
                return self._effect(event, payload, said)
        return []

    def open(self) -> int:
        """Return the number of open spans."""
        return len(self._nodes) + len(self._effects)

    # -- the run --

    def _root(self, event: Event) -> OpenSpan:
        ids = self._ids
        draft = OpenSpan(
            ids.trace(event.run), ids.span(event.run), "", semconv.INVOKE_WORKFLOW, nanoseconds(event.time)
        )
        draft.put({semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW, semconv.CONVERSATION_ID: event.run})
        draft.put(self._common(event))
        return draft

    def _link(self, run: str, kind: str, address: str = RUN_ADDRESS) -> SpanLink:
        return SpanLink(self._ids.trace(run), self._ids.span(run, address), kind)

    def _common(self, event: Event) -> dict[str, Attribute | None]:
        """Return the attributes of every span: tenant, run, place, and the number of the event that opened it."""
        return {
            semconv.TENANT: self._ids.tenant,
            semconv.RUN_ID: event.run,
            semconv.FIRST_N: event.n,
            semconv.PATH: event.path,
            semconv.ITERATION: event.iteration or None,
            semconv.ATTEMPT: event.attempt or None,
        }

    def _describe_run(self, event: Event, payload: Payload) -> None:
        root = self._nodes[RUN]
        match payload:
            case ev.RunAccepted(definition=ref):
                name = event.definition or ref.name or ref.hash[:12]
                root.name = f"{semconv.INVOKE_WORKFLOW} {name}"
                # Upcoming conventions treat a workflow as an agent, too.
                root.put({semconv.WORKFLOW_NAME: name, semconv.AGENT_NAME: name, semconv.DEFINITION: name})
                root.put({semconv.DEFINITION_HASH: ref.hash, semconv.RUN_LANGUAGE: ref.language})
                if payload.parent is not None:
                    address = effect_address(ev.ChildStart.type, payload.parent.key)
                    begun_by = payload.parent.run
                    root.links.append(self._link(begun_by, "parent", address))
                    root.put({semconv.PARENT_RUN: begun_by})
                elif payload.trace and payload.trace.traceparent:
                    caller = TraceContext(payload.trace.traceparent, payload.trace.tracestate)
                    root.links.append(SpanLink(caller.trace_id, caller.span_id, "caller", caller.tracestate))
                if payload.forked_from is not None:
                    root.links.append(self._link(payload.forked_from.run, "fork"))
                    root.put({semconv.ORIGIN_RUN: payload.forked_from.run, semconv.PARTED_AT: payload.forked_from.n})
            case ev.RunParked():
                root.note(event, "run.parked", {semconv.AWAITS: tuple(payload.awaits)})
            case ev.CancelRequested():
                root.note(event, "cancel.requested", {semconv.REASON: payload.reason, semconv.BY: payload.by})
            case ev.RunFailed(error=error):
                root.fail(error)
            case _:
                pass

    def _claim(self, event: Event, payload: ev.RunClaimed) -> None:
        self._nodes[RUN].note(event, "run.claimed", {semconv.WORKER: payload.worker})
        self._claims += 1
        self._own_claims += not self._parting.is_shared(event)
        if self._claims == 1:
            return
        for draft in (*self._nodes.values(), *self._effects.values()):
            draft.executions += draft.executed
        # Claims of the origin do not count for the run's own span.
        self._nodes[RUN].executions = max(self._own_claims, 1)

    def _begin_anew(self, event: Event) -> None:
        """Link open child effects to the fork's own child runs, which replace those of its origin after the parting."""
        for (intent, key), draft in self._effects.items():
            if intent == ev.ChildStart.type:
                child = child_id(event.run, key)
                draft.links[:] = [self._link(child, "child")]
                draft.put({semconv.CHILD_RUN: child})

    def _end(self, event: Event, payload: ev.RunEnd) -> list[Span]:
        root = self._nodes.pop(RUN)
        root.put({semconv.RUN_STATUS: payload.status})
        if payload.status in ("failed", "expired"):
            if payload.error or root.status != "error":
                root.fail(payload.error, payload.status)
        elif payload.error:
            root.put({semconv.CANCEL_CAUSE: payload.error.code})
        left = [*self._effects.values(), *reversed(self._nodes.values())]
        for draft in left:
            draft.put({semconv.UNFINISHED: True})
        self._effects.clear()
        self._nodes.clear()
        return [draft.finish(event) for draft in (*left, root)]

    # -- nodes --

    def _enter(self, event: Event, payload: ev.NodeEnter, said: Attributes) -> None:
        place = NodeExecution(event.path, event.iteration)
        parent = self._draft(self._places.parent(event.path, only_open=True))
        self._places.enter(place)
        node = payload.node or last_id(event.path)
        draft = OpenSpan(
            self._ids.trace(event.run),
            self._ids.span(event.run, str(place)),
            parent.span_id,
            f"{payload.kind_} {node}",
            nanoseconds(event.time),
        )
        draft.put({**self._common(event), semconv.NODE_KIND: payload.kind_})
        draft.put({semconv.NODE_NAME: node, semconv.NODE_TITLE: payload.name})
        draft.put(said, cut=False)
        self._nodes[place] = draft

    def _exit(self, event: Event, payload: ev.NodeExit, said: Attributes) -> list[Span]:
        place = NodeExecution(event.path, event.iteration)
        self._places.exit(place)
        draft = self._nodes.pop(place, None)
        if draft is None:
            return []
        draft.put({semconv.OUTCOME: payload.outcome, semconv.SHARED: self._parting.is_shared(event) or None})
        draft.put(said, cut=False)
        _settle(draft, payload.outcome, payload.error)
        return [draft.finish(event)]

    def _asks(self, node: OpenSpan, call: ev.ModelCall, run: str) -> None:
        """Mark the span of a node that calls a model as an agent, with the first model that it calls."""
        name = node.attributes.get(semconv.NODE_NAME)
        if name is None or semconv.OPERATION_NAME in node.attributes:
            return
        node.name = f"{semconv.INVOKE_AGENT} {name}"
        node.put(agent_attributes(call, name, node.attributes.get(semconv.NODE_TITLE)))
        node.put({semconv.CONVERSATION_ID: run})

    def _draft(self, place: NodeExecution) -> OpenSpan:
        return self._nodes.get(place) or self._nodes[RUN]

    def _owner(self, event: Event) -> OpenSpan:
        return self._draft(self._places.owner(event.path, event.iteration, only_open=True))

    # -- effects --

    def _effect(self, event: Event, payload: Payload, said: Attributes) -> list[Span]:
        if opening := intent_span(payload, self._tools):
            name, kind, attributes = opening
            owner = self._owner(event)
            if isinstance(payload, ev.ModelCall):
                self._asks(owner, payload, event.run)
            draft = OpenSpan(
                self._ids.trace(event.run),
                self._ids.span(event.run, effect_address(payload.type, event.key)),
                owner.span_id,
                name,
                nanoseconds(event.time),
                kind,
                executed=not isinstance(payload, ev.ToolCall) or payload.via == "worker",
            )
            draft.put({**self._common(event), semconv.EFFECT_KEY: event.key, **attributes})
            if semconv.OPERATION_NAME in attributes:
                draft.put({semconv.CONVERSATION_ID: event.run})
            draft.put(said, cut=False)
            if isinstance(payload, ev.ChildStart):
                draft.links.append(self._link(payload.child, "child"))
            self._effects[payload.type, event.key] = draft
            return []
        address = address_closed(event, payload)
        draft = self._effects.pop(address, None) if address else None
        if draft is None:
            return []
        outcome, error = outcome_with_answer(payload)
        _settle(draft, outcome, error)
        told = {**outcome_attributes(payload), **self._cost(event, payload), semconv.OUTCOME: outcome}
        if self._parting.is_shared(event):
            told = {name: value for name, value in told.items() if name not in SPENDING} | {semconv.SHARED: True}
        draft.put(told)
        draft.put(said, cut=False)
        return [draft.finish(event)]

    def _cost(self, event: Event, payload: Payload) -> Attributes:
        """Return the cost of a turn, if it is known. Costs of child runs are on the spans of the child runs."""
        if not isinstance(payload, ev.ModelResult | ev.EffectResult) or not payload.model or not payload.usage.tokens:
            return {}
        cost = self._prices.bill(used_by(payload.model, payload), event.time).cost
        return {} if cost.is_partial else {semconv.COST: cost.usd}

    def _note(self, event: Event, payload: Payload) -> None:
        note = wait_note(payload, self._content)
        if note is not None:
            owner = self._owner(event)
            owner.note(event, payload.type, {**note, semconv.PATH: event.path, semconv.EFFECT_KEY: event.key})


def _settle(draft: OpenSpan, outcome: str, error: Failure | None) -> None:
    """Set the status of a span. Only a failure is an error; of a cancellation or a timeout, only the cause is added."""
    if outcome == "failed":
        draft.fail(error)
    elif error:
        draft.put({semconv.CANCEL_CAUSE: error.code})
