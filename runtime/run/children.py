"""Children: the child runs of one run during one activation. Starts them, learns of their ends and has them stopped.

A child run is a run like any other, performed by the worker of its partition. Parent and child communicate by
`callboard.runtime.run.messages`.

Emits: child.end
"""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Protocol, TypeVar

import anyio
import msgspec
import structlog

from callboard.bus import events as ev
from callboard.bus.effects import Failure, ModelUsage, Tally, Usage
from callboard.bus.errors import LogUnavailable, RunLost, StoreFull, unexpected_failure
from callboard.bus.events import Event, Problem
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.encryption import Key
from callboard.bus.log.port import APPEND_PATIENCE_S, EventLog, NoAnswer, Patience, RunMessage, SuccessorStart, whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.log.successors import find_newest, successor_of
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.languages.plan import STRICT
from callboard.lib.backoff import backoff_s
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.activation import Children, Command
from callboard.runtime.run.bundles import child_message
from callboard.runtime.run.messages import start_of, stop_of, wake_of
from callboard.runtime.run.recorded_children import find_recorded_child

logger = structlog.get_logger(__name__)

T = TypeVar("T")

CONCERN_RUNS = frozenset({ev.RunEnd.type, ev.EffectCancelled.type})
"""Events that may concern the parent, a child or the run that continues this one."""

LINEAGE_MAX = 16
"""Maximum number of generations that descend from a run; it stops a definition that starts itself."""

BEGUN_AT_ONCE = 16
"""Maximum number of children of one run that are started or checked concurrently."""

LOOK_S = 60.0
"""How often an active run checks all of its children, in case an end was not announced."""

LOOK_PAUSE_S = 0.05
"""Pause between the checks of two children, because there may be thousands."""

RETRY_S = 0.2
RETRY_MAX_S = 5.0
"""Pauses between tries while the log does not answer."""

BEHIND_MAX = 20
"""Number of tries, over more than a minute, to find an entry that the log must have, because a replica may lag."""


class EntryMissing(Exception):
    """The log lacks an entry that it must have, perhaps only for the moment."""


class NotEnded(EntryMissing):
    """A run whose end was announced has not ended."""


class ParentRun(Protocol):
    """What `ChildRuns` reports to the run that has started them."""

    def lose(self, event: Event, /) -> None:
        """Stop the run's actor if an event of the run follows another worker's claim."""
        ...

    def child_begun(self, key: str) -> None:
        """Note that a child exists, so that its end will be announced."""
        ...

    def child_ended(self, key: str, end: ev.ChildEnd, wake: Command | None = None) -> None:
        """Record a child's end, with the command that announced it."""
        ...


