"""The node actor: one per node execution, from its enter to its exit. It publishes the node's events and carries out
its effects, several at once, and owns the sessions they need.

Consumes: model.call, tool.call, effect.call
Emits: model.result, tool.result, effect.result
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import anyio
import structlog

from callboard.actors.actor import Mailbox, MailboxClosed, Spawn
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
    """Carries out the effects of one node execution."""

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
        self._mailbox: Mailbox[Job] = Mailbox()
        self._carrier = carrier
        self._publisher = publisher
        self._limiter = limiter
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._spawn = spawn
        self._toolboxes = Toolboxes(carrier, partial(spawn, name), shared.standing)
        self._turns = shared.turns
        self._busy = False
        self.has_stopped = False

    def take(self, job: Job) -> None:
        """Take an effect to be carried out.

        :raises MailboxFull: if too many wait for this actor to begin
        """
        # The scope exists before anything runs, so that an effect can be abandoned at any time.
        self._scopes[job.key] = anyio.CancelScope()
        if self._busy:
            self._beside(partial(self._carry, job))
        else:
            self._mailbox.put_nowait(job)

    def abandon(self, key: str) -> None:
        """Stop an effect whose scope was cancelled."""
        scope = self._scopes.get(key)
        if scope is not None:
            scope.cancel()

    def close_toolbox(self, key: str) -> None:
        self._toolboxes.close(key)

    def leave(self) -> None:
        """Take no more effects: the node was left. The actor ends when its running effects have their outcomes."""
        self._mailbox.close()

    async def run(self) -> None:
        """Carry out effects until the node is left; then close the sessions.

        Most nodes have a single effect, which the actor carries out itself. Further effects get tasks next to it, which
        end when they have their outcomes.
        """
        try:
            while True:
                job = await self._mailbox.get()
                self._busy = True
                while len(self._mailbox):
                    self._beside(partial(self._carry, job))
                    job = await self._mailbox.get()
                await self._carry(job)
                self._busy = False
        except MailboxClosed:
            self._toolboxes.close_all()
        except Exception:
            self._stop()
            raise

    def _beside(self, body: Callable[[], Awaitable[None]]) -> None:
        """Run a task next to the actor, under its name: if the task fails, the actor has failed."""

        async def run_watched() -> None:
            try:
                await body()
            except Exception:
                self._stop()
                raise

        self._spawn(self.name, run_watched)

    def _stop(self) -> None:
        """Stop the running effects, whose outcomes are not needed any longer, and close the sessions."""
        self.has_stopped = True
        self._mailbox.close()
        for scope in self._scopes.values():
            scope.cancel()
        self._toolboxes.close_all()

    async def _carry(self, job: Job) -> None:
        try:
            with self._scopes[job.key]:
                outcome: Payload | None = None
                try:
                    outcome = await self._carry_out(job)
                    self._publisher.outcome(job.key, outcome)
                except BaseException as error:
                    if not is_foreign(error):
                        raise
                    # For example, a result without a recorded form. The traceback goes to the operator's log; a run's
                    # log holds what its author can act on, and the usage.
                    log.exception("effect failed unexpectedly", key=job.key, kind=job.intent.type)
                    spent = outcome or job.spent.outcome()
                    self._publisher.outcome(job.key, outcome_of_failure(job.intent, unexpected_failure(error), spent))
        finally:
            self._scopes.pop(job.key, None)

    async def _carry_out(self, job: Job) -> Payload:
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
        reporter = Reporter(lambda payload: self._publisher.aside(job.key, payload))
        try:
            return await self._carrier.carry(job, self._toolboxes, reporter)
        finally:
            reporter.end()
            self._limiter.release_on_behalf_of(borrower)


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
