"""Workers that die by SIGKILL at each kind of boundary, in runs of all languages, on one fleet.

Each lane has a prefix, and one worker at a time: it dies performing its run, and the next one ends that run and dies
performing the one after. Each run must end as it does undisturbed. The deaths at all other events are simulated in the
tests of each language; ``make sweep`` performs them here too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.log.recorded import Recorded
from tests.support import killed_runs
from tests.support.killed_runs import (
    CANCELLED,
    CANCELLED_FLOW,
    CANCELLED_PARENT,
    CASES,
    FLOW,
    GRAPH,
    PLAYBOOK,
    PYTHON,
    WORKFLOW,
    Case,
    Member,
)
from tests.support.sweeps import EVERY, select_deaths
from tests.support.worker_interpreters import play
from tests.support.worker_process import Kill, When
from tests.support.worker_processes import (
    KILLED,
    Fleet,
    Worker,
    check_run,
    end_payload,
    happened,
    open_fleet,
    say_start,
    until_end,
)

LANES = 8
"""The number of concurrent chains of workers; they mostly wait."""

AGAIN_MAX = 10
"""The maximum number of runs of a lane that are repeated."""

PRELOADED = ["mcp", killed_runs.__name__]

WHEN: Sequence[When] = ("before", "after")


@dataclass(frozen=True)
class Death:
    """A death of a worker around an action of a run, or of the ``of``-th member of its family."""

    boundary: str
    case: Case
    kill: Kill
    of: int = 0


def at(boundary: str, case: Case, when: When, event: type[ev.Payload], n: int = 1, of: int = 0) -> Death:
    """A death around the ``n``-th event of a type."""
    return Death(boundary, case, Kill(when, "append", n, type=event.type), of)


def at_route(boundary: str, case: Case, when: When, n: int, of: int = 0) -> Death:
    """A death around the ``n``-th command on its way to a run."""
    return Death(boundary, case, Kill(when, "route", n), of)


def at_batch(boundary: str, case: Case, when: When, of: int = 0) -> Death:
    """A death around the commit of the first batch of a run, all of whose messages have reached the server."""
    return Death(boundary, case, Kill(when, "batch", 1), of)


DEATHS = [
    at("start and admission", FLOW, "before", ev.RunAccepted),
    at("admission and acknowledgement", PLAYBOOK, "after", ev.RunAccepted),
    at_route("start on its way", GRAPH, "before", 1),
    at("claim and first turn", WORKFLOW, "after", ev.RunClaimed),
    at("intent and effect", WORKFLOW, "after", ev.ToolCall, 3),
    at("effect and outcome", WORKFLOW, "before", ev.ModelResult, 2),
    at("effect and outcome", PYTHON, "before", ev.EffectResult, of=1),
    at("outcome and next decision", WORKFLOW, "after", ev.ToolResult, 3),
    at("outcome and next decision", GRAPH, "after", ev.ModelResult, 2),
    at_batch("event and alarm", GRAPH, "before"),
    at_batch("event and alarm", GRAPH, "after"),
    at("parked and woken", PLAYBOOK, "after", ev.RunParked),
    at("parked and woken", PLAYBOOK, "before", ev.RunResumed),
    at("parked and woken", GRAPH, "before", ev.HumanAnswered),
    at("parked and woken", PYTHON, "before", ev.TimerFired),
    at_route("answer on its way", PLAYBOOK, "after", 2),
    at("cancellation and clean-up", CANCELLED, "after", ev.CancelRequested),
    at("cancellation and clean-up", CANCELLED_FLOW, "before", ev.EffectCancelled),
    at("clean-up and its outcome", CANCELLED_FLOW, "before", ev.EffectResult),
    at("bound and clean-up", FLOW, "after", ev.EffectCancelled),
    at("child start", PYTHON, "after", ev.ChildStart),
    at("child start", PYTHON, "before", ev.RunAccepted, of=1),
    at_route("child on its way", PYTHON, "before", 1, of=1),
    at_route("cancellation on its way to a child", CANCELLED_PARENT, "before", 2, of=1),
    at_route("cancellation on its way to a child", CANCELLED_PARENT, "after", 2, of=1),
    at("child end", PYTHON, "before", ev.RunEnd, of=2),
    at("child end", PYTHON, "before", ev.ChildEnd),
    at_batch("end and successor", PYTHON, "before", of=1),
    at_batch("end and successor", PYTHON, "after", of=1),
    at("end and successor", PYTHON, "before", ev.RunAccepted, of=2),
    at("end and acknowledgement", FLOW, "after", ev.RunEnd),
]
"""A death, or two, of each kind of boundary, in a language in which it occurs."""

Expected = Mapping[str, list[Member]]
"""The family of each case, undisturbed."""


async def perform(fleet: Fleet, prefix: str, case: Case, run_id: str) -> list[Member]:
    async with fleet.connection(prefix=prefix) as connection:
        await say_start(connection.client, case.message(run_id))
        family = await case.attend(connection.client, run_id)
    for member in family:
        check_run(member.recorded, fleet.carried(member.id(run_id)))
    return family


async def perform_undisturbed(fleet: Fleet, cases: Sequence[Case]) -> Expected:
    worker = await fleet.hire("undisturbed", prefix="undisturbed")
    expected: dict[str, list[Member]] = {}

    async def one(case: Case) -> None:
        run_id = case.name.replace(" ", "-")
        expected[case.name] = family = await perform(fleet, "undisturbed", case, run_id)
        assert set(case.contains) <= {item.event.type for member in family for item in member.recorded}
        carried = [(one.run, one.key) for member in family for one in fleet.carried(member.id(run_id))]
        assert len(carried) == len(set(carried))

    async with anyio.create_task_group() as tasks:
        for case in cases:
            tasks.start_soon(one, case)
    await worker.kill()
    return expected


async def run_lane(fleet: Fleet, prefix: str, deaths: Sequence[Death], expected: Expected) -> None:
    """Perform a run for each death. A run that ends before its worker dies is repeated."""
    deaths = list(deaths)
    most = len(deaths) + AGAIN_MAX

    async def hire(i: int) -> Worker:
        name = f"{prefix}-{i}"
        if i == len(deaths):
            return await fleet.order(name, prefix=prefix)
        death = deaths[i]
        run = expected[death.case.name][death.of].id(name)
        return await fleet.order(name, prefix=prefix, kill=replace(death.kill, run=run))

    async def succeed(i: int) -> None:
        nonlocal worker
        assert await worker.died() == KILLED
        worker = await hire(i + 1)

    worker = await hire(0)
    for i, death in enumerate(deaths):
        family, missed = list[Member](), False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(succeed, i)
            family = await perform(fleet, prefix, death.case, f"{prefix}-{i}")
            if missed := survived(death.kill, family[death.of].recorded, f"{prefix}-{i}"):
                tasks.cancel_scope.cancel()
        check_same(death, family, expected[death.case.name])
        if missed:
            deaths.append(death)
            assert len(deaths) <= most
            await worker.kill()
            worker = await hire(i + 1)
    await worker.kill()


def survived(kill: Kill, recorded: Sequence[Recorded], worker: str) -> bool:
    """Whether a run ended before its worker should die. A run may park less often on a slow machine, where a short
    timer fires first."""
    if kill.what != "append" or not recorded[-1].id.startswith(f"{worker}."):
        return False
    types = [item.event.type for item in recorded if item.id.startswith(f"{worker}.")]
    return sum(kill.type in ("", one) for one in types) < kill.n


def check_same(death: Death, family: Sequence[Member], expected: Sequence[Member]) -> None:
    assert [member.keys for member in family] == [member.keys for member in expected], death
    for member, wanted in zip(family, expected, strict=True):
        ends = [death.case.ending(end_payload(one.recorded)) for one in (member, wanted)]
        assert ends[0] == ends[1], death
        assert happened(member.recorded) == happened(wanted.recorded), death


def every_death(family: Sequence[Member], case: Case) -> list[Death]:
    """A death at each boundary between two events: alternately after one and before the next; the logs are equal."""
    found: list[Death] = []
    for of, member in enumerate(family):
        *others, last = select_deaths([item.event for item in member.recorded])
        kills = [Kill("before", "append", n + 1) if n % 2 else Kill("after", "append", n) for n in others]
        kills = [Kill("before", "append", 1), *kills, Kill("after", "append", last)]
        found += [Death("every event", case, kill, of) for kill in kills]
    return found


async def die(home: Path, cases: Sequence[Case], deaths: Sequence[Death] = ()) -> None:
    """Perform runs with these deaths of workers; without any, with all deaths of the first case."""
    async with open_fleet(home, partitions=2) as fleet:
        fleet.preload = PRELOADED
        expected = await perform_undisturbed(fleet, cases)
        deaths = deaths or every_death(expected[cases[0].name], cases[0])
        async with anyio.create_task_group() as tasks:
            for i in range(LANES):
                tasks.start_soon(run_lane, fleet, f"lane-{i}", deaths[i::LANES], expected)


@pytest.mark.timeout(300)
async def test_a_run_ends_the_same_after_a_death_at_each_kind_of_boundary(tmp_path: Path) -> None:
    await die(tmp_path, CASES, DEATHS)


if EVERY:

    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    async def test_a_run_ends_the_same_after_a_death_at_each_event(case: Case, tmp_path: Path) -> None:
        await die(tmp_path, [case])


# -- group commit ------------------------------------------------------------------------------------------------------

TOGETHER = 12
"""Runs that a worker with group commit performs at once."""

COMMITS = (1, 2, 4, 8) if EVERY else (2,)
"""The group commits at which the worker dies."""

STEPS = max(COMMITS)
"""Steps of each run; each step takes one commit."""


async def test_a_worker_dies_inside_a_group_commit_of_many_runs(tmp_path: Path) -> None:
    """Before the commit, all other messages of the batch have reached the server, and none may count."""
    async with open_fleet(tmp_path, sync="always", group_commit="on") as fleet, anyio.create_task_group() as tasks:
        for when in WHEN:
            for n in COMMITS:
                tasks.start_soon(commit_together, fleet, f"{when}-{n}", Kill(when, "batch", n))


async def commit_together(fleet: Fleet, prefix: str, kill: Kill) -> None:
    runs = [f"{prefix}-{i}" for i in range(TOGETHER)]
    async with fleet.connection(prefix=prefix) as connection:
        for run_id in runs:
            await say_start(connection.client, play("steps", run_id, {"count": STEPS}))
        victim = await fleet.order(f"{prefix}-victim", prefix=prefix, kill=kill)
        assert await victim.died() == KILLED
        heir = await fleet.hire(f"{prefix}-heir", prefix=prefix)
        for run_id in runs:
            recorded = await until_end(connection.client, run_id)
            check_run(recorded, fleet.carried(run_id))
            assert end_payload(recorded).output == list(range(STEPS))
        await heir.kill()