class ChildRuns:
    """The child runs of one run."""

    def __init__(
        self,
        ref: RunRef,
        admission: Admitted,
        log: EventLog,
        children: Children,
        spawn: Callable[[str, Callable[[], Awaitable[None]]], object],
        *,
        epoch: int,
        counts: bool = False,
        key: Key | None = None,
    ) -> None:
        self._ref = ref
        self._key = key
        self._epoch = epoch
        self._counts = counts
        self._admission = admission
        self._log = log
        self._children = children
        self._spawn = spawn
        self._limiter = anyio.CapacityLimiter(BEGUN_AT_ONCE)
        self._underway: dict[str, RunRef] = {}
        self._beginning: dict[str, anyio.Event] = {}
        self._woken: set[str] = set()
        self._looks_around = False

    def is_there(self, key: str) -> bool:
        """Whether an effect is a child run that is known to exist."""
        return key in self._underway

    def far_away(self, key: str) -> bool:
        """Whether a child exists and nothing is left to do here until it ends."""
        return key in self._underway and key not in self._woken

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, parent: ParentRun, key: str, intent: ev.ChildStart, *, known: bool) -> None:
        """Start a child, unless the log proves that it was started, which ``known`` states."""
        if known:
            self._note_underway(parent, key)
        else:
            self._beginning[key] = anyio.Event()
            self._spawn(f"child {key}", lambda: self._begin(parent, key, intent))

    def _note_underway(self, parent: ParentRun, key: str) -> None:
        self._underway[key] = self._child(key)
        parent.child_begun(key)
        if not self._looks_around:
            self._looks_around = True
            self._spawn("children", lambda: self._look_around(parent))

    async def _begin(self, parent: ParentRun, key: str, intent: ev.ChildStart) -> None:
        try:
            end = await self._until_known(lambda: self._start_child(key, intent))
        except RunLost as error:
            if error.found is not None:
                parent.lose(error.found)
            return
        except Exception as error:
            logger.exception("child run could not be started", run=self._ref.run, key=key)
            failure = unexpected_failure(error)
            end = _failure_end(failure.code, failure.message)
        finally:
            self._beginning.pop(key).set()
        if end is None:
            self._note_underway(parent, key)
        else:
            parent.child_ended(key, end)

    async def _start_child(self, key: str, intent: ev.ChildStart) -> ev.ChildEnd | None:
        """Start a child unless it exists; return its end if it has ended or was refused."""
        child = self._child(key)
        last = await self._log.last(child)
        if last is None:
            await self._check_ours()
            parent = self._parent_of(key)
            message = child_message(self._admission.start, intent)
            if isinstance(message, Problem):
                return _refusal_end([message])
            if (recording := self._admission.start.recording) is not None:
                found = await find_recorded_child(self._log, child.tenant, recording, key, intent)
                if isinstance(found, ev.ChildEnd):
                    return found
                message["recording"] = msgspec.to_builtins(found)
            fork = self._admission.start.fork
            if fork is not None and key in fork.children:
                message["fork"] = msgspec.to_builtins(fork.children[key])
            if self._admission.plan.options.get(STRICT):
                message["options"] = {STRICT: True, **message.get("options", {})}
            body = msgspec.json.encode({**message, "run_id": child.run})
            if problems := _depth_problems(parent) or await self._children.admit_child(child, body, parent):
                return _refusal_end(problems)
            # The run may have been lost while the child was admitted.
            await self._check_ours()
        elif last.event.type != ev.RunAccepted.type:
            return await self._find_end(key)
        # The child is admitted, but perhaps not activated yet.
        await self._children.call_child(child)
        return None

    async def _check_ours(self) -> None:
        """Check that this activation still has the run.

        Another worker that has taken the run may have cancelled the child already, and a child that is started after
        that would never be stopped.

        :raises RunLost: if another worker has taken the run
        :raises NoAnswer: if the log does not answer
        """
        last = await self._log.last(self._ref)
        if last is not None and last.event.epoch > self._epoch:
            raise RunLost(self._ref, last.event.n, last.event)

    def _child(self, key: str) -> RunRef:
        """The child of an effect. In a fork it is the fork's child, even if a shared intent names one of the origin."""
        return RunRef(self._ref.tenant, child_id(self._ref.run, key))

    def _known(self, key: str) -> RunRef:
        """The run that the child of an effect continues as, as far as this is known here."""
        return self._underway.get(key) or self._child(key)

    def _parent_of(self, key: str) -> ev.Parent:
        ours = self._admission.accepted.parent
        return ev.Parent(self._ref.run, key, (ours.depth if ours else 0) + 1, self._counts)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def wake(self, parent: ParentRun, key: str, command: Command) -> None:
        """Read the announced end of a child."""
        self._woken.add(key)
        self._spawn(f"child {key}", lambda: self._look(parent, key, command))

    async def _look(self, parent: ParentRun, key: str, command: Command) -> None:
        end = None
        try:
            end = await self._until_known(lambda: self._read_announced_end(key))
        except NotEnded as error:
            logger.warning(
                "the end of a child run was announced, but it has not ended", run=self._ref.run, key=key, why=str(error)
            )
        except Exception as error:
            logger.exception("end of a child run could not be read", run=self._ref.run, key=key)
            failure = unexpected_failure(error)
            end = _failure_end(failure.code, failure.message)
        self._woken.discard(key)
        if end is None:
            # Callboard announces an end only when it is stored, so this command came from elsewhere: acknowledge it.
            command.done()
            parent.child_begun(key)
        else:
            self._underway.pop(key, None)
            parent.child_ended(key, end, command)

    async def _look_around(self, parent: ParentRun) -> None:
        while True:
            for key in list(self._underway):
                await anyio.sleep(LOOK_PAUSE_S)
                if key in self._woken or key not in self._underway:
                    continue
                try:
                    end = await self._find_end(key)
                except Exception as error:
                    logger.warning("child run could not be looked at", run=self._ref.run, key=key, error=str(error))
                    break
                if end is not None:
                    self._underway.pop(key, None)
                    parent.child_ended(key, end)
            await anyio.sleep(LOOK_S)

    async def _find_end(self, key: str) -> ev.ChildEnd | None:
        """The end of a child, or of the run that continues it."""
        child, last = await find_newest(self._log, self._known(key))
        if key in self._underway:
            self._underway[key] = child
        continues = child != self._child(key)
        if last is None:
            refused = await self._children.refusal_of(child) if continues else []
            return _refusal_end(refused) if refused else None
        return await self._end(last, continues=continues)

    async def _read_announced_end(self, key: str) -> ev.ChildEnd:
        """The end of a child, which was stored together with the command that announced it."""
        end = await self._find_end(key)
        if end is None:
            raise NotEnded(f"{self._known(key).run} has not ended")
        return end

    async def _end(self, last: Recorded, *, continues: bool) -> ev.ChildEnd | None:
        """The end of a child from its last event. ``continues`` says that it continues the child that was started."""
        if last.event.type != ev.RunEnd.type:
            return None
        event = await whole(self._log, last)
        if event.type == UNREADABLE:
            raise EntryMissing(f"{last.ref.run} has ended, but a large value of its end is missing")
        end = ev.payload_of(event)
        if not isinstance(end, ev.RunEnd):
            return None  # Only a newer version knows this end, so its worker has to continue the parent.
        usage, models = await self._usage_until(last.ref, end) if continues else (end.usage, end.models)
        return ev.ChildEnd(end.status, end.output, end.results, end.error, usage, end.warnings, models)

    async def _usage_until(self, child: RunRef, end: ev.RunEnd) -> tuple[Usage, list[ModelUsage]]:
        """Return the usage of a child, and of the runs that it continues: in total, and by model."""
        first = await self._log.read(child, limit=1)
        accepted = ev.payload_of(await whole(self._log, first[0])) if first else None
        before = accepted.continues if isinstance(accepted, ev.RunAccepted) else None
        if before is None:
            return end.usage, end.models
        models = Tally()
        for one in (*before.models, *end.models):
            models.add(one)
        return before.usage + end.usage, models.view()

    async def _until_known(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Call ``ask`` until the log answers, as long as the run is active. A guess could lose a child.

        :raises EntryMissing: if an entry that the log must have was not found for more than a minute
        """
        behind = 0
        for tried in count(1):
            try:
                async with self._limiter:
                    return await ask()
            except (NoAnswer, LogUnavailable, StoreFull, EntryMissing) as error:
                behind += isinstance(error, EntryMissing)
                if behind == BEHIND_MAX:
                    raise
                logger.warning("child run is waiting for the log", run=self._ref.run, why=str(error))
            await anyio.sleep(backoff_s(tried, RETRY_S, RETRY_MAX_S))
        raise AssertionError("the loop ends only with an answer")

    # -- messages -----------------------------------------------------------------------------------------------------

    def concerns(self, event: Event) -> bool:
        """Whether an event of this run may concern another run, so that `run_message` must be called for it."""
        if event.type == ev.RunEnd.type:
            return self._admission.accepted.parent is not None or successor_of(event) is not None
        if event.type != ev.EffectCancelled.type:
            return False
        cancelled = ev.payload_of(event)
        return isinstance(cancelled, ev.EffectCancelled) and cancelled.of == ev.ChildStart.type

    async def run_message(self, event: Event, *, killed: bool) -> RunMessage | SuccessorStart | None:
        """Return the message that must be stored with an event of this run, if the event concerns another run.

        ``killed`` says whether this run is being killed.

        :raises LogUnavailable: if the log does not answer whether the child to stop exists
        """
        payload = ev.payload_of(event) if self.concerns(event) else None
        parent = self._admission.accepted.parent
        if isinstance(payload, ev.RunEnd):
            if payload.successor is not None:
                # The parent waits for the end of the successor.
                return start_of(self._ref, payload.successor.run)
            return wake_of(parent, self._ref) if parent is not None else None
        if not isinstance(payload, ev.EffectCancelled):
            return None
        beginning = self._beginning.get(event.key)
        if beginning is not None:
            # The child is being admitted right now; wait until it is known whether it exists and can be stopped.
            await beginning.wait()
        child, last = await self._last(self._known(event.key), event.n)
        self._underway.pop(event.key, None)
        if last is not None and last.event.type == ev.RunEnd.type:
            return None
        if last is None and child == self._child(event.key):
            return None
        return stop_of(child, self._ref, payload.cause, kill=killed, key=self._key)

    async def _last(self, child: RunRef, n: int) -> tuple[RunRef, Recorded | None]:
        """Return the run that a child continues as, and its last event."""
        patience = Patience(self._ref, n, APPEND_PATIENCE_S)
        while True:
            try:
                return await find_newest(self._log, child)
            except NoAnswer:
                await patience.pause()


def _depth_problems(parent: ev.Parent) -> list[Problem]:
    if parent.depth <= LINEAGE_MAX:
        return []
    message = f"the child run would be generation {parent.depth}"
    return [Problem("child.too_deep", message, "parent", expected=f"at most {LINEAGE_MAX} generations")]


def _refusal_end(problems: list[Problem]) -> ev.ChildEnd:
    reasons = "; ".join(str(problem) for problem in problems)
    return _failure_end(
        "child.refused", f"the child run was refused: {reasons}", {"problems": msgspec.to_builtins(problems)}
    )


def _failure_end(code: str, message: str, details: Any = None) -> ev.ChildEnd:
    return ev.ChildEnd("failed", error=Failure(code=code, message=message, details=details))
