"""Flows on real worker processes that die by SIGKILL around intents and outcomes, and inside of clean-ups.

Whatever happened, the Result is that of the undisturbed run, and its log says the same: each clean-up once, no effect
with two outcomes. The public corpus runs too: on one worker, and on one that is killed in the middle.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Cancel
from callboard.bus.log.port import Recorded
from callboard.service.client.client import Client
from callboard.surfaces.cli.corpus import Case as CorpusCase
from callboard.surfaces.cli.corpus import Outcome, claim_of, read_corpus, run_cases
from tests.e2e.kills.test_kill import Case, check_same, perform, undisturbed
from tests.support.conformance import CORPUS, WITH_DATA
from tests.support.flows import (
    call,
    caught,
    cleanup,
    failing,
    flow,
    mock,
    retry,
    returned,
    subflow,
    timeout,
)
from tests.support.worker_process import Kill
from tests.support.worker_processes import (
    KILLED,
    Fleet,
    Worker,
    check_run,
    claimers,
    open_fleet,
    recorded_run,
    say,
    until,
    until_end,
)

LANES = 6
"""How many chains of workers die beside each other; most of their time they wait."""

KILLS_MAX = 8
"""How many deaths one flow is performed with."""

FLOW = "callboard.languages.flow.language"


def _tidied(target: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A subflow of one call and a clean-up that takes a moment."""
    return subflow({"in": call(target), "done": returned()}, middleware=[cleanup(mock(delay="PT0.05S"))], **fields)


def _gathers() -> dict[str, Any]:
    """Four subflows at once, one of which fails, each with a clean-up; three successes do."""
    target = mock(delay="PT0.1S", failure="{{ frame.input == 2.0 ? {'code': 'Order.Empty'} : null }}")
    fan = {
        "action": "Gather",
        "over": [1, 2, 3, 4],
        "call": {"flow": _tidied(target)},
        "completion": {"successes": 3},
        "output": "{{ step.results.map(r, r.type == 'success' ? r.value : r.code) }}",
        "next": "done",
    }
    return flow({"fan": fan, "done": returned()}, middleware=[cleanup(mock())])


def _abandons() -> dict[str, Any]:
    """Two calls of which one suffices: the other, and its clean-up, are cut short."""
    fan = {
        "action": "Gather",
        "calls": [mock(delay="PT0.1S", value="quick"), {"flow": _tidied(mock(delay="PT60S"))}],
        "completion": {"successes": 1, "wait": False},
        "next": "done",
        "output": "{{ step.results.map(r, r.type) }}",
    }
    return flow({"fan": fan, "done": returned()})


def _retries() -> dict[str, Any]:
    """Two failures with a growing delay after each, then a success; and another that gives up."""
    policy = {"match": {"codes": ["*"]}, "attempts": 3, "backoff": {"initial": "PT0.05S", "rate": 2}}
    armed = {"with": {"policies": [policy]}, "assign": {"n": "{{ 0.0 }}"}}
    again = {**retry(3), "onEntry": armed, "onFailure": {"assign": {"n": "{{ vars.n + 1.0 }}"}}}
    flaky = mock(value="{{ vars.n }}", failure="{{ vars.n < 2.0 ? {'code': 'Store.Busy'} : null }}")
    steps = {
        "try": call(flaky, "give", middleware=[again, cleanup(mock())], assign={"tries": "{{ step.result.value }}"}),
        "give": call(failing("Store.Gone"), middleware=[{**again, "onFailure": {}}], catch=[caught("told")]),
        "told": returned("{{ [vars.tries, failure.code, failure.previous.code] }}"),
        "done": returned(),
    }
    return flow(steps)


def _bounded() -> dict[str, Any]:
    """A bound over a subflow that would take a minute, with clean-ups on both sides of its frame."""
    work = call(
        {"flow": _tidied(mock(delay="PT60S"))},
        middleware=[timeout("PT0.3S"), cleanup(mock(delay="PT0.05S"))],
        catch=[caught("late", "Provider.Middleware.Timeout.*")],
    )
    return flow({"work": work, "late": returned("{{ failure.type }}"), "done": returned()})


def _cancelled() -> dict[str, Any]:
    """Frames in frames, at work for an hour, each with a clean-up; the innermost one fails."""
    inner = subflow(
        {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()},
        middleware=[cleanup(failing("Room.Locked"))],
    )
    outer = _tidied({"flow": inner})
    return flow({"work": call({"flow": outer}), "done": returned()}, middleware=[cleanup(mock(delay="PT0.05S"))])


@dataclass(frozen=True)
class Expected:
    """A flow, who attends to it, how it ends and how many clean-ups it has."""

    name: str
    definition: dict[str, Any]
    status: str
    result: Any
    cleanups: int
    attend: Callable[[Client, str], Awaitable[list[Recorded]]] = until_end

    def __str__(self) -> str:
        return self.name

    def case(self) -> Case:
        return Case(self.name, lambda run: start_of(self.definition, run), self.attend, [])


def start_of(definition: dict[str, Any], run: str) -> dict[str, Any]:
    return {"definition": {"language": "flow", "source": json.dumps(definition)}, "run_id": run}


async def interrupted(client: Client, run_id: str) -> list[Recorded]:
    """Cancel a run when it has lain down; follow it to its end."""
    await until(client, run_id, lambda event: event.type == ev.TimerSet.type)
    await say(client, run_id, "cancel", Cancel(reason="enough", message="enough"))
    return await until_end(client, run_id)


