"""Workers that die by SIGKILL at every boundary: before and after each append, inside batches, on the way of commands.

In each lane, a stream of its own, workers follow upon each other: one dies performing its run, the next one ends that
run and dies performing the one after. Whatever happened, the run must end as if nothing had.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.commands import Cancel
from callboard.bus.events import RunEnd
from callboard.bus.log.port import Recorded
from callboard.service.client.client import Client
from tests.support.sweeps import select_deaths
from tests.support.worker_interpreters import play, triage
from tests.support.worker_process import Kill, What, When
from tests.support.worker_processes import (
    KILLED,
    Fleet,
    Worker,
    attend,
    check_run,
    end_payload,
    happened,
    open_fleet,
    say,
    say_start,
    until,
    until_end,
)

LANES = 6
"""How many chains of workers die beside each other; most of their time they wait."""

AGAIN_MAX = 10
"""How many runs of a lane are performed once more."""

WHEN: Sequence[When] = ("before", "after")
TOGETHER = 12
"""Runs that a worker with group commit performs at once."""

COMMITS = (1, 2, 4, 8)
"""At which of the group commits the worker dies."""

STEPS = 8
"""Steps of each run: as each costs one commit, there must be as many as the last of these."""


def deaths(recorded: Sequence[Recorded], *, even: When = "before") -> list[Kill]:
    """Return a death at each boundary of these events, as far as `select_deaths` selects it. Behind one or before the
    next: the log is the same, so each boundary is died at in one of the two ways, in turns; ``even`` is that of every
    other one, the first among them."""
    *others, last = select_deaths([item.event for item in recorded])
    found = [
        Kill("before", "append", n + 1) if (n % 2 == 0) == (even == "before") else Kill("after", "append", n)
        for n in others
    ]
    return [Kill("before", "append", 1), *found, Kill("after", "append", last)]


async def interrupted(client: Client, run_id: str) -> list[Recorded]:
    """Cancel a run when its endless effects have been announced; follow it to its end."""
    await until(client, run_id, lambda event: event.key == "endless[1]#1.1!long")
    await say(client, run_id, "cancel", Cancel(reason="enough"))
    return await until_end(client, run_id)


@dataclass(frozen=True)
class Case:
    """A run, who attends to it, and event types it comes to, so that the sweep is about something.

    ``ending`` is what of its end is the same in every run, and ``even`` how its `deaths` are.
    """

    name: str
    start: Callable[[str], dict[str, Any]]
    attend: Callable[[Client, str], Awaitable[list[Recorded]]]
    contains: Sequence[str]
    ending: Callable[[RunEnd], Any] = lambda end: end
    even: When = "before"

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("workflow", triage, until_end, ["tool.result", "model.result", "node.retry", "route"]),
    Case("waits", lambda run: play("waits", run), attend, ["run.parked", "timer.fired", "human.closed"], even="after"),
    Case("cancelled", lambda run: play("unwinds", run), interrupted, ["cancel.requested", "effect.cancelled"]),
]


async def perform(fleet: Fleet, client: Client, case: Case, run_id: str) -> list[Recorded]:
    await say_start(client, case.start(run_id))
    recorded = await case.attend(client, run_id)
    check_run(recorded, fleet.carried(run_id))
    return recorded


async def undisturbed(fleet: Fleet, case: Case) -> list[Recorded]:
    worker = await fleet.hire("undisturbed", prefix="undisturbed")
    async with fleet.connection(prefix="undisturbed") as connection:
        recorded = await perform(fleet, connection.client, case, "undisturbed")
    await worker.kill()
    assert set(case.contains) <= {item.event.type for item in recorded}
    carried = [one.key for one in fleet.carried("undisturbed")]
    assert len(carried) == len(set(carried))
    return recorded


def check_same(case: Case, recorded: Sequence[Recorded], expected: Sequence[Recorded]) -> None:
    assert case.ending(end_payload(recorded)) == case.ending(end_payload(expected))
    assert happened(recorded) == happened(expected)


async def lane(fleet: Fleet, case: Case, prefix: str, kills: Sequence[Kill], expected: Sequence[Recorded]) -> None:
    """Perform a run for each kill; one that chance had end before the kill's append is performed once more."""
    kills = list(kills)
    most = len(kills) + AGAIN_MAX

    def run_id(i: int) -> str:
        return f"{prefix}-{i}"

    async def hire(i: int) -> Worker:
        kill = Kill(kills[i].when, kills[i].what, kills[i].n, run_id(i)) if i < len(kills) else None
        return await fleet.order(run_id(i), prefix=prefix, kill=kill)

    async def succeed(i: int) -> None:
        nonlocal worker
        assert await worker.died() == KILLED
        worker = await hire(i + 1)

    async with fleet.connection(prefix=prefix) as connection:
        worker = await hire(0)
        for i, kill in enumerate(kills):
            recorded, missed = list[Recorded](), False
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(succeed, i)
                recorded = await perform(fleet, connection.client, case, run_id(i))
                if missed := survived(kill, recorded, run_id(i)):
                    tasks.cancel_scope.cancel()
            check_same(case, recorded, expected)
            if missed:
                kills.append(kill)
                assert len(kills) <= most
                await worker.kill()
                worker = await hire(i + 1)
            elif kill.what == "append":
                by_victim = sum(item.id.startswith(f"{run_id(i)}.") for item in recorded)
                assert by_victim == kill.n - (kill.when == "before")
        await worker.kill()


def survived(kill: Kill, recorded: Sequence[Recorded], worker: str) -> bool:
    """Whether a run ended before its worker was to die: how often one parks is chance, on a slow machine less often
    (a short timer is over before), and what is behind the last event of this run there was in the expected one."""
    if kill.what != "append" or not recorded[-1].id.startswith(f"{worker}."):
        return False
    appended = sum(item.id.startswith(f"{worker}.") for item in recorded)
    return appended < kill.n


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_worker_dies_at_every_append(case: Case, tmp_path: Path) -> None:
    async with open_fleet(tmp_path, partitions=2) as fleet:
        expected = await undisturbed(fleet, case)
        kills = deaths(expected, even=case.even)
        async with anyio.create_task_group() as tasks:
            for i in range(LANES):
                tasks.start_soon(lane, fleet, case, f"lane-{i}", kills[i::LANES], expected)


@pytest.mark.parametrize("what", ["batch", "route"])
async def test_a_worker_dies_inside_a_batch_or_on_the_way_of_a_command(what: What, tmp_path: Path) -> None:
    """The run parks for a timer, which is a batch of event and alarm; a start, an answer and a signal are routed."""
    case = CASES[1]
    async with open_fleet(tmp_path, partitions=2) as fleet:
        expected = await undisturbed(fleet, case)
        kills = [Kill(when, what, n) for n in range(1, {"batch": 1, "route": 3}[what] + 1) for when in WHEN]
        async with anyio.create_task_group() as tasks:
            for i, kill in enumerate(kills):
                tasks.start_soon(lane, fleet, case, f"lane-{i}", [kill], expected)


@pytest.mark.parametrize("when", WHEN)
async def test_a_worker_dies_inside_a_group_commit_of_many_runs(when: When, tmp_path: Path) -> None:
    """Before: all messages of the batch have reached the server but the one that commits it, so none may count."""
    async with open_fleet(tmp_path, sync="always", group_commit="on") as fleet, anyio.create_task_group() as tasks:
        for n in COMMITS:
            tasks.start_soon(commit_together, fleet, f"commit-{n}", Kill(when, "batch", n))


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
