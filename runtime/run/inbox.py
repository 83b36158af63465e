"""The inbox of an active run: the commands that have come, and which of them its log has recorded.

A command is acknowledged when the event that records it is, or those are that made it pointless; and it acts once: its
sequence is the event's cause (law 9). One that was pointless as it came waits until the run is known to be ours still:
to somebody else, who has the run now, it may be news.

Consumes: start, alarm, wake, usage, hold, release, cancel, kill, pause, resume, answer, signal
"""

import datetime as dt
from collections import deque
from collections.abc import Callable

from callboard.bus.commands import TELLS
from callboard.bus.events import Event
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.run.activation import Activation, Command, Heard
from callboard.runtime.run.reactions import is_late, reactions

OF_THE_FAMILY = frozenset({"wake", "usage", "hold", "release"})
"""What its parent and its children say to a run."""

URGENT = frozenset({"cancel", "kill", "pause"})
"""Commands for which a run is activated even if all slots are taken, or its workers have crashed just now."""

COMMANDS_WAITING_MAX = 1_000
"""Commands that wait until an active run looks at them; more are delivered again later."""


class Inbox:
    """The commands of one activation. Those still ``waiting`` when it has ended were not looked at."""

    def __init__(self) -> None:
        self.waiting: deque[Command] = deque()
        self.heard = Heard()
        self.pointless: list[Command] = []
        """Commands there is nothing to do about, as far as is known here."""
        self._recorded_as: dict[int, int] = {}
        """By the sequence of a command the number of the event that records it."""
        self._done_with: dict[int, list[Command]] = {}
        """By the number of an event on its way into the log, the commands that are done with when it is there."""

    @property
    def full(self) -> bool:
        return len(self.waiting) >= COMMANDS_WAITING_MAX

    def know(self, event: Event) -> None:
        """Note that the log holds an event of the run: the command that is its cause is not obeyed again."""
        if event.cause:
            self._recorded_as[event.cause] = event.n
            self.heard.note(event.cause)

    def take(self, command: Command) -> None:
        """Leave a command until the run looks at it."""
        self.heard.note(command.sequence)
        self.waiting.append(command)

    @property
    def stored(self) -> dt.datetime | None:
        """When the server stored the oldest waiting command, if that decides about deadlines."""
        return next((_stored(command) for command in self.waiting), None)

    def obey_next(self, active: Activation, heed: Callable[[Command], bool], due: dt.datetime | None = None) -> bool:
        """Take the oldest waiting command, and number the events that it becomes, if any; ``heed`` takes those of the
        family, and says whether there is anything to it.

        Where a deadline ``due`` has elapsed, commands that were stored later wait for it, except answers that it
        refuses: these are recorded as late before the run continues, and perhaps ends. Return False without a command
        to take.
        """
        command = next((one for one in self.waiting if _is_next(active, one, due)), None)
        if command is None:
            return False
        self.waiting.remove(command)
        if command.verb in ("start", "alarm"):
            self._drop(active, command, active.runlog.n)  # It was there to wake the run.
        elif (n := self._recorded_as.get(command.sequence)) is not None:
            self._drop(active, command, n)
        elif command.verb not in OF_THE_FAMILY:
            self._record(active, command)
        elif not _heeded(heed, command):
            # Nobody waits for that child any more, which may be so since just now; or it is no run's words.
            self._drop(active, command, active.runlog.n)
        return True

    def _record(self, active: Activation, command: Command) -> None:
        event: Event | None = None
        body = active.runlog.command(command.body)
        found = reactions(active.stage, command.verb, body, command.stored)
        for reaction in found:
            # A crash between two events of a command must not make it look done: only the last names it.
            cause = command.sequence if reaction is found[-1] else 0
            node = active.stage.waits.address_of(reaction.key)
            event = active.runlog.state(reaction.payload, key=reaction.key, cause=cause, node=node)
            if reaction.key:
                active.stage.ledger.numbered(reaction.key, event)
        assert event is not None
        self.recorded_as(command, event.n)

    def _drop(self, active: Activation, command: Command, n: int) -> None:
        """Nothing is to be done about a command, because of event ``n``: it is done with when the log holds that."""
        queue = active.runlog.queue
        if queue and n >= queue[0].event.n:
            self._done_with.setdefault(n, []).append(command)
        else:
            self.pointless.append(command)

    def dismiss(self) -> None:
        """The run is still ours: what was pointless is done with."""
        pointless, self.pointless = self.pointless, []
        for command in pointless:
            command.done()

    def recorded_as(self, command: Command, n: int) -> None:
        """Event ``n``, on its way into the log, records a command."""
        self._recorded_as[command.sequence] = n
        self._done_with.setdefault(n, []).append(command)

    def appended(self, event: Event) -> None:
        """An event is in the log: the commands that wait for it are done with."""
        for command in self._done_with.pop(event.n, ()):
            command.done()


def _stored(command: Command) -> dt.datetime | None:
    """When a command was stored, if that decides whether it comes before a deadline: a kill always does."""
    return command.stored if command.verb in TELLS and command.verb != "kill" else None


def _is_next(active: Activation, command: Command, due: dt.datetime | None) -> bool:
    stored = _stored(command)
    if due is None or stored is None or stored <= due:
        return True
    return is_late(active.stage, command.verb, active.runlog.command(command.body), stored)


def _heeded(heed: Callable[[Command], bool], command: Command) -> bool:
    try:
        return heed(command)
    except JSON_ERRORS:
        return False
