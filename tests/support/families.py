"""Families of runs for tests: plays that start child runs, and the hands that perform a whole family in virtual time.

The plays speak through `callboard.languages.language` alone, so the harness and real worker processes perform the same.
"""

import datetime as dt
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from callboard.bus import events as ev
from callboard.bus.effects import ModelRequest, user
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.language import Cancelled, End, Expired, Ok, Stage
from callboard.lib.json_types import JSON
from callboard.runtime.run.activation import Command
from callboard.runtime.run.actor import RunActor
from callboard.testing.crashes import Crash, CrashingLog
from callboard.testing.virtual_time import VirtualClock
from tests.support.run_harness import Interpreter, RunHarness, types
from tests.support.sample_interpreters import after, effect, value
from tests.support.simulation import Effects

LOOK_S = 0.5
"""How often the hands look whether a run is to be activated."""

TURNS_MAX = 200_000
"""A family that has not ended after this number of looks never will."""


# -- plays ------------------------------------------------------------------------------------------------------------


def of(name: str) -> dict[str, str]:
    return {"language": "play", "source": name}


def told(end: End) -> list[JSON]:
    """A child's end as its parent sees it."""
    return [end.status, end.output, end.error.code if end.error else None]


async def have(stage: Stage, path: str, play: str, input: JSON = None, **start: Any) -> list[JSON]:
    """A node that is one child run."""
    node = stage.enter(path)
    try:
        end = await node.child("call", of(play), input, **start)
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    node.exit("ok" if end.status == "completed" else "failed", error=end.error)
    return told(end)


async def daughter(stage: Stage) -> End:
    """An effect, a model's turn, a nap if its input asks for one."""
    given: dict[str, Any] = stage.info.input
    node = stage.enter("work")
    done = await effect(node, "do", given.get("work_s", 1))
    turn = await node.turn("turn.1", ModelRequest(messages=[user("Count.")]))
    assert isinstance(turn, Ok)
    if "nap_s" in given:
        await node.sleep("nap", after(stage.now(), given["nap_s"]))
    node.exit("ok", turn.value.text)
    if "fails" in given:
        raise LookupError(given["fails"])
    return End("completed", [given.get("name"), done, turn.value.text])


async def mother(stage: Stage) -> End:
    """Two children beside each other and beside an effect of her own, then one that naps, then one that fails."""
    turns = stage.enter("own")
    tasks = [stage.spawn(have(stage, f"twin[{i}]", "daughter", {"name": i, "work_s": i})) for i in range(2)]
    own = await effect(turns, "do", 0.5)
    said = await turns.turn("turn.1", ModelRequest(messages=[user("Count.")]))
    assert isinstance(said, Ok)
    turns.exit("ok")
    twins = [value(settled) for settled in await stage.join(*tasks)]
    late = await have(stage, "late", "daughter", {"name": "late", "nap_s": 3_600})
    lost = await have(stage, "lost", "daughter", {"name": "lost", "fails": "keys"})
    none = await have(stage, "none", "nobody")
    return End("completed", [own, twins, late, lost, none])


async def stubborn(stage: Stage) -> End:
    """Works without end; cleans up for an hour when it is cancelled."""
    node = stage.enter("work")
    try:
        await effect(node, "long", 100_000)
    finally:
        async with stage.shield():
            await effect(node, "tidy", 1)
            await node.sleep("settle", after(stage.now(), 3_600))
        node.exit("cancelled")
    return End("completed")


async def grandmother(stage: Stage) -> End:
    """Waits for a mother of a stubborn child."""
    return End("completed", await have(stage, "line", "line"))


async def line(stage: Stage) -> End:
    return End("completed", await have(stage, "stubborn", "stubborn"))


async def impatient(stage: Stage) -> End:
    """Gives a stubborn child ten minutes, and does not wait for its clean-up."""
    top = stage.enter("top")
    within = await stage.within(after(stage.now(), 600), have(stage, "slow", "stubborn"), node=top, slot="timeout")
    top.exit("ok")
    return End("completed", "in time" if not isinstance(within, Expired) else value(within.settled))


async def endless(stage: Stage) -> End:
    """Starts itself."""
    told_of = await have(stage, "again", "endless", stage.info.input + 1)
    return End("completed", told_of[1] if told_of[0] == "completed" else [stage.info.input, told_of[2]])


async def asks(stage: Stage) -> End:
    """Has a child say as many letters as the input says."""
    return End("completed", await have(stage, "much", "says", stage.info.input))


