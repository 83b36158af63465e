"""A command activates a run once: delivered again after the run has parked, it does not activate it."""

from dataclasses import dataclass
from typing import Any

import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.runtime.run.activation import ActivationEnd, Command
from callboard.runtime.run.actor import RunActor
from callboard.testing.crashes import Crash, CrashingLog, never
from callboard.testing.virtual_time import VIRTUAL
from tests.support.run_harness import RunHarness, types
from tests.support.sample_interpreters import effect
from tests.support.simulation import harness_for


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


async def wait_for_two_signals(stage: Stage) -> End:
    """Waits for two signals, with an effect after each."""
    node = stage.enter("a")
    for k in range(2):
        await node.signal(f"signal.{k}", "go")
        await effect(node, f"do.{k}", 1)
    node.exit("ok")
    return End("completed")


@dataclass
class Deployment:
    """A harness whose actors know the command that activates them; ``done`` has the acknowledged commands."""

    harness: RunHarness
    ref: RunRef

    def __post_init__(self) -> None:
        self.done: list[int] = []

    def command(self, sequence: int, verb: str, body: bytes = b"{}") -> Command:
        return Command(sequence, verb, body, done=lambda: self.done.append(sequence))

    async def activate(self, by: Command, *others: Command) -> ActivationEnd:
        actor = RunActor(self.ref, self.harness.log, self.harness, self.harness.clock, activated_by=by)
        for command in (by, *others) if by.verb not in ("start", "alarm") else others:
            actor.tell(command)
        return await actor.run()

    async def types(self) -> list[str]:
        return types(await self.harness.events(self.ref))


async def parked_deployment() -> tuple[Deployment, int]:
    """Return a parked run and the sequence of its parking."""
    harness = harness_for(wait_for_two_signals)
    deployment = Deployment(harness, await harness.accept("p"))
    assert await deployment.activate(deployment.command(0, "start")) == "parked"
    last = await harness.log.last(deployment.ref)
    assert last is not None
    return deployment, last.sequence


@pytest.mark.parametrize("verb", ["start", "alarm"])
async def test_a_command_from_before_the_parking_does_not_activate_the_run(verb: str) -> None:
    """The worker that parked the run acknowledges that command. If another worker activated the run by it, recorded the
    signal, acknowledged it and died, no command would activate the run again."""
    deployment, parked = await parked_deployment()
    before = await deployment.types()
    signal = deployment.command(parked + 10, "signal", b'{"name": "go"}')
    assert await deployment.activate(deployment.command(parked - 1, verb), signal) == "parked_before"
    assert await deployment.types() == before
    assert deployment.done == []
    assert await deployment.activate(signal) == "parked"
    assert "effect.result" in await deployment.types()


async def test_an_alarm_from_after_the_parking_activates_the_run() -> None:
    deployment, parked = await parked_deployment()
    assert await deployment.activate(deployment.command(parked + 1, "alarm")) == "parked"
    assert (await deployment.types())[-2:] == ["run.claimed", "run.parked"]


async def test_a_recorded_command_does_not_activate_a_parked_run() -> None:
    deployment, parked = await parked_deployment()
    signal = deployment.command(parked + 10, "signal", b'{"name": "go"}')
    assert await deployment.activate(signal) == "parked"
    before = await deployment.types()
    assert await deployment.activate(signal) == "parked_before"
    assert await deployment.types() == before


async def test_a_recorded_command_activates_a_run_that_is_not_parked() -> None:
    """As after a crash of the worker that recorded the command."""
    deployment, parked = await parked_deployment()
    signal = deployment.command(parked + 10, "signal", b'{"name": "go"}')
    log = deployment.harness.log
    assert isinstance(log, CrashingLog)
    log.crash = lambda entry: "before" if entry.type == "effect.call" else None
    with pytest.raises(BaseExceptionGroup) as died:
        await deployment.activate(signal)
    assert died.value.split(Crash)[1] is None
    assert (await deployment.types())[-1] == "signal.received"
    log.crash = never
    assert await deployment.activate(signal) == "parked"
    assert "effect.result" in await deployment.types()
