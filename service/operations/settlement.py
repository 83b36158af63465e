"""Sends a command to a run, and waits for a limited time until the run's log shows its effect.

The verdict of admission only says that the command is on its way. The log shows the effect: the event that names the
routed command as its cause. For an answer to a question, later events show whether the node accepted it.
"""

from collections.abc import AsyncIterator

import anyio
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.commands import TOLD_HEADER, Tell
from callboard.bus.errors import CallboardError, LogNewer, LogUnreadable
from callboard.bus.events import Event
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.log.successors import successor_of
from callboard.projections.projection import known_payload
from callboard.runtime.admission.tells import divergence_remedy, kept_message
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import VERDICT_WAIT_S, Client
from callboard.runtime.interpreter.nodes import COUNTED_ANSWER, NOT_UNDERSTOOD

SETTLE_WAIT_S = 5.0
"""How long to wait for the effect of a command; the command itself is durable by then."""


DECISIVE = frozenset(
    {
        ev.HumanClosed.type,
        ev.EffectCancelled.type,
        ev.NodeWarning.type,
        ev.NodeProgress.type,
        ev.RunDiverged.type,
        ev.RunEnd.type,
    }
)
"""Types of events that may decide the effect of a command, besides the event that names it as its cause."""


OBSTACLES = frozenset({"replay.diverged", "replay.not_admitted", LogNewer.CODE, LogUnreadable.CODE})
"""Codes of warnings which say that the run cannot carry out commands at present."""


class Reception(Struct, frozen=True):
    """The effect of a command: admission's verdict, the event that recorded it, and whether the run has accepted it.

    ``settled`` is False if the effect is not known yet: the run has not recorded the command, or the node that asked
    has not decided whether it accepts the answer.
    """

    verdict: Verdict
    recorded: Event | None = None
    settled: bool = False


class NotTaken(CallboardError):
    """The run refused the command: ``answer.not_understood``, or a code of ``command.refused``."""


