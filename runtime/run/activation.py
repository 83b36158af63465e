"""Activations: what the parts of a run's actor share while the run is active, and what a worker lends them.

A run is activated by a command, and stays active until it parks, ends, is lost, or its worker lets it go.
"""

import datetime as dt
from collections.abc import Callable
from typing import Protocol

import anyio
from msgspec import Struct

from callboard.actors.carrier import Carrier
from callboard.actors.tools.tool import Keep
from callboard.bus import events as ev
from callboard.bus.events import Environment, Event, Problem
from callboard.bus.prices import Prices
from callboard.bus.subjects import RunRef
from callboard.features.budgets.allowances import Allowances
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.interpreter.stage import Stage
from callboard.runtime.run.log import RunLog
from callboard.runtime.run.pace import Pace


class Children(Protocol):
    """Admits child runs, at the worker that performs their parent. Nothing is gained by sending a
    start round through the queue, and its refusal is an answer instead of a message."""

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        """Admit a run as a child, which nobody performs before `call_child`; every problem if it is refused.

        Repeating it is harmless.

        :raises NoAnswer: if the log does not answer
        """
        ...

    async def call_child(self, child: RunRef) -> None:
        """Call for somebody to perform a run that is admitted; harmless if somebody does.

        :raises NoAnswer: if the log does not answer
        """
        ...


class Heard(Struct):
    """The commands of a run that its worker has received: all that were routed up to the stream sequence ``commands``,
    and all that were made of tells up to the stream sequence ``tells``."""

    commands: int = 0
    tells: int = 0

    def note(self, command: int) -> None:
        """Note that the command of a stream sequence was received, or is recorded."""
        self.commands = max(self.commands, command)


class Arrivals(Protocol):
    """Finds commands that the server has stored and the worker of their run has not yet received."""

    async def earliest(self, ref: RunRef, heard: Heard) -> dt.datetime | None:
        """Return when the oldest tell that is still on its way to a run was stored; None without such a tell.

        :raises NoAnswer: if the log does not answer
        """
        ...


class NoArrivals:
    """`Arrivals` where commands are handed to the run actor directly: none is ever on its way."""

    async def earliest(self, ref: RunRef, heard: Heard) -> dt.datetime | None:
        return None


class Services(Protocol):
    """What a worker lends its runs."""

    worker: str
    partitions: int
    effects: anyio.CapacityLimiter
    pace: Pace
    park_linger_s: float
    inline_bytes_max: int
    always_replay: bool
    """Whether runs are replayed after every outcome, as a test of replay itself."""
    prices: Prices
    """What models cost, for budgets."""
    allowances: Allowances
    """What the runs of a tenant, or of a definition, may use together."""

    @property
    def arrivals(self) -> Arrivals:
        """Finds the commands that are on their way to a run."""
        ...

    @property
    def children(self) -> Children:
        """Admits child runs."""
        ...

    async def admitted(self, first: Event, code: str = "") -> Admitted:
        """Read a run's first event back into a plan. ``code`` is the digest of the code that has adopted the run.

        :raises CallboardError: if this version no longer accepts what was accepted
        """
        ...

    def environment(self, admission: Admitted) -> Environment:
        """What is recorded of this worker at ``run.start``: versions, available skills, default model."""
        ...

    def secrets(self, admission: Admitted) -> dict[str, str]:
        """Values that must not be recorded, by name."""
        ...

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        """Make what carries this run's effects out; ``keep`` takes what is no JSON in the outputs of its tools."""
        ...


def _nothing() -> None:
    """The ``done`` of a command that somebody else acknowledges."""


class Command(Struct, frozen=True):
    """A routed command. ``done`` acknowledges it: it is called when the command is recorded or has become pointless;
    ``again`` delivers it anew, if the actor ended without having looked at it. ``stored`` is when the server stored it,
    None if that does not matter: it decides whether the command comes before a deadline."""

    sequence: int
    verb: str
    body: bytes
    done: Callable[[], None] = _nothing
    again: Callable[[], None] = _nothing
    stored: dt.datetime | None = None


class Activation:
    """One run at one worker.

    ``closing`` says that its last event is stated, ``draining`` that nothing more is begun.
    """

    def __init__(self, ref: RunRef, services: Services, runlog: RunLog) -> None:
        self.ref = ref
        self.services = services
        self.runlog = runlog
        self.closing = False
        self.draining = False
        self.stage: Stage
        self._news = anyio.Event()

    def over(self) -> None:
        """Let the stage go: it knows, by way of its effects, this activation, and neither would go by itself."""
        vars(self).pop("stage", None)

    def wake(self) -> None:
        """Have the run's loop look for news: it returns from `news`."""
        self._news.set()

    def quieten(self) -> None:
        """Forget all calls of `wake` so far: the loop has looked at what they were for."""
        if self._news.is_set():
            self._news = anyio.Event()

    async def news(self, at_most_s: float | None) -> None:
        """Wait until something happens, or for so many seconds."""
        if at_most_s is None:
            await self._news.wait()
        else:
            with anyio.move_on_after(at_most_s):
                await self._news.wait()
