"""Parents and children at several workers that are killed, and kinds of children.

After any death each child is one run, its parent receives its end once, and no run is left waiting.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Registration
from callboard.bus.effects import Usage
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef, partition_of
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import Registered, register
from callboard.runtime.client.client import Client
from callboard.runtime.cluster.code_hosts import owner
from callboard.testing.checks import check_log
from tests.support.family_interpreters import child_of
from tests.support.worker_interpreters import play, triage
from tests.support.worker_processes import (
    TENANT,
    Fleet,
    Worker,
    check_run,
    claimers,
    end_payload,
    open_client,
    say,
    say_start,
    settled,
    until,
    until_end,
    until_type,
)

Family = tuple[list[Recorded], list[Recorded]]
"""The logs of a parent and its child."""


def start_of(run_id: str, **given: Any) -> dict[str, Any]:
    return play("keeps", run_id, given)


async def wait_for_both(client: Client, run_id: str) -> Family:
    return await until_end(client, run_id), await until_end(client, child_of(run_id))


def check(fleet: Fleet, recorded: list[Recorded]) -> None:
    check_run(recorded, fleet.carried(recorded[0].ref.run))


# -- two workers, each with one of the two ----------------------------------------------------------------------------

PARTITIONS = 3


def find_separated(parents: str, childrens: str, word: str) -> str:
    """A run id whose partition has one worker and whose child has another."""

    def falls_to(run: str) -> str:
        return owner(partition_of(RunRef(TENANT, run), PARTITIONS), (parents, childrens))

    return next(
        run for i in range(10_000) if falls_to(run := f"{word}-{i}") == parents and falls_to(child_of(run)) == childrens
    )


@dataclass
class SeparatedFamily:
    """A parent at one worker, and its active child at another."""

    fleet: Fleet
    client: Client
    run_id: str
    parents: Worker
    childrens: Worker
    file: Path

    async def finish(self) -> Family:
        """Let the child end, and the parent after it."""
        self.file.touch()
        family = await wait_for_both(self.client, self.run_id)
        for recorded in family:
            check(self.fleet, recorded)
        assert end_payload(family[0]).output == ["before", "completed", "do", None, "behind"]
        return family


@asynccontextmanager
async def open_separated_family(home: Path, **config: Any) -> AsyncGenerator[SeparatedFamily]:
    async with open_client(home, partitions=PARTITIONS, **config) as (fleet, client):
        names = ("parents", "childrens")
        parents, childrens = [await fleet.hire(name) for name in names]
        await settled(client, names)
        run_id = find_separated(*names, "apart")
        file = home / "go on"
        await say_start(client, start_of(run_id, child={"until": str(file)}))
        await until(client, child_of(run_id), lambda event: event.key == "work#1.1!do")
        yield SeparatedFamily(fleet, client, run_id, parents, childrens, file)


async def test_a_child_end_reaches_a_parent_whose_worker_died(tmp_path: Path) -> None:
    async with open_separated_family(tmp_path) as two:
        await until_type(two.client, two.run_id, ev.RunParked.type)
        await two.parents.emptied()
        await two.parents.kill()
        parent, child = await two.finish()
        assert claimers(child) == ["childrens"]
        assert claimers(parent) == ["parents", "childrens"]
        (end,) = [item.event for item in parent if item.event.type == ev.ChildEnd.type]
        assert end.cause > 0


async def test_parent_and_child_continue_after_both_workers_died(tmp_path: Path) -> None:
    async with open_separated_family(tmp_path) as two:
        await two.parents.kill()
        await two.childrens.kill()
        await two.fleet.hire("heir")
        parent, child = await two.finish()
        assert claimers(child) == ["childrens", "heir"]
        assert claimers(parent)[-1] == "heir"


async def test_a_cancelled_parent_whose_worker_died_cancels_its_child(tmp_path: Path) -> None:
    """The child is at another worker."""
    async with open_separated_family(tmp_path) as two:
        await until_type(two.client, two.run_id, ev.RunParked.type)
        await say(two.client, two.run_id, "cancel", Cancel(reason="enough"))
        await until(two.client, two.run_id, lambda event: event.type == ev.EffectCancelled.type)
        await two.parents.kill()
        parent, child = await wait_for_both(two.client, two.run_id)
        assert [end_payload(recorded).status for recorded in (parent, child)] == ["cancelled", "cancelled"]
        assert "work#1.1!tidy" in [item.event.key for item in child]
        for recorded in (parent, child):
            check(two.fleet, recorded)


# -- kinds of children ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def one_worker(home: Path, **config: Any) -> AsyncGenerator[tuple[Fleet, Client]]:
    async with open_client(home, **config) as (fleet, client):
        await fleet.hire("only")
        yield fleet, client


async def test_a_child_of_another_language_is_named_by_source_name_or_hash(tmp_path: Path) -> None:
    """The turns of the child count once."""
    async with one_worker(tmp_path) as (fleet, client):
        start = triage("unused")
        kept = Registration(language="workflow", source=start["definition"]["source"])
        registered = await register(client.log, Definitions(), TENANT, kept)
        assert isinstance(registered, Registered), registered
        given = {name: start[name] for name in ("script", "options", "model")}
        for definition in (start["definition"], {"name": registered.name}, {"hash": registered.hash}):
            run_id = f"by-{'-'.join(definition)}"
            await say_start(client, start_of(run_id, definition=definition, child={}, start=given))
            parent, child = await wait_for_both(client, run_id)
            for recorded in (parent, child):
                check(fleet, recorded)
            assert end_payload(parent).output[1] == "completed", end_payload(child).error
            assert end_payload(parent).usage == end_payload(child).usage == Usage(17, 4)


async def test_a_refused_child_ends_with_every_problem(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as (fleet, client):
        await say_start(client, start_of("refused", definition={"name": "nowhere"}, start={"model": "nobody:x"}))
        recorded = await until_end(client, "refused")
        check(fleet, recorded)
        (end,) = [ev.payload_of(item.event) for item in recorded if item.event.type == ev.ChildEnd.type]
        assert isinstance(end, ev.ChildEnd)
        assert end.error is not None
        assert end.error.code == "child.refused"
        codes = {problem["code"] for problem in end.error.details["problems"]}
        assert {"definition.unknown", "model.unknown"} <= codes, codes
        assert await client.log.last(client.ref(child_of("refused"))) is None


async def test_a_large_child_output_reaches_the_parent(tmp_path: Path) -> None:
    """The value is stored separately for both."""
    text = "x" * 5_000
    async with one_worker(tmp_path, inline_bytes_max=1_024) as (_, client):
        await say_start(client, start_of("large", child={"value": text}))
        parent, _ = await wait_for_both(client, "large")
        assert [item.event.type for item in parent if item.event.blobs]
        whole_child, whole_parent = await client.events(child_of("large")), await client.events("large")
        for events in (whole_parent, whole_child):
            end = ev.payload_of(events[-1])
            assert isinstance(end, ev.RunEnd)
            assert text in end.output
        check_log(whole_parent)


async def test_children_at_a_full_worker_do_not_wait_for_their_parents(tmp_path: Path) -> None:
    """The parent keeps the only place until it is parked."""
    async with one_worker(tmp_path, runs_active_max=1, effects_active_max=1) as (fleet, client):
        for i in range(3):
            await say_start(client, start_of(f"full-{i}"))
        for i in range(3):
            for recorded in await wait_for_both(client, f"full-{i}"):
                check(fleet, recorded)
                assert end_payload(recorded).status == "completed"
