"""The runs of a scenario: the run that the test starts, and its child runs, with the messages between them."""

import datetime as dt
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.errors import RunLost
from callboard.bus.events import Event, Problem, RunParked
from callboard.bus.log.memory import MemoryLog
from callboard.bus.subjects import RunRef
from callboard.lib.threads import on_the_loop
from callboard.runtime.run.activation import Command
from callboard.runtime.run.log import RunLog, read_run
from callboard.start_options import StartMessage
from callboard.testing.checks import open_intents
from callboard.testing.crashes import Crash
from callboard.testing.door import Admission, NamedDefinitions, accept_child, accept_start, accept_successor, is_code
from callboard.testing.services import ScriptedServices

FIRST_SEQUENCE = 1_000
"""The first stream sequence of commands, which identifies them. It is higher than that of any event."""


class Family:
    """The runs of one scenario, the started one first; `callboard.runtime.run.activation.Children` of the others.

    A child is performed when its parent rests. A run that continues a child belongs to the family, but not one that
    continues the started run.
    """

    def __init__(self, services: ScriptedServices, log: MemoryLog, named: NamedDefinitions) -> None:
        self.runs: dict[RunRef, bool] = {}
        """The runs, and whether the definition of each is code."""
        self._services = services
        self._log = log
        self._named = named
        self._called: list[RunRef] = []
        self._delivered = self._started = 0
        self._sequences = count(FIRST_SEQUENCE + 1)

    @property
    def root(self) -> RunRef | None:
        return next(iter(self.runs), None)

    # -- admission ----------------------------------------------------------------------------------------------------

    def accept(self, made: StartMessage, file: str) -> tuple[RunRef, Admission]:
        """Admit the run that the test starts.

        :raises RequestRefused: with every problem of the definition, or of the start
        """
        ref, admission = accept_start(self._services, made, file)
        self._named.is_beside(admission[0])
        return ref, admission

    async def store(self, ref: RunRef, admission: Admission) -> None:
        """Store the first event of a run."""
        first, definition = admission
        self.runs[ref] = is_code(first)
        runlog = RunLog(self._log, ref, writer="admission", clock=self._services.clock, beside=on_the_loop)
        runlog.definition = definition
        runlog.state(first)
        with suppress(RunLost):
            await runlog.append_queued()

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        admission = accept_child(self._services, self._named, child, message, parent)
        if isinstance(admission, list):
            return admission
        await self.store(child, admission)
        return []

    async def refusal_of(self, child: RunRef) -> list[Problem]:
        return []

    async def call_child(self, child: RunRef) -> None:
        self._called.append(child)

    # -- messages -----------------------------------------------------------------------------------------------------

    def command(self, verb: str, body: bytes = b"{}") -> Command:
        return Command(next(self._sequences), verb, body)

    def tell(self, verb: str, **fields: Any) -> Command:
        """Return a command of the test."""
        return self.command(verb, msgspec.json.encode(TELLS[verb](**fields)))

    async def next_activation(self) -> tuple[RunRef, list[Command]] | None:
        """Return the next run that must be activated, with its command; None if all runs rest."""
        if self._called:
            return self._called.pop(0), []
        if self._started < len(self._log.starts):
            start = self._log.starts[self._started]
            self._started += 1
            continues = msgspec.json.decode(start.body)["continues"]
            if self.root is not None and continues != self.root.run:
                accepted = await accept_successor(self._services, self._log, start.body)
                assert not isinstance(accepted, list), f"the run that continues {continues} was refused: {accepted}"
                with suppress(Crash):  # the event is stored, so that the next worker finds it
                    await self.store(*accepted)
                return accepted[0], []
        while self._delivered < len(self._log.run_messages):
            message = self._log.run_messages[self._delivered]
            self._delivered += 1
            last = await self._log.last(message.to)
            if last is not None and last.event.type != ev.RunEnd.type:
                return message.to, [self.command(message.verb, message.body)]
        due = await self.next_due()
        if due is not None and due[0] <= self._services.clock():
            return due[1], [self.command("alarm")]
        return None

    async def next_due(self) -> tuple[dt.datetime, RunRef] | None:
        """Return the earliest deadline of a run that waits, and the run."""
        due: list[tuple[dt.datetime, RunRef]] = []
        for ref in self.runs:
            last = await self._log.last(ref)
            parked = ev.payload_of(last.event) if last is not None and last.event.type == RunParked.type else None
            if isinstance(parked, RunParked) and parked.deadline is not None:
                due.append((parked.deadline, ref))
        return min(due, key=lambda one: one[0], default=None)

    # -- what there is ------------------------------------------------------------------------------------------------

    async def events(self, ref: RunRef) -> list[Event]:
        return [item.event for item in await read_run(self._log, ref)]

    async def find_asking(self, interaction: str = "") -> RunRef | None:
        """Return the run with the open question of this key; without a key the first run with an open question."""
        for ref in self.runs:
            for intent in open_intents(await self.events(ref)):
                if intent.type == ev.HumanAsked.type and interaction in ("", intent.key):
                    return ref
        return None
