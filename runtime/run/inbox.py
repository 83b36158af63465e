"""The inbox of an active run: the commands that have arrived, and which of them are recorded in its log.

A command is acknowledged after the event that records it, or after the events that made it pointless, are acknowledged.
It acts once, because the event has the command's sequence as its cause (law 9). A command that was pointless on arrival
is kept until it is certain that this worker still has the run: another worker may still have to act on it.

Consumes: start, alarm, wake, usage, hold, release, cancel, kill, pause, resume, answer, signal
"""

import datetime as dt
from collections import deque
from collections.abc import Callable

from callboard.bus.commands import TELLS
from callboard.bus.events import Event
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.interpreter.stage import RunStage
from callboard.runtime.run.activation import Command, ReceivedCommands
from callboard.runtime.run.log import RunLog
from callboard.runtime.run.reactions import is_late, reactions

OF_THE_FAMILY = frozenset({"wake", "usage", "hold", "release"})
"""Commands that a run receives from its parent and its children."""

ENDING = frozenset({"cancel", "kill"})
"""Commands that end a run."""

URGENT = ENDING | {"pause"}
"""Commands that activate a run even if all slots are taken or its workers have just crashed."""

COMMANDS_WAITING_MAX = 1_000
"""Maximum number of commands that wait in the inbox of an active run; further ones are redelivered later."""


class Inbox:
    """The commands of one activation. Those still ``waiting`` when it ends have not been processed."""

    def __init__(self) -> None:
        self.waiting: deque[Command] = deque()
        self.heard = ReceivedCommands()
        self.pointless: list[Command] = []
        """Commands that need no action, as far as this worker knows."""
        self._recorded_as: dict[int, int] = {}
        """The number of the event that records a command, by the command's sequence."""
        self.awaiting: dict[int, list[Command]] = {}
        """The commands to acknowledge once an event is in the log, by the event's number."""

    @property
    def full(self) -> bool:
        return len(self.waiting) >= COMMANDS_WAITING_MAX

    def know(self, event: Event) -> None:
        """Note a recorded event of the run, so that the command that caused it is not processed again."""
        if event.cause:
            self._recorded_as[event.cause] = event.n
            self.heard.note(event.cause)

    def take(self, command: Command) -> None:
        """Queue a command until the run processes it."""
        self.heard.note(command.sequence)
        self.waiting.append(command)

    @property
    def stored_at(self) -> dt.datetime | None:
        """The time at which the server stored the oldest waiting command that is compared with deadlines."""
        return _stored_at(self.waiting[0]) if self.waiting else None

    def obey_next(
        self, stage: RunStage, runlog: RunLog, heed: Callable[[Command], bool], due: dt.datetime | None = None
    ) -> bool:
        """Take the oldest waiting command and number the events that it results in, if any.

        ``heed`` processes commands from the parent and from children, and returns whether there was anything to do. If
        a deadline ``due`` has elapsed, commands that were stored later wait for it, except answers that come too late
        because of it: these are refused before the run continues and perhaps ends. Return False if no command can be
        taken.
        """
        if not self.waiting:
            return False
        command = next((one for one in self.waiting if _is_next(stage, runlog, one, due)), None)
        if command is None:
            return False
        self.waiting.remove(command)
        if command.verb in ("start", "alarm"):
            self._drop(runlog, command, runlog.n)  # It only had to wake the run.
        elif (n := self._recorded_as.get(command.sequence)) is not None:
            self._drop(runlog, command, n)
        elif command.verb not in OF_THE_FAMILY:
            self._record(stage, runlog, command)
        elif not _try_heed(heed, command):
            # The run no longer waits for that child, perhaps only since an event that is not stored yet; or the command
            # is malformed, so it does not come from a run.
            self._drop(runlog, command, runlog.n)
        return True

    def _record(self, stage: RunStage, runlog: RunLog, command: Command) -> None:
        event: Event | None = None
        body = runlog.command(command.body)
        found = reactions(stage, command.verb, body, command.stored)
        for reaction in found:
            # A crash between two events of a command must not make it look done: only the last names it.
            cause = command.sequence if reaction is found[-1] else 0
            node = stage.waits.address_of(reaction.key)
            event = runlog.state(reaction.payload, key=reaction.key, cause=cause, node=node)
            if reaction.key:
                stage.ledger.record_outcome(reaction.key, event)
        assert event is not None
        self.recorded_as(command, event.n)

    def _drop(self, runlog: RunLog, command: Command, n: int) -> None:
        """Drop a command that event ``n`` has made pointless; it is acknowledged once that event is in the log."""
        queue = runlog.queue
        if queue and n >= queue[0].event.n:
            self.awaiting.setdefault(n, []).append(command)
        else:
            self.pointless.append(command)

    def dismiss(self) -> None:
        """Acknowledge the pointless commands. The caller has checked that this worker still has the run."""
        pointless, self.pointless = self.pointless, []
        for command in pointless:
            command.done()

    def recorded_as(self, command: Command, n: int) -> None:
        """Note that event ``n``, which is not stored yet, records a command."""
        self._recorded_as[command.sequence] = n
        self.awaiting.setdefault(n, []).append(command)

    def acknowledge_for(self, event: Event) -> None:
        """Acknowledge the commands that waited for an event that is now in the log."""
        for command in self.awaiting.pop(event.n, ()):
            command.done()


def _stored_at(command: Command) -> dt.datetime | None:
    """The time at which a command was stored, if it is compared with deadlines. A kill always comes first."""
    return command.stored if command.verb in TELLS and command.verb != "kill" else None


def _is_next(stage: RunStage, runlog: RunLog, command: Command, due: dt.datetime | None) -> bool:
    stored = _stored_at(command)
    if due is None or stored is None or stored <= due:
        return True
    return is_late(stage, command.verb, runlog.command(command.body), stored)


def _try_heed(heed: Callable[[Command], bool], command: Command) -> bool:
    try:
        return heed(command)
    except JSON_ERRORS:
        return False
