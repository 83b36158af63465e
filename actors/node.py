"""The node actor: one per node execution, from its enter to its exit. It publishes the node's events and carries out
its effects, several at once, and owns the sessions they need.

Consumes: model.call, tool.call, effect.call
Emits: model.result, tool.result, effect.result
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

import anyio
import structlog

from callboard.actors.actor import Spawn, Stoppable
from callboard.actors.carrier import Carrier, Job, Reporter
from callboard.actors.toolboxes import Toolboxes
from callboard.actors.tools.run_scoped_servers import SharedObjects
from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import unexpected_failure
from callboard.bus.events import Payload
from callboard.lib.foreign_errors import is_foreign

log = structlog.get_logger(__name__)


class Publisher(Protocol):
    """The run's log as a node actor sees it."""

    def outcome(self, key: str, payload: Payload) -> None:
        """Record an effect's outcome, unless it has one already."""
        ...

    def aside(self, key: str, payload: Payload) -> None:
        """Record progress or a warning that belongs to a running effect."""
        ...


class NodeActor:
    """Carries out the effects of one node execution, each in a task of its own unless it completes at once."""

    def __init__(
        self,
        name: str,
        carrier: Carrier,
        publisher: Publisher,
        limiter: anyio.CapacityLimiter,
        spawn: Spawn,
        shared: SharedObjects,
    ) -> None:
        self.name = name
        self._carrier = carrier
        self._publisher = publisher
        self._limiter = limiter
        self._running: dict[str, Stoppable] = {}
        self._spawn = spawn
        self._toolboxes = Toolboxes(carrier, partial(spawn, name), shared.standing)
        self._turns = shared.turns
        self._is_left = False
        self.has_stopped = False

    def take(self, job: Job, *, may_complete: bool = False) -> None:
        """Begin to carry an effect out. If it ``may_complete`` and need not wait, its outcome is published now."""
        if may_complete and self._carrier.is_immediate(job) and _completes(self._carry(job, at_once=True)):
            return
        self._running[job.key] = self._spawn(self.name, partial(self._carry_watched, job))

    def abandon(self, key: str) -> None:
        """Stop an effect whose scope was cancelled."""
        if (running := self._running.get(key)) is not None:
            running.stop()

    def close_toolbox(self, key: str) -> None:
        self._toolboxes.close(key)

    def leave(self) -> None:
        """Close the sessions as soon as the running effects have their outcomes: the node was left."""
        self._is_left = True
        if not self._running:
            self._toolboxes.close_all()

    def _stop(self) -> None:
        """Stop the running effects, whose outcomes are not needed any longer, and close the sessions."""
        self.has_stopped = True
        for running in self._running.values():
            running.stop()
        self._toolboxes.close_all()

    async def _carry_watched(self, job: Job) -> None:
        """Carry an effect out in a task. If the task fails, the actor has failed."""
        try:
            await self._carry(job)
        except Exception:
            self._stop()
            raise
        finally:
            self._running.pop(job.key, None)
            if self._is_left and not self._running:
                self._toolboxes.close_all()

    async def _carry(self, job: Job, *, at_once: bool = False) -> None:
        outcome: Payload | None = None
        try:
            outcome = await self._carry_out(job, at_once=at_once)
            self._publisher.outcome(job.key, outcome)
        except BaseException as error:
            if not is_foreign(error):
                raise
            # For example, a result without a recorded form. The traceback goes to the operator's log; a run's log holds
            # what its author can act on, and the usage.
            log.exception("effect failed unexpectedly", key=job.key, kind=job.intent.type)
            spent = outcome or job.spent.outcome()
            self._publisher.outcome(job.key, outcome_of_failure(job.intent, unexpected_failure(error), spent))

    async def _carry_out(self, job: Job, *, at_once: bool) -> Payload:
        if at_once:
            # It occupies no place: it ends before another effect can begin.
            return await self._report_and_carry_out(job)
        if isinstance(job.intent, ev.ToolCall):
            # A call that waits for its turn does not count among the effects that the worker carries out at once.
            async with self._turns.turn(job.intent, job.toolboxes):
                return await self._admit_and_carry_out(job)
        return await self._admit_and_carry_out(job)

    async def _admit_and_carry_out(self, job: Job) -> Payload:
        borrower = object()
        try:
            self._limiter.acquire_on_behalf_of_nowait(borrower)
        except anyio.WouldBlock:
            await self._limiter.acquire_on_behalf_of(borrower)
        try:
            return await self._report_and_carry_out(job)
        finally:
            self._limiter.release_on_behalf_of(borrower)

    async def _report_and_carry_out(self, job: Job) -> Payload:
        reporter = Reporter(partial(self._publisher.aside, job.key))
        try:
            return await self._carrier.carry(job, self._toolboxes, reporter)
        finally:
            reporter.end()


def _completes(coroutine: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine, and return whether it ended without waiting for anything; if not, it is closed."""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


def outcome_of_failure(intent: Payload, failure: Failure, found: Payload | None = None) -> Payload:
    """Return the outcome that says that an effect of this intent failed. ``found`` is an outcome that could not be
    recorded; its usage of a model is kept."""
    used: dict[str, Any] = {}
    if isinstance(found, ev.ModelResult | ev.EffectResult):
        used = {name: getattr(found, name) for name in ("model", "usage", "requests", "unmetered")}
    match intent:
        case ev.ModelCall():
            return ev.ModelResult(error=failure, **used)
        case ev.ToolCall():
            return ev.ToolResult(node=intent.node, tool=intent.tool, error=failure)
        case ev.EffectCall():
            return ev.EffectResult(error=failure, **used)
        case _:
            raise TypeError(f"{intent.type} is not carried out by a node actor")