async def says(stage: Stage) -> End:
    return End("completed", "x" * stage.info.input)


async def fails(stage: Stage) -> End:
    """Breaks while a child is at work."""
    stage.spawn(have(stage, "slow", "stubborn"))
    await effect(stage.enter("own"), "do", 100)
    raise LookupError("no such edge")


async def spender(stage: Stage) -> End:
    """Asks a model as often as its input says, with a node for each turn."""
    for i in range(stage.info.input["turns"]):
        await stage.gate(None, f"turn[{i}]")
        node = stage.enter(f"turn[{i}]")
        try:
            await effect(node, "do", 1)
            assert isinstance(await node.turn("turn.1", ModelRequest(messages=[user("Count.")])), Ok)
        except Cancelled as cancelled:
            node.exit("cancelled", error=cancelled.cause)
            raise
        node.exit("ok")
    return End("completed")


async def spenders(stage: Stage) -> End:
    """Several spenders beside each other, or families of them; then one more node."""
    given: dict[str, Any] = stage.info.input
    inner = {"turns": given["turns"], "width": given["width"], "levels": given.get("levels", 1) - 1}
    play = "spenders" if inner["levels"] else "spender"
    tasks = [stage.spawn(have(stage, f"one[{i}]", play, inner)) for i in range(given["width"])]
    await stage.join(*tasks)
    await stage.gate(None, "last")
    stage.enter("last").exit("ok")
    return End("completed")


async def chorus(stage: Stage) -> End:
    """Several nodes beside each other, each of which asks a model as often as its input says, without a stop."""
    given: dict[str, Any] = stage.info.input

    async def sing(voice: int) -> None:
        node = stage.enter(f"voice[{voice}]")
        try:
            for i in range(given["turns"]):
                await effect(node, f"do.{i + 1}", 1)
                assert isinstance(await node.turn(f"turn.{i + 1}", ModelRequest(messages=[user("Sing.")])), Ok)
        except Cancelled as cancelled:
            node.exit("cancelled", error=cancelled.cause)
            raise
        node.exit("ok")

    await stage.join(*[stage.spawn(sing(voice)) for voice in range(given["width"])])
    return End("completed")


async def choruses(stage: Stage) -> End:
    """Several choruses of one node beside each other, each a run."""
    given: dict[str, Any] = stage.info.input
    alone = {**given, "width": 1}
    await stage.join(*[stage.spawn(have(stage, f"one[{i}]", "chorus", alone)) for i in range(given["width"])])
    return End("completed")


async def spender_beside_a_stop(stage: Stage) -> End:
    """A spender beside a branch with a place to stop at."""

    async def stop() -> None:
        await stage.gate(None, "stop")
        stage.enter("stop").exit("ok")

    await stage.join(stage.spawn(stop()), stage.spawn(have(stage, "one", "spender", stage.info.input)))
    return End("completed")


INTERPRETERS: Mapping[str, Interpreter] = {
    each.__name__: each
    for each in (
        daughter,
        mother,
        stubborn,
        grandmother,
        line,
        impatient,
        endless,
        asks,
        says,
        fails,
        spender,
        spenders,
        chorus,
        choruses,
        spender_beside_a_stop,
    )
}

SCRIPT: dict[str, Any] = {"default": {"text": "three", "usage": {"input_tokens": 10, "output_tokens": 1}}}


# -- hands ------------------------------------------------------------------------------------------------------------


@dataclass
class Message:
    """A command on its way; delivered until it is acknowledged. ``tried`` are the activations that got it."""

    sequence: int
    ref: RunRef
    verb: str
    body: bytes = b"{}"
    acknowledged: bool = False
    tried: set[int] = field(default_factory=set[int])