async def tell_and_wait(
    client: Client,
    run: str,
    verb: str,
    tell: Tell,
    wait_s: float = SETTLE_WAIT_S,
    *,
    verdict_wait_s: float = VERDICT_WAIT_S,
) -> Reception:
    """Send a command to a run, and wait up to ``wait_s`` seconds for its effect.

    :raises NotTaken: if the run refuses the command, or does not understand the answer
    :raises NoVerdict: if no worker admitted or refused the command in time
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
        to = verdict.run_id or run
        if not verdict.duplicate and to == run:
            return await _wait_for_effect(client, run, verdict, feed, wait_s)
    if to != run:
        # Another run continues this one.
        return await _wait_in_chain(client, to, verdict, wait_s)
    # The run may have recorded an earlier command with this id already.
    last = await client.log.last(client.ref(run))
    ended = last is not None and last.event.type == ev.RunEnd.type and last.sequence < verdict.cause
    if last is not None and ended and successor_of(last.event) is None:
        raise NotTaken("run.finished", "the run has ended; it comes too late", run)
    async with client.follow(run, after=verdict.cause) as feed:
        return await _wait_for_effect(client, run, verdict, feed, wait_s)


async def _wait_for_effect(
    client: Client, run: str, verdict: Verdict, feed: AsyncIterator[Recorded], wait_s: float
) -> Reception:
    """Find the effect of a command in the events that follow it. Raises as `tell_and_wait`."""
    settling, until = Settling(run, verdict.cause), anyio.current_time() + wait_s
    with anyio.move_on_at(until):
        await _settle(client, settling, feed)
    if settling.successor:
        # The command is passed on to the run that continues this one.
        return await _wait_in_chain(client, settling.successor, verdict, until - anyio.current_time())
    return Reception(verdict, settling.recorded, settling.settled)


async def _wait_in_chain(client: Client, run: str, verdict: Verdict, wait_s: float) -> Reception:
    """Find the effect of a command in the events of a run that continues another one, and in those that continue it."""
    settling = Settling(run, verdict.cause)
    with anyio.move_on_after(wait_s):
        told = await _identify_command(client, verdict.cause)
        while True:
            async with client.follow(settling.run, after=0) as feed:
                await _settle(client, settling, feed, told)
            if not settling.successor:
                break
            settling = Settling(settling.successor, 0)
    return Reception(verdict, settling.recorded, settling.settled)


async def _settle(client: Client, settling: "Settling", feed: AsyncIterator[Recorded], told: str = "") -> None:
    """Apply events until the effect of the command is known, or another run continues this one.

    ``told`` identifies a command that may have been passed on; without it the sequence of the command is known.
    """
    async for item in feed:
        cause = item.event.cause
        if told and cause and item.event.n > 1 and await _identify_command(client, cause) == told:
            settling.cause = cause
        # Other events may have large members, which need not be fetched.
        if (cause and cause == settling.cause) or item.event.type in DECISIVE:
            settling.apply(await whole(client.log, item))
        if settling.answers_before:
            settling.look_back(await client.events(settling.run))
        if settling.settled or settling.successor:
            break


async def _identify_command(client: Client, cause: int) -> str:
    """Return what identifies a command, however often it is passed on; empty if the command is gone."""
    command = await client.log.message(cause)
    return command.headers.get(TOLD_HEADER, "") if command is not None else ""


class Settling:
    """Folds a run's events into the effect of one command; ``cause`` is the sequence of the routed command."""

    def __init__(self, run: str, cause: int) -> None:
        self.recorded: Event | None = None
        self.settled = False
        self.successor = ""
        """The run that continues this one, if this one has not recorded the command, which is passed on to that one."""
        self.run = run
        self.cause = cause
        self._answer: ev.HumanAnswered | None = None
        self._ahead: int | None = 0

    @property
    def answers_before(self) -> bool:
        """Whether earlier answers to the same question may still be undecided; then call `look_back`."""
        return self._ahead is None

    def look_back(self, events: list[Event]) -> None:
        """Count the earlier answers that were still undecided when this one was recorded; ``events`` is the log."""
        assert self.recorded is not None
        assert self._answer is not None
        key, n = self._answer.interaction, self.recorded.n
        asked = max((event.n for event in events if event.type == ev.HumanAsked.type and event.key == key), default=0)
        decided = sum(1 for event in events if asked < event.n < n and (_refuses(event, key) or _counts(event, key)))
        self._ahead = self._answer.k - 1 - decided

    def apply(self, event: Event) -> None:
        """Take an event.

        :raises NotTaken: if the event shows that the run refuses the command, or cannot carry it out
        """
        payload = known_payload(event)
        if self._answer is not None:
            self._judge(self._answer, event)
        elif event.cause == self.cause:
            self.recorded = event
            if isinstance(payload, ev.CommandRefused):
                raise NotTaken(payload.code, payload.message, self.run)
            if isinstance(payload, ev.HumanAnswered):
                self._answer, self._ahead = payload, 0 if payload.k == 1 else None
            self.settled = self._answer is None
        elif isinstance(payload, ev.RunDiverged):
            message = kept_message("answer" if self._answer is not None else "command", payload)
            raise NotTaken(payload.code, message, self.run, divergence_remedy(payload.code))
        elif isinstance(payload, ev.RunEnd):
            if payload.successor is not None:
                self.successor = payload.successor.run
                return
            raise NotTaken("run.finished", "the run has ended; it comes too late", self.run)

    def _judge(self, answer: ev.HumanAnswered, event: Event) -> None:
        match known_payload(event):
            case ev.HumanClosed(outcome="answered", k=answer.k) if event.key == answer.interaction:
                self.settled = True
            case ev.HumanClosed(outcome=outcome, k=k) if event.key == answer.interaction:
                how = f"answer {k} was taken" if outcome == "answered" else _CLOSED[outcome]
                raise NotTaken("answer.late", f"{answer.interaction}: {how} before it", self.run)
            case ev.NodeProgress() if (k := _counts(event, answer.interaction)) is not None:
                if k == answer.k:
                    self.settled = True
                elif self._ahead:
                    self._ahead -= 1
            case ev.EffectCancelled() if event.key == answer.interaction:
                raise NotTaken("answer.late", f"{answer.interaction}: {_CLOSED['cancelled']} before it", self.run)
            case ev.NodeWarning(reason=reason) if _refuses(event, answer.interaction):
                if not self._ahead:
                    remedy = "The question is still open: answer again."
                    raise NotTaken("answer.not_understood", reason, self.run, remedy)
                self._ahead -= 1
            case _:
                pass


_CLOSED = {"timeout": "the question had timed out", "cancelled": "the question was withdrawn"}


def _counts(event: Event, interaction: str) -> int | None:
    """Return the number of the answer that an event counts as one of several to this question; None if it does not."""
    payload = known_payload(event) if event.type == ev.NodeProgress.type else None
    match payload:
        case ev.NodeProgress(data={"interaction": key, **data}) if key == interaction:
            k = data.get(COUNTED_ANSWER)
            return k if isinstance(k, int) else None
        case _:
            return None


def _refuses(event: Event, interaction: str) -> bool:
    """Whether an event says that an answer to this question was not understood. The event has the address of the node
    that asked."""
    payload = known_payload(event) if event.type == ev.NodeWarning.type else None
    here = interaction.startswith(f"{event.path}#{event.iteration}.")
    return here and isinstance(payload, ev.NodeWarning) and payload.code == NOT_UNDERSTOOD
