"""Replaying all: every run of a store or an archive is verified in several processes, and failures are reported."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from callboard.bus.events import Event
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import read_runs, store
from callboard.service.operations import replay_all
from tests.support.places import TESTS
from tests.support.workdir import Workdir

GOLDEN = TESTS / "golden"


def recorded() -> dict[str, Sequence[Event]]:
    names = ("bake", "flow", "graph", "incident-triage", "playbook", "stepped", "warned", "cancelled", "failed")
    return {run: events for name in names for run, events in read_runs(GOLDEN / f"{name}.jsonl").items()}


def stored(folder: Path, runs: Mapping[str, Sequence[Event]]) -> Workdir:
    """A working directory whose store has runs."""

    async def put() -> None:
        config = load({"data_dir": str(folder / ".callboard"), "sync": "1s"}, env={})
        async with open_connection(config) as connection:
            await store(connection.log, "default", runs)

    anyio.run(put)
    return Workdir(folder)


def changed(events: Sequence[Event]) -> list[Event]:
    """The same run, had its interpreter entered another node."""
    place = next(i for i, event in enumerate(events) if event.type == "node.enter")
    payload = bytes(events[place].payload).replace(b'"node":"', b'"node":"x')
    return [*events[:place], msgspec.structs.replace(events[place], payload=Raw(payload)), *events[place + 1 :]]


def test_every_run_is_verified_in_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_all, "TOGETHER", 3)
    runs = recorded()
    workdir = stored(tmp_path, runs)
    report = workdir.run_json("replay", "--all", "--jobs", "2")
    assert (report["runs"], report["verified"], report["failures"]) == (len(runs), len(runs), [])
    assert report["events"] == sum(map(len, runs.values()))


def test_a_diverging_run_is_reported_and_the_others_are_verified(tmp_path: Path) -> None:
    runs = recorded()
    bad, late, *_ = runs
    runs[bad], runs[late] = changed(runs[bad]), runs[late][:1]
    workdir = stored(tmp_path, runs)
    assert workdir.run("archive", "--all", "-o", "all.callboard").exit_code == 0
    for where in ([], ["all.callboard"]):
        result = workdir.run("replay", "--all", *where, "--json", "--jobs", "1")
        assert result.exit_code == 1
        report = json.loads(result.stdout)
        assert [(one["run"], one["code"]) for one in report["failures"]] == [(bad, "replay.diverged")]
        assert (report["verified"], report["not_started"]) == (len(runs) - 2, 1)
    told = workdir.run("replay", "--all", "all.callboard", "--jobs", "1")
    assert f"verified {len(runs) - 2} of {len(runs)} runs" in told.stdout
    assert bad in told.stdout


def test_options_select_the_runs_to_replay(tmp_path: Path) -> None:
    runs = recorded()
    workdir = stored(tmp_path, runs)
    names = {events[0].definition for events in runs.values()}
    one = min(names)
    expected = sum(events[0].definition == one for events in runs.values())
    assert workdir.run_json("replay", "--all", "--definition", one, "--jobs", "1")["runs"] == expected
    at = sorted(events[0].time for events in runs.values())[2]
    since = sum(events[0].time >= at for events in runs.values())
    assert workdir.run_json("replay", "--all", "--since", at.isoformat(), "--jobs", "1")["runs"] == since
    failed = sum(any(event.type == "run.failed" for event in events) for events in runs.values())
    assert workdir.run_json("replay", "--all", "--where", "status=failed", "--jobs", "1")["runs"] == failed > 0
    assert workdir.run("replay", "--all", "--since", "soon").exit_code == 2
    assert workdir.run("replay", "--all", "golden-run").exit_code == 2
    assert workdir.run("replay").exit_code == 2
