"""Settling: what a run makes of something that it is told, read off its log within a bounded time.

Admission's verdict says that a tell is on its way. What became of it the log says: the event that names the routed
command as its cause; and for an answer to a question, what whoever asks made of it.
"""

from collections.abc import AsyncIterator

import anyio
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.commands import Tell
from callboard.bus.errors import CallboardError, LogUnreadable
from callboard.bus.events import Event
from callboard.bus.log.port import Recorded, whole
from callboard.languages.language import NOT_UNDERSTOOD
from callboard.projections.projection import known
from callboard.runtime.admission.tells import DIVERGED_REMEDY
from callboard.runtime.admission.verdicts import Verdict
from callboard.service.api.client import VERDICT_WAIT_S, Client

SETTLE_WAIT_S = 5.0
"""How long we wait for what a run makes of a tell; the tell is durable already."""


DECISIVE = frozenset(
    {ev.HumanClosed.type, ev.EffectCancelled.type, ev.NodeWarning.type, ev.RunDiverged.type, ev.RunEnd.type}
)
"""What may say what becomes of a tell, besides the event that names it as its cause."""


OBSTACLES = frozenset({"replay.diverged", "replay.not_admitted", LogUnreadable.CODE})
"""Codes of warnings that say that the run cannot follow just now."""


class Reception(Struct, frozen=True):
    """What became of a tell: admission's verdict, the event that it became, and whether the run has taken it.

    ``settled`` False says that this is not known yet: the run has not recorded it, or whoever asks has not decided
    whether the answer is one.
    """

    verdict: Verdict
    recorded: Event | None = None
    settled: bool = False


class NotTaken(CallboardError):
    """The run was told, and does not follow: ``answer.not_understood``, or a code of ``command.refused``."""


async def told(
    client: Client,
    run: str,
    verb: str,
    tell: Tell,
    wait_s: float = SETTLE_WAIT_S,
    *,
    verdict_wait_s: float = VERDICT_WAIT_S,
) -> Reception:
    """Tell a run something, and wait for what it makes of it.

    :raises NotTaken: if the run refuses it, or does not understand the answer
    :raises NoVerdict: if no worker admitted or refused it in time
    :raises NoAnswer: if the stream does not answer
    """
    if wait_s <= 0:
        return Reception(await client.tell(run, verb, tell, wait_s=verdict_wait_s))
    async with client.follow(run, after=None) as feed:
        verdict = await client.tell(run, verb, tell, wait_s=verdict_wait_s)
        if verdict.status == "rejected":
            return Reception(verdict)
        for warning in verdict.warnings:
            if warning.code in OBSTACLES:
                raise NotTaken(warning.code, warning.message, run, warning.expected or "")
        if not verdict.duplicate:
            return await _settled(client, run, verdict, feed, wait_s)
    # The first tell of this id may be recorded already.
    last = await client.log.last(client.ref(run))
    if last is not None and last.event.type == ev.RunEnd.type and last.sequence < verdict.cause:
        raise NotTaken("run.finished", "the run has ended; it comes too late", run)
    async with client.follow(run, after=verdict.cause) as feed:
        return await _settled(client, run, verdict, feed, wait_s)


async def _settled(
    client: Client, run: str, verdict: Verdict, feed: AsyncIterator[Recorded], wait_s: float
) -> Reception:
    """Find the outcome of a tell in the events that follow it. Raises as `told`."""
    settling = Settling(run, verdict.cause)
    with anyio.move_on_after(wait_s):
        async for item in feed:
            # Of other events members may be stored apart, and need not be fetched.
            if item.event.cause == verdict.cause or item.event.type in DECISIVE:
                settling.apply(await whole(client.log, item))
            if settling.answers_before:
                settling.look_back(await client.events(run))
            if settling.settled:
                break
    return Reception(verdict, settling.recorded, settling.settled)


class Settling:
    """Folds a run's events, from the tell on, into what became of the command that came to be ``cause``."""

    def __init__(self, run: str, cause: int) -> None:
        self.recorded: Event | None = None
        self.settled = False
        self._run = run
        self._cause = cause
        self._answer: ev.HumanAnswered | None = None
        self._ahead: int | None = 0

    @property
    def answers_before(self) -> bool:
        """Whether there are answers before ours of which we do not know what has been made: see `look_back`."""
        return self._ahead is None

    def look_back(self, events: list[Event]) -> None:
        """Count, in the run's log, the answers before ours that nothing has been made of when ours was recorded."""
        assert self.recorded is not None
        assert self._answer is not None
        key, n = self._answer.interaction, self.recorded.n
        asked = max((event.n for event in events if _asks(event, key)), default=0)
        refused = sum(1 for event in events if asked < event.n < n and _refuses(event, key))
        self._ahead = self._answer.k - 1 - refused

    def apply(self, event: Event) -> None:
        """Take an event.

        :raises NotTaken: if it says that the run does not follow, or cannot
        """
        payload = known(event)
        if self._answer is not None:
            self._judge(self._answer, event)
        elif event.cause == self._cause:
            self.recorded = event
            if isinstance(payload, ev.CommandRefused):
                raise NotTaken(payload.code, payload.message, self._run)
            if isinstance(payload, ev.HumanAnswered):
                self._answer, self._ahead = payload, 0 if payload.k == 1 else None
            self.settled = self._answer is None
        elif isinstance(payload, ev.RunDiverged):
            message = f"the run has diverged, so the command waits: {payload.message}"
            raise NotTaken(payload.code, message, self._run, DIVERGED_REMEDY)
        elif isinstance(payload, ev.RunEnd):
            raise NotTaken("run.finished", "the run has ended; it comes too late", self._run)

    def _judge(self, answer: ev.HumanAnswered, event: Event) -> None:
        match known(event):
            case ev.HumanClosed(outcome="answered", k=answer.k) if event.key == answer.interaction:
                self.settled = True
            case ev.HumanClosed(outcome=outcome, k=k) if event.key == answer.interaction:
                how = f"answer {k} was taken" if outcome == "answered" else _CLOSED[outcome]
                raise NotTaken("answer.late", f"{answer.interaction}: {how} before it", self._run)
            case ev.EffectCancelled() if event.key == answer.interaction:
                raise NotTaken("answer.late", f"{answer.interaction}: {_CLOSED['cancelled']} before it", self._run)
            case ev.NodeWarning(reason=reason) if _refuses(event, answer.interaction):
                if not self._ahead:
                    remedy = "The question is still open: answer again."
                    raise NotTaken("answer.not_understood", reason, self._run, remedy)
                self._ahead -= 1
            case _:
                pass


_CLOSED = {"timeout": "the question had timed out", "cancelled": "the question was withdrawn"}


def _asks(event: Event, interaction: str) -> bool:
    return event.type == ev.HumanAsked.type and event.key == interaction


def _refuses(event: Event, interaction: str) -> bool:
    """Whether an event says that an answer to this question was not understood; the address is that of its node."""
    payload = known(event) if event.type == ev.NodeWarning.type else None
    here = interaction.startswith(f"{event.path}#{event.iteration}.")
    return here and isinstance(payload, ev.NodeWarning) and payload.code == NOT_UNDERSTOOD
