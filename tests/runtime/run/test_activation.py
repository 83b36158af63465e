"""A command activates a run once: delivered again after the run has been parked, it does not take the run up anew."""

from dataclasses import dataclass
from typing import Any

import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.runtime.run.activation import Command
from callboard.runtime.run.actor import Ending, RunActor
from callboard.testing.crashes import Crash, CrashingLog, never
from callboard.testing.virtual_time import VIRTUAL
from tests.support.run_harness import Theatre, types
from tests.support.sample_plays import effect
from tests.support.simulation import theatre_for


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


async def waits(stage: Stage) -> End:
    """Waits for two signals, with an effect behind each."""
    node = stage.enter("a")
    for k in range(2):
        await node.signal(f"signal.{k}", "go")
        await effect(node, f"do.{k}", 1)
    node.exit("ok")
    return End("completed")


@dataclass
class House:
    """A theatre whose actors know what activates them; acknowledged commands are noted."""

    theatre: Theatre
    ref: RunRef

    def __post_init__(self) -> None:
        self.done: list[int] = []

    def command(self, sequence: int, verb: str, body: bytes = b"{}") -> Command:
        return Command(sequence, verb, body, done=lambda: self.done.append(sequence))

    async def activate(self, by: Command, *others: Command) -> Ending:
        actor = RunActor(self.ref, self.theatre.log, self.theatre, self.theatre.clock, activated_by=by)
        for command in (by, *others) if by.verb not in ("start", "alarm") else others:
            actor.tell(command)
        return await actor.run()

    async def types(self) -> list[str]:
        return types(await self.theatre.events(self.ref))


async def parked_house() -> tuple[House, int]:
    """A run that was started and parked, and the stream sequence of its parking."""
    theatre = theatre_for(waits)
    house = House(theatre, await theatre.accept("p"))
    assert await house.activate(house.command(0, "start")) == "parked"
    last = await theatre.log.last(house.ref)
    assert last is not None
    return house, last.sequence


@pytest.mark.parametrize("verb", ["start", "alarm"])
async def test_what_came_before_the_parking_does_not_activate_the_run_again(verb: str) -> None:
    """Whoever parked it acknowledges that command. Another worker that took the run up could record and acknowledge the
    signal, and die: nothing would ever bring the run back."""
    house, parked = await parked_house()
    before = await house.types()
    signal = house.command(parked + 10, "signal", b'{"name": "go"}')
    assert await house.activate(house.command(parked - 1, verb), signal) == "parked_before"
    assert await house.types() == before
    assert house.done == []
    assert await house.activate(signal) == "parked"
    assert "effect.result" in await house.types()


async def test_an_alarm_that_rang_after_the_parking_activates_the_run() -> None:
    house, parked = await parked_house()
    assert await house.activate(house.command(parked + 1, "alarm")) == "parked"
    assert (await house.types())[-2:] == ["run.claimed", "run.parked"]


async def test_a_command_that_is_recorded_does_not_activate_the_run_again() -> None:
    house, parked = await parked_house()
    signal = house.command(parked + 10, "signal", b'{"name": "go"}')
    assert await house.activate(signal) == "parked"
    before = await house.types()
    assert await house.activate(signal) == "parked_before"
    assert await house.types() == before


async def test_a_recorded_command_of_a_run_that_is_not_parked_activates_it() -> None:
    """As after the death of the worker that had recorded it."""
    house, parked = await parked_house()
    signal = house.command(parked + 10, "signal", b'{"name": "go"}')
    log = house.theatre.log
    assert isinstance(log, CrashingLog)
    log.crash = lambda entry: "before" if entry.type == "effect.call" else None
    with pytest.raises(BaseExceptionGroup) as died:
        await house.activate(signal)
    assert died.value.split(Crash)[1] is None
    assert (await house.types())[-1] == "signal.received"
    log.crash = never
    assert await house.activate(signal) == "parked"
    assert "effect.result" in await house.types()
