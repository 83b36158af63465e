"""Effects in flight: the effects that node actors and child runs carry out; each is handed over once.

Effects are handed over only after their intent is acknowledged (law 4); their outcomes are numbered at once.
"""

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import anyio
import anyio.lowlevel
import msgspec

from callboard.actors.actor import Spawn
from callboard.actors.carrier import Carrier, Job
from callboard.actors.node import NodeActor, outcome_of_failure
from callboard.actors.tools.run_scoped_servers import RunScopedServers, SharedObjects
from callboard.bus import events as ev
from callboard.bus.commands import Wake
from callboard.bus.errors import unexpected_failure
from callboard.bus.events import Event, Payload
from callboard.bus.tracecontext import TraceContext, sent_as
from callboard.lib.canonical_json import digest
from callboard.projections.run.span_ids import SpanIds, effect_address
from callboard.runtime.interpreter.asks import model_turn
from callboard.runtime.interpreter.waits import PendingEffect
from callboard.runtime.run.activation import Activation, Command
from callboard.runtime.run.budget import RunBudget
from callboard.runtime.run.children import ChildRuns
from callboard.runtime.run.crashes import EFFECT_CRASHES_MAX, failure_of
from callboard.runtime.run.inbox import Inbox
from callboard.runtime.run.node_actors import Address, NodeActors

QUEUED_PROGRESS_MAX = 1_000
"""Progress of tools is dropped while more events than this wait to be appended."""


FOLLOWED = frozenset(
    {ev.NodeExit.type, ev.RunResumed.type, ev.CancelRequested.type}
    | {name for name, payload in ev.TYPES.items() if payload.kind == "intent"}
)
"""The events that are followed by an action once they are acknowledged."""

UNMETERED = "model.unmetered"
"""The code of the warning that a provider reports no usage."""


