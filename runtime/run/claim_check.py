"""The claim check: decides from a run's earlier activations whether it may be claimed again."""

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.runtime.interpreter.code import adopted_digest, named_code
from callboard.runtime.interpreter.replay import check_rules
from callboard.runtime.run.activation import RunServices
from callboard.runtime.run.crashes import (
    FRUITLESS_MAX,
    PROBATION_CRASHES,
    PROBATION_RETRY_S,
    Crashes,
    KeepsCrashing,
    NotYet,
    Probation,
    crashes_of,
)
from callboard.runtime.run.divergence import verify


class ClaimCheck:
    """The check of one activation. Without a ``probation`` crashes do not count."""

    def __init__(self, ref: RunRef, services: RunServices, probation: Probation | None) -> None:
        self._ref = ref
        self._services = services
        self._probation = probation
        self._crashes = Crashes()
        self.on_probation = False
        """Whether the run has this worker's only place for runs whose workers keep crashing."""

    @property
    def crashes(self) -> Mapping[str, int]:
        """The number of crashes during the execution of each open effect, by effect key."""
        return self._crashes.effects

    async def check(self, events: Sequence[Event], shared: int, now: dt.datetime, *, urgent: bool) -> None:
        """Check a run before it is claimed. An ``urgent`` run does not wait. A fork's first ``shared`` events belong to
        its origin.

        :raises ReplayDiverged: if this version does not follow the log of a run that has diverged before, or whose
            definition is code of which this worker has other sources
        :raises LogNewer: if the run follows rules of its language that only a newer version has
        :raises NotYet: if workers have crashed while they performed the run and it has to wait
        :raises KeepsCrashing: if every worker that claimed the run has crashed
        """
        accepted = ev.payload_of(events[0])
        assert isinstance(accepted, ev.RunAccepted)
        with suppress(KeyError):  # `read_admission` reports a language that is not installed
            check_rules(self._ref, events, self._services.language(accepted.definition.language))
        if events[-1].type == ev.RunDiverged.type or await self._is_other_code(events):
            await verify(self._services, self._ref, events)
        if self._probation is None:
            return
        self._crashes = crashes_of(events, shared)
        if self._crashes.fruitless >= FRUITLESS_MAX:
            raise KeepsCrashing(self._ref, self._crashes.fruitless)
        if urgent:
            return
        worst = self._crashes.worst
        if (pause_s := self._crashes.pause_s(now)) > 0:
            raise NotYet(self._ref, worst, pause_s)
        if worst < PROBATION_CRASHES:
            return
        self.on_probation = self._probation.enter(self)
        if not self.on_probation:
            raise NotYet(self._ref, worst, PROBATION_RETRY_S)

    async def _is_other_code(self, events: Sequence[Event]) -> bool:
        """Return whether the definition is code, and its sources here are not those that last performed the run."""
        if named_code(events[0]) is None:
            return False
        return bool((await self._services.read_admission(events[0], adopted_digest(events))).plan.adopts)

    def leave_probation(self) -> None:
        """Release the place for another run."""
        if self.on_probation and self._probation is not None:
            self._probation.leave(self)
        self.on_probation = False
