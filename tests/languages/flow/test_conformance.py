"""The public conformance corpus of the flow language, through the run actor."""

from typing import cast

import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.flow.authoring import find_differences
from callboard.runtime.run.log import read_run
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VirtualClock, simulate
from tests.support.conformance import WITH_DATA
from tests.support.flows import FlowTheatre, Scenario, result_of, scenarios
from tests.support.simulation import World, copied, finish
from tests.support.sweeps import select_deaths


@WITH_DATA
@pytest.mark.parametrize("scenario", scenarios())
def test_a_scenario_has_its_result_also_after_a_death_at_each_event(scenario: Scenario) -> None:
    """After the death of its worker, another one finishes the run with the same Result."""

    async def body() -> None:
        harness = FlowTheatre()
        ref = await harness.begin(scenario.definition, scenario.input, scenario.arguments)
        await check(harness, ref, "undisturbed")
        recorded = await read_run(harness.log, ref)
        for boundary in select_deaths([item.event for item in recorded])[:-1]:
            other = FlowTheatre()
            await copied(recorded[:boundary], cast("CrashingLog", other.log))
            cast("VirtualClock", other.clock).set(recorded[boundary - 1].event.time)
            await check(other, ref, f"after {boundary} events")

    async def check(harness: FlowTheatre, ref: RunRef, when: str) -> None:
        events = await finish(harness, ref, World())
        assert not find_differences(scenario.expected, result_of(events)), when
        check_log(events)
        check_replay(harness.language, ref, events)

    simulate(body)