class InFlight:
    """The effects of one active run that are being carried out. It is the `Publisher` of the run's node actors, and the
    `ParentRun` of its child runs."""

    def __init__(
        self,
        active: Activation,
        inbox: Inbox,
        carrier: Carrier,
        effects: anyio.CapacityLimiter,
        children: ChildRuns,
        spawn: Spawn,
        budget: RunBudget,
        pressed: Callable[[], bool],
        *,
        parked_n: int,
        ids: SpanIds,
        crashes: Mapping[str, int],
        tried: Mapping[str, int],
    ) -> None:
        """``effects`` limits how many effects are carried out at the same time.

        ``pressed`` says whether other runs wait for the event loop. ``crashes`` is the number of crashes during the
        execution of each open effect, and ``tried`` that of failed tries in earlier executions, by effect key.
        """
        self._active = active
        self._inbox = inbox
        self._children = children
        self._budget = budget
        shared = SharedObjects(RunScopedServers(partial(spawn, "tools of the run")))
        # Neither a node actor nor the sink of the stage keeps this object in memory, which refers to both.
        publisher = weakref.proxy(self)
        self._node_actors = NodeActors(lambda name: NodeActor(name, carrier, publisher, effects, spawn, shared))
        self._is_pressed = pressed
        self._trace = ids.trace(active.ref.run)
        self._carried: set[str] = set()
        self._warned_of_unmetered = False
        self._begun = False
        self._parked_n = parked_n
        self._ids = ids
        self._tried = tried
        self.suspects = dict(crashes)
        """The number of crashes during the execution of each effect, as long as the effect is open."""
        self.afterwards: deque[tuple[int, Callable[[], None]]] = deque()
        """Functions to call once the event with that number is acknowledged."""

    def __bool__(self) -> bool:
        """Whether any effect is being carried out."""
        return bool(self._carried)

    # -- handing over -------------------------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """Begin to hand effects over, starting with those that are open already; return False if this was done before.

        Call it after all waiting commands and elapsed deadlines are recorded.
        """
        if self._begun:
            return False
        self._begun = True
        for key in list(self._active.stage.waits.effects):
            self._hand_over(key)
            if self._is_pressed():
                await anyio.lowlevel.checkpoint()
        return True

    def follow(self, event: Event) -> None:
        """Act on an acknowledged event: release the actor of its node, or hand its effect to the actor."""
        while self.afterwards and self.afterwards[0][0] <= event.n:
            self.afterwards.popleft()[1]()
        kind = ev.TYPES[event.type]
        if kind is ev.NodeExit:
            self._node_actors.leave((event.path, event.iteration))
        elif kind is ev.RunResumed or kind is ev.CancelRequested:
            # Effects that the budget has held begin once all other waiting commands are recorded.
            self._begun = False
        elif kind.kind == "intent" and self._begun:
            self._hand_over(event.key)

    def _hand_over(self, key: str) -> None:
        """Hand an open effect to its node's actor, once."""
        waits = self._active.stage.waits
        effect = waits.effects.get(key)
        if effect is None or not waits.is_open(key):
            return
        if is_far_away(effect.intent) or key in self._carried or self._active.draining:
            return
        if self._budget.holds_turn(key) or self._children.is_there(key):
            return
        self._carried.add(key)
        if (crashes := self.suspects.get(key, 0)) >= EFFECT_CRASHES_MAX:
            self.outcome(key, outcome_of_failure(effect.intent, failure_of(effect.intent, crashes)))
        elif isinstance(effect.intent, ev.ChildStart):
            # A run parks only after all of its children have been started.
            self._children.begin(self, key, effect.intent, known=effect.event.n < self._parked_n)
        else:
            actor = self._node_actors.call((effect.node.path, effect.node.iteration))
            actor.take(self._job(key, effect), may_complete=not self._is_pressed())

    def _job(self, key: str, effect: PendingEffect) -> Job:
        idempotency_key = digest(self._active.ref.run, key)
        is_turn = isinstance(effect.intent, ev.ModelCall)
        return Job(
            ref=self._active.ref,
            event=effect.event,
            intent=effect.intent,
            idempotency_key=idempotency_key,
            node=effect.node.name,
            ordinal=effect.ordinal,
            turn=model_turn(effect, self._active.stage.asks.memory, idempotency_key) if is_turn else None,
            toolboxes=dict(effect.node.toolboxes),
            span=self._span(effect.event),
            work=effect.work,
            epoch=self._active.runlog.epoch,
            tried=self._tried.get(key, 0),
        )

    def _span(self, intent: Event) -> TraceContext:
        """The span of an effect: the same for every execution, and in the trace that is exported later."""
        return sent_as(self._trace, self._ids.span(self._active.ref.run, effect_address(intent.type, intent.key)))

    # -- results: `callboard.actors.node.Publisher` -------------------------------------------------------------------

    def outcome(self, key: str, payload: Payload, cause: int = 0) -> None:
        active, stage = self._active, self._active.stage
        if active.closing or not stage.waits.is_open(key):
            return
        self._warn_of_unmetered(key, payload)
        event = active.runlog.state(payload, key=key, cause=cause, node=stage.waits.address_of(key))
        stage.ledger.record_outcome(key, event)
        self.note_outcome(event)
        active.wake()

    def _warn_of_unmetered(self, key: str, outcome: Payload) -> None:
        """Warn, once in a run, of an answer whose usage the provider did not report."""
        if not isinstance(outcome, ev.ModelResult | ev.EffectResult) or not outcome.unmetered:
            return
        if self._warned_of_unmetered or self._budget.is_unmetered:
            return
        self._warned_of_unmetered = True
        limits = self._budget.unmetered_limits
        held = f"; {limits} cannot count it" if limits else ""
        reason = f"the provider of {outcome.model} reports no usage: the cost of its answers is not known{held}"
        address = self._active.stage.waits.address_of(key)
        name = self._active.stage.waits.effects[key].node.name
        self._active.runlog.state(ev.NodeWarning(node=name, code=UNMETERED, reason=reason), key=key, node=address)

    def aside(self, key: str, payload: Payload) -> None:
        active, stage = self._active, self._active.stage
        if active.closing or not stage.waits.is_open(key) or len(active.runlog.queue) > QUEUED_PROGRESS_MAX:
            return
        active.runlog.state(payload, key=key, node=stage.waits.address_of(key))
        active.wake()

    def note_outcome(self, event: Event) -> None:
        """Note that the outcome of an effect has been numbered, so that the effect is no longer in flight."""
        self._carried.discard(event.key)
        self.suspects.pop(event.key, None)
        self._leave_unentered((event.path, event.iteration))

    def lost(self, name: str, error: Exception) -> None:
        """Fail the effects of a node actor that died; the interpreter decides how to continue.

        Any other task starts or watches children. Its error is raised, because the run could wait forever without it.
        """
        address = self._node_actors.lost(name)
        if address is None:
            raise error
        failure = unexpected_failure(error)
        for key, effect in list(self._active.stage.waits.effects.items()):
            if key in self._carried and (effect.node.path, effect.node.iteration) == address:
                self.outcome(key, outcome_of_failure(effect.intent, failure))

    # -- child runs: `callboard.runtime.run.children.ParentRun` -------------------------------------------------------

    def lose(self, event: Event) -> None:
        self._active.lose(event)

    def child_begun(self, key: str) -> None:
        self._carried.discard(key)
        self._active.wake()

    def child_ended(self, key: str, end: ev.ChildEnd, wake: Command | None = None) -> None:
        n = self._active.runlog.n
        self.outcome(key, end, cause=wake.sequence if wake is not None else 0)
        if wake is None:
            return
        if self._active.runlog.n == n:
            # Too late: leave the command in the inbox, where it is acknowledged after the event that made it pointless.
            self._inbox.waiting.append(wake)
            self._active.wake()
        else:
            self._inbox.recorded_as(wake, self._active.runlog.n)

    def check_child(self, wake: Command) -> bool:
        """Have an announced end of a child checked; return False if the run no longer waits for that child."""
        key = msgspec.json.decode(wake.body, type=Wake).key
        if not self._active.stage.waits.is_open_child(key):
            return False
        self._children.wake(self, key, wake)
        return True

    # -- cancellation -------------------------------------------------------------------------------------------------

    def abandon(self, key: str) -> None:
        """Stop an effect once the reason is in the log."""
        self._carried.discard(key)
        self.suspects.pop(key, None)
        self._once_stored(lambda: self._leave_unentered(self._node_actors.abandon(key)))

    def close_toolbox(self, key: str) -> None:
        """Close the sessions of a toolbox once the reason is in the log."""
        self._once_stored(lambda: self._node_actors.close_toolbox(key))

    def _once_stored(self, step: Callable[[], None]) -> None:
        """Call a function once all events numbered so far are acknowledged: no effect precedes its event (law 4)."""
        if self._active.runlog.queue:
            self.afterwards.append((self._active.runlog.n, step))
        else:
            step()

    def _leave_unentered(self, address: Address) -> None:
        """Release an actor that was started for a single effect, at a place that is not an entered node."""
        if address[0] and address not in self._active.stage.asks.entered:
            self._node_actors.leave(address)

    def all_far_away(self) -> bool:
        """Whether this worker does nothing that the run waits for."""
        waiting = self._active.stage.waits.effects.items()
        return all(
            is_far_away(effect.intent) or self._children.far_away(key) or self._budget.holds_turn(key)
            for key, effect in waiting
        )


def is_far_away(intent: Payload) -> bool:
    """Whether an effect is completed by the clock, a person or another program instead of this worker."""
    match intent:
        case ev.TimerSet() | ev.SignalAwaited() | ev.RunPaused():
            return True
        case ev.ToolCall(via=via):
            return via == "caller"
        case _:
            return False