FLOWS = [
    Expected("gathers", _gathers(), "completed", [1, "Order.Empty", 3, 4], cleanups=5),
    Expected("abandons", _abandons(), "completed", ["success", "cancellation"], cleanups=1),
    Expected(
        "retries",
        _retries(),
        "completed",
        [2, "Provider.Middleware.Retry.Exhausted", "Store.Gone"],
        cleanups=3,
    ),
    Expected("bounded", _bounded(), "completed", "timeout", cleanups=2),
    Expected("cancelled", _cancelled(), "failed", "Room.Locked", cleanups=3, attend=interrupted),
]


def kills_of(recorded: Sequence[Recorded]) -> list[Kill]:
    """Choose deaths: before and after what is announced and what comes of it, and around all that a clean-up does."""
    found: list[Kill] = []
    for item in recorded[1:]:
        event = item.event
        if ev.TYPES[event.type].kind in ("intent", "outcome"):
            found += [Kill("before", "append", event.n), Kill("after", "append", event.n)]
        elif "onAlways" in event.path or event.type == ev.CancelRequested.type:
            found.append(Kill("after", "append", event.n))
    stride = -(-len(found) // KILLS_MAX)
    return found[::stride]


def cleanups_of(recorded: Sequence[Recorded]) -> Counter[str]:
    """Count the dispatches of clean-ups by their effect keys."""
    calls = [item.event for item in recorded if item.event.type == ev.EffectCall.type]
    return Counter(event.key for event in calls if "onAlways.call" in event.path)


def check_end(recorded: Sequence[Recorded], expected: Expected) -> None:
    end = ev.payload_of(recorded[-1].event)
    assert isinstance(end, ev.RunEnd)
    assert end.status == expected.status
    assert isinstance(end.results, dict)
    assert end.results.get("value", end.results.get("code")) == expected.result
    cleaned = cleanups_of(recorded)
    assert len(cleaned) == expected.cleanups
    assert set(cleaned.values()) == {1}


async def lane(fleet: Fleet, expected: Expected, prefix: str, kills: Sequence[Kill], same: list[Recorded]) -> None:
    """Perform a run for each death: who ends a run after its worker has died dies performing the next one."""
    case = expected.case()
    taken_over = 0

    async def hire(i: int) -> Worker:
        kill = Kill(kills[i].when, "append", kills[i].n, f"{prefix}-{i}") if i < len(kills) else None
        return await fleet.order(f"{prefix}-{i}", prefix=prefix, kill=kill)

    async def succeed(i: int) -> None:
        nonlocal worker
        assert await worker.died() == KILLED
        worker = await hire(i + 1)

    async with fleet.connection(prefix=prefix) as connection:
        worker = await hire(0)
        for i in range(len(kills)):
            recorded: list[Recorded] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(succeed, i)
                recorded = await perform(fleet, connection.client, case, f"{prefix}-{i}")
            check_same(case, recorded, same)
            check_end(recorded, expected)
            taken_over += len(set(claimers(recorded))) == 2
        # How often a run parks is a matter of time, so that one or the other may be over before its worker's death.
        assert taken_over, kills
        await worker.kill()


@pytest.mark.parametrize("expected", FLOWS, ids=str)
async def test_a_flow_ends_the_same_wherever_its_worker_dies(expected: Expected, tmp_path: Path) -> None:
    case = expected.case()
    async with open_fleet(tmp_path, partitions=2) as fleet:
        fleet.preload = [FLOW]
        recorded = await undisturbed(fleet, case)
        check_end(recorded, expected)
        kills = kills_of(recorded)
        assert len(kills) > LANES
        async with anyio.create_task_group() as tasks:
            for i in range(LANES):
                tasks.start_soon(lane, fleet, expected, f"lane-{i}", kills[i::LANES], recorded)


# -- the public corpus -------------------------------------------------------------------------------------------------


def corpus() -> list[CorpusCase]:
    return read_corpus(CORPUS)


def check_outcomes(outcomes: dict[str, Outcome], cases: Sequence[CorpusCase]) -> None:
    assert {name: outcome.differences for name, outcome in outcomes.items() if not outcome.passed} == {}
    assert len(outcomes) == sum(len(case.scenarios) for case in cases)


async def check_runs(fleet: Fleet, outcomes: dict[str, Outcome]) -> None:
    async with fleet.connection() as connection:
        for outcome in outcomes.values():
            check_run(await recorded_run(connection, outcome.run), fleet.carried(outcome.run))


@WITH_DATA
async def test_the_corpus_on_one_worker_all_at_once(tmp_path: Path) -> None:
    cases = corpus()
    async with open_fleet(tmp_path) as fleet:
        fleet.preload = [FLOW]
        worker = await fleet.hire("worker")
        async with fleet.connection() as connection:
            outcomes = await run_cases(connection, claim_of(), cases)
        check_outcomes(outcomes, cases)
        await check_runs(fleet, outcomes)
        await worker.kill()


@WITH_DATA
async def test_the_corpus_on_a_worker_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    cases = corpus()
    whole = sum(len(case.scenarios) for case in cases)
    outcomes: dict[str, Outcome] = {}
    async with open_fleet(tmp_path) as fleet:
        fleet.preload = [FLOW]
        victim = await fleet.hire("victim")

        async def kill() -> None:
            async with fleet.connection() as connection, connection.client.follow(event_type=ev.RunEnd.type) as ends:
                for _ in range(whole // 2):
                    await anext(ends)
                await victim.kill()
            await fleet.hire("heir")

        async with fleet.connection() as connection, anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            outcomes = await run_cases(connection, claim_of(), cases)
        check_outcomes(outcomes, cases)
        await check_runs(fleet, outcomes)
        await fleet.workers["heir"].kill()