class Hands:
    """The workers' part for a family: activates runs on request, delivers commands at least once each, rings alarms,
    performs all runs beside each other, and acknowledges a message when its run has parked or ended."""

    def __init__(self, harness: RunHarness, meanwhile: Callable[["Hands"], Awaitable[None]] | None = None) -> None:
        self.harness = harness
        self._meanwhile = meanwhile
        self.messages: list[Message] = []
        self.crashes = 0
        self._sequence = itertools.count(10_000)
        self._active: dict[RunRef, tuple[int, RunActor]] = {}
        self._activations = itertools.count()
        self._alarms: dict[RunRef, dt.datetime] = {}
        self._called = 0
        self._lettered = 0

    @property
    def idle(self) -> bool:
        """Whether no run is active, or about to be."""
        return not self._active and all(each.acknowledged for each in self.messages)

    def say(self, ref: RunRef, verb: str, **body: Any) -> None:
        self.messages.append(Message(next(self._sequence), ref, verb, msgspec.json.encode(body)))

    async def finish(self, root: RunRef) -> list[Event]:
        """Perform a family until all of it has ended; return the root's events."""
        self.say(root, "start")
        async with anyio.create_task_group() as tasks:
            for _ in range(TURNS_MAX):
                self._collect()
                if self._meanwhile is not None:
                    await self._meanwhile(self)
                for message in [each for each in self.messages if not each.acknowledged]:
                    self._deliver(message, tasks)
                idle = self.idle
                if not self._ring(idle) and idle:
                    break
                await anyio.sleep(LOOK_S)
            tasks.cancel_scope.cancel()
        left = {ref: types(await self.harness.events(ref))[-1] for ref in await self.family(root)}
        assert set(left.values()) == {ev.RunEnd.type}, f"nobody will ever wake these runs: {left}"
        return await self.harness.events(root)

    def _collect(self) -> None:
        children = self.harness.children
        for ref in children.called[self._called :]:
            self.messages.append(Message(next(self._sequence), ref, "start"))
        for run_message in children.run_messages[self._lettered :]:
            self.messages.append(Message(next(self._sequence), run_message.to, run_message.verb, run_message.body))
        self._called, self._lettered = len(children.called), len(children.run_messages)

    def _deliver(self, message: Message, tasks: Any) -> None:
        if message.ref not in self._active:
            actor = self.harness.actor(message.ref)
            self._alarms.pop(message.ref, None)
            activation = next(self._activations)
            self._active[message.ref] = activation, actor
            tasks.start_soon(self._activate, message, activation, actor)
        activation, actor = self._active[message.ref]
        if activation in message.tried:
            return
        message.tried.add(activation)
        if message.verb == "start" and len(message.tried) == 1:
            return
        activating = len([each for each in self.messages if activation in each.tried]) == 1

        def done() -> None:
            if not activating:
                message.acknowledged = True

        actor.tell(Command(message.sequence, message.verb, message.body, done))

    async def _activate(self, message: Message, activation: int, actor: RunActor) -> None:
        ending = ""
        try:
            ending = await actor.run()
        except Crash:
            self.crashes += 1
        except BaseExceptionGroup as group:
            died, other = group.split(Crash)
            if other is not None or died is None:
                raise
            self.crashes += 1
        finally:
            del self._active[message.ref]
        if ending in ("parked", "ended", "finished_before"):
            message.acknowledged = True
        if ending == "parked":
            parked = ev.payload_of((await self.harness.events(message.ref))[-1])
            if isinstance(parked, ev.RunParked) and parked.deadline is not None:
                self._alarms[message.ref] = parked.deadline
        if ending in ("ended", "finished_before"):
            # The log has ended: the message is refused, and acknowledged.
            for each in self.messages:
                each.acknowledged = each.acknowledged or each.ref == message.ref

    def _ring(self, idle: bool) -> bool:
        """Ring the alarms that are due; if no run is active the clock advances to the next. Say whether one rang."""
        assert isinstance(self.harness.clock, VirtualClock)
        if idle and self._alarms:
            self.harness.clock.set(max(self.harness.clock(), min(self._alarms.values())))
        due = [ref for ref, instant in self._alarms.items() if instant <= self.harness.clock()]
        for ref in due:
            del self._alarms[ref]
            self.say(ref, "alarm")
        return bool(due)

    # -- the logs

    async def family(self, root: RunRef) -> list[RunRef]:
        """The run and all that descend from it, as far as they are there."""
        found = [root]
        for ref in found:
            for child in children_of(await self.harness.events(ref)).values():
                if await self.harness.log.last(RunRef(ref.tenant, child)) is not None:
                    found.append(RunRef(ref.tenant, child))
        return found


def children_of(events: Iterable[Event]) -> dict[str, str]:
    """Run ids of the children that a run has announced, by effect key."""
    starts = [(event.key, ev.payload_of(event)) for event in events if event.type == ev.ChildStart.type]
    return {key: start.child for key, start in starts if isinstance(start, ev.ChildStart)}


def family_theatre(log: CrashingLog | None = None, **names: Any) -> RunHarness:
    """A harness in virtual time with all plays of families."""
    effects = Effects()
    harness = RunHarness(
        INTERPRETERS, script=SCRIPT, log=log or CrashingLog(), clock=VirtualClock(), calls=effects, **names
    )
    effects.harness = harness
    return harness
