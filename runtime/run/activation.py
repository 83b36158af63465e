"""Activations: the state that the parts of a run's actor share while the run is active, and the services they use.

A command activates a run. The run stays active until it parks, ends, is lost to another worker or is released by its
worker.
"""

import asyncio
import datetime as dt
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import anyio
from msgspec import Struct

from callboard.actors.carrier import Carrier
from callboard.actors.tools.tool import Keep
from callboard.bus import events as ev
from callboard.bus.events import Environment, Event, Problem
from callboard.bus.prices import Prices
from callboard.bus.subjects import RunRef
from callboard.languages.language import Language
from callboard.runtime.budgets.allowances import Allowances
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.interpreter.stage import RunStage
from callboard.runtime.run.log import RunLog
from callboard.runtime.run.pace import Pace


class ActivationEnd(StrEnum):
    """Why an activation of a run is over."""

    ENDED = "ended"
    """The run has ended."""
    PARKED = "parked"
    """Nothing is left to do until an event or a command arrives."""
    DRAINED = "drained"
    """The worker gives the run away."""
    FINISHED_BEFORE = "finished_before"
    """The run had ended before."""
    CLAIMED_BEFORE = "claimed_before"
    """The run was presumably new, but a worker has claimed it."""
    PARKED_BEFORE = "parked_before"
    """The command that activated the run had activated it before, and the run was parked since."""
    NOT_FOUND = "not_found"
    """The log has no such run, perhaps not yet."""
    NOT_STORED = "not_stored"
    """The first events of a new run were not stored."""
    QUARANTINED = "quarantined"
    """The run cannot be performed."""


class Children(Protocol):
    """Admits child runs at the worker that performs their parent.

    A start through the queue would have no advantage. Here a refusal is the return value instead of a message.
    """

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        """Admit a child run, which no worker performs before `call_child`; return every problem if it is refused.

        Repeating the call is harmless.

        :raises NoAnswer: if the log does not answer
        """
        ...

    async def refusal_of(self, child: RunRef) -> list[Problem]:
        """Return every problem of a run that should have continued a child and was refused; empty if it was not.

        :raises NoAnswer: if the log does not answer
        """
        ...

    async def call_child(self, child: RunRef) -> None:
        """Have a worker perform an admitted run; harmless if one already does.

        :raises NoAnswer: if the log does not answer
        """
        ...


class ReceivedCommands(Struct):
    """How far the worker has received a run's commands.

    It has received all commands that were routed up to the stream sequence ``commands``, and all that were published up
    to the stream sequence ``tells``.
    """

    commands: int = 0
    tells: int = 0

    def note(self, command: int) -> None:
        """Note that the command with a stream sequence was received or is recorded."""
        self.commands = max(self.commands, command)


class Arrivals(Protocol):
    """Finds commands that the server has stored and the worker of their run has not yet received."""

    async def earliest(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        """Return the time at which the oldest undelivered message to a run was stored; None without one.

        :raises NoAnswer: if the log does not answer
        """
        ...


class NoArrivals:
    """`Arrivals` for commands that are handed to the run actor directly, so that none is ever undelivered."""

    async def earliest(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        return None


class RunServices(Protocol):
    """The services that a worker provides to its runs."""

    worker: str
    partitions: int
    effects: anyio.CapacityLimiter
    pace: Pace
    park_linger_s: float
    inline_bytes_max: int
    always_replay: bool
    """Whether runs are replayed after every outcome, as a test of replay itself."""
    prices: Prices
    """The prices of models, for budgets."""
    allowances: Allowances
    """The budgets that the runs of a tenant or of a definition share."""

    @property
    def arrivals(self) -> Arrivals:
        """Finds commands to a run that are stored but not delivered."""
        ...

    @property
    def children(self) -> Children:
        """Admits child runs."""
        ...

    def language(self, name: str) -> Language[Any]:
        """Return a language by its name.

        :raises KeyError: if it is not installed here
        """
        ...

    async def read_admission(self, first: Event, code: str = "") -> Admitted:
        """Read a run's first event back into a plan. ``code`` is the digest of the code that has adopted the run.

        :raises CallboardError: if this version no longer accepts the recorded start
        """
        ...

    def environment(self, admission: Admitted) -> Environment:
        """The properties of this worker that ``run.start`` records: versions, available skills, default model."""
        ...

    def secrets(self, admission: Admitted) -> dict[str, str]:
        """Values that must not be recorded, by name."""
        ...

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        """Create the carrier of this run's effects; ``keep`` stores values in tool outputs that are not JSON."""
        ...


def _nothing() -> None:
    """The ``done`` of a command that is acknowledged elsewhere."""


class Command(Struct, frozen=True):
    """A routed command.

    ``done`` acknowledges it; it is called when the command is recorded or has become pointless. ``again`` has it
    redelivered, if the actor ends without processing it. ``stored`` is the time at which the server stored it, which
    decides whether the command comes before a deadline; None if that does not matter.
    """

    sequence: int
    verb: str
    body: bytes
    done: Callable[[], None] = _nothing
    again: Callable[[], None] = _nothing
    stored: dt.datetime | None = None


class Activation:
    """One run at one worker: its log, its stage once the run is replayed, and whether it continues.

    ``closing`` is true once its last event is stated, ``draining`` once no more effects are begun, ``releasing`` once
    the running effects are to be stopped. ``lost_to`` is the event that shows that another worker has the run.
    """

    def __init__(self, ref: RunRef, runlog: RunLog) -> None:
        self.ref = ref
        self.runlog = runlog
        self.closing = False
        self.draining = False
        self.releasing = False
        self.lost_to: Event | None = None
        self.stage: RunStage
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    def lose(self, event: Event) -> None:
        """Note an event from the log; if it belongs to a newer claim, the run's loop stops."""
        if event.epoch > self.runlog.epoch > 0:
            self.lost_to = event
            self.wake()

    def wake(self) -> None:
        """Wake the run's loop: `news` returns."""
        self._is_woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def quieten(self) -> None:
        """Forget all calls of `wake` so far, because the loop has processed their reasons."""
        self._is_woken = False

    async def news(self, at_most_s: float | None) -> None:
        """Wait for a call of `wake`, at most ``at_most_s`` seconds."""
        if self._is_woken:
            return
        # A future of the event loop: an event and a cancel scope of anyio for every wait cost as much as an append.
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        alarm = None if at_most_s is None else loop.call_later(at_most_s, self._end_wait, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def _end_wait(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)
