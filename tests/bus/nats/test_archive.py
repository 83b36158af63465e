"""Archives hold the recorded events byte for byte, can be read and imported, and damage is detected."""

import json
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from callboard.bus.errors import CallboardError
from callboard.bus.events import NEWER
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.archive import Archive, ArchivedLog, ArchiveInvalid, ArchiveLacks
from callboard.bus.nats.cold_runs import ColdRuns
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.cooling import cool_runs
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.segments import SegmentFolder
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.interpreter.replay import read_admission
from callboard.runtime.run.log import events_of, read_run
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import read_runs, store
from callboard.service.operations.archives import archive_runs, import_as, import_runs
from callboard.service.operations.replays import replay_events
from callboard.service.operations.verification import verify_store
from tests.support.places import TESTS
from tests.support.workdir import Workdir

GOLDEN = TESTS / "golden"
LARGE = INLINE_BYTES_MAX * 5


@asynccontextmanager
async def standing(folder: Path) -> AsyncGenerator[Connection]:
    async with open_connection(load({"data_dir": str(folder), "sync": "1s"}, env={})) as connection:
        yield connection


def quietly(_more: int) -> None:
    pass


async def bytes_of(log: JetStreamLog, ref: RunRef) -> list[tuple[str, bytes]]:
    return [(one.id, one.data) for one in await log.read(ref)]


def with_large_input(file: Path, folder: Path) -> Path:
    """Copy a recorded run and give its start a value that is stored outside the event."""
    first, *rest = file.read_text(encoding="utf-8").splitlines()
    event = json.loads(first)
    event["payload"]["start"].setdefault("files", {})["large.txt"] = "x" * LARGE
    found = folder / file.name
    found.write_text("\n".join([json.dumps(event), *rest]) + "\n", encoding="utf-8")
    return found


def replayed(recorded: list[Recorded]) -> bool:
    events = events_of(recorded)
    told = replay_events(recorded[0].ref, events, read_admission(events[0], language), {})
    return told.ended and not told.unwritten


async def test_an_archived_run_is_restored_byte_for_byte_and_replays(tmp_path: Path) -> None:
    runs = {
        **read_runs(with_large_input(GOLDEN / "incident-triage.jsonl", tmp_path)),
        **read_runs(GOLDEN / "flow.jsonl"),
    }
    ids, file = list(runs), tmp_path / "runs.callboard"
    async with standing(tmp_path / "one") as one:
        await store(one.log, "default", runs)
        await archive_runs(one.log, "default", ids, file, children=False, progress=quietly)
        before = {id: await bytes_of(one.log, RunRef("default", id)) for id in ids}
        whole = {id: events_of(await read_run(one.log, RunRef("default", id))) for id in ids}
    archive = Archive(file)
    assert file.stat().st_size < LARGE
    for run in archive.runs:
        from_file = await read_run(ArchivedLog(archive), run.ref)
        assert events_of(from_file) == whole[run.run]
        assert replayed(from_file)
    async with standing(tmp_path / "other") as other:
        found = await import_runs(other.log, "acme", archive, archive.runs, quietly)
        assert [(one.run, one.verdict) for one in found] == [(id, "imported") for id in ids]
        for id in ids:
            ref = RunRef("acme", id)
            assert await bytes_of(other.log, ref) == before[id]
            assert replayed(await read_run(other.log, ref))
        again = await import_runs(other.log, "acme", archive, archive.runs, quietly)
        assert {one.verdict for one in again} == {"there already"}
        renamed = await import_as(other.log, "acme", archive, archive.run(ids[0]), "another")
        assert renamed.run == "another"
        assert replayed(await read_run(other.log, RunRef("acme", "another")))


async def test_an_interrupted_import_continues_and_the_id_of_another_run_is_refused(tmp_path: Path) -> None:
    [(id, events)] = read_runs(GOLDEN / "bake.jsonl").items()
    file = tmp_path / "runs.callboard"
    async with standing(tmp_path / "one") as here:
        await store(here.log, "default", {id: events})
        await archive_runs(here.log, "default", [id], file, children=False, progress=quietly)
        archive = Archive(file)
        await store(here.log, "half", {id: events[:3]})
        [found] = await import_runs(here.log, "half", archive, archive.runs, quietly)
        assert found.verdict == "imported"
        assert await bytes_of(here.log, RunRef("half", id)) == await bytes_of(here.log, RunRef("default", id))

        [(_, others)] = read_runs(GOLDEN / "flow.jsonl").items()
        await store(here.log, "taken", {id: others})
        with pytest.raises(CallboardError) as refused:
            await import_runs(here.log, "taken", archive, archive.runs, quietly)
        assert refused.value.code == "archive.taken"


async def test_an_active_run_is_archived_but_not_imported(tmp_path: Path) -> None:
    [(id, events)] = read_runs(GOLDEN / "bake.jsonl").items()
    file = tmp_path / "runs.callboard"
    async with standing(tmp_path / "one") as here:
        await store(here.log, "default", {id: events[:-1]})
        [found] = await archive_runs(here.log, "default", [id], file, children=False, progress=quietly)
        assert (found.status, found.events) == ("", len(events) - 1)
        with pytest.raises(CallboardError) as refused:
            await import_runs(here.log, "other", Archive(file), [found], quietly)
        assert refused.value.code == "archive.open"
        assert await here.log.last(RunRef("other", id)) is None


async def test_an_archive_has_the_messages_as_stored_in_the_stream(tmp_path: Path) -> None:
    async with standing(tmp_path) as here:
        subject = here.log.subjects.blob(RunRef("default", "r"), "0" * 64) + ".0"
        sequence = await here.log.publish(OutgoingMessage(subject, b"\xff\n{}", {"Cb-Chunks": "1"}))
        [found] = [one async for one in here.log.copy_messages(subject)]
        assert (found.sequence, found.subject, found.data) == (sequence, subject, b"\xff\n{}")
        assert found.headers == {"Cb-Chunks": "1"}


@pytest.fixture
async def archived(tmp_path: Path) -> Path:
    runs = read_runs(GOLDEN / "stepped.jsonl")
    async with standing(tmp_path / "one") as here:
        await store(here.log, "default", runs)
        file = tmp_path / "runs.callboard"
        await archive_runs(here.log, "default", list(runs), file, children=False, progress=quietly)
    return file


def _contents(file: Path) -> list[bytes]:
    archive = Archive(file)
    return [message.data for run in archive.runs for message in archive.messages(run)]


async def test_a_changed_or_missing_byte_is_detected(archived: Path, tmp_path: Path) -> None:
    _damage(archived, tmp_path / "damaged.callboard")


def _damage(archived: Path, damaged: Path) -> None:
    whole, contents = archived.read_bytes(), _contents(archived)
    refused = 0
    for at in range(0, len(whole), 7):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        try:
            # What says nothing of the contents, such as the time of a member, may be changed.
            assert _contents(damaged) == contents
        except ArchiveInvalid:
            refused += 1
    assert refused > len(whole) // 7 * 0.8
    for length in range(0, len(whole), 211):
        damaged.write_bytes(whole[:length])
        with pytest.raises(ArchiveInvalid):
            _contents(damaged)


async def test_a_replaced_member_is_detected(archived: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.callboard"
    with zipfile.ZipFile(archived) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'"node":"', b'"edon":"'))
        new.comment = old.comment
    with pytest.raises(ArchiveInvalid, match="digest differs"):
        _contents(forged)


@pytest.mark.parametrize(
    "subject",
    [
        "$KV.CB_DESK.links.default.key",
        "cb.run.default.another.stepped.node.enter",
        "cb.run.other.{run}.stepped.node.enter",
        "cb.run.default.{run}.stepped.node.*",
        "cb.blob.default.{run}.key",
        "cb.cmd.0.default.{run}.kill",
        "",
    ],
)
async def test_a_message_that_does_not_belong_to_its_run_is_refused(
    archived: Path, tmp_path: Path, subject: str
) -> None:
    """All digests of the archive are right."""
    forged = tmp_path / "forged.callboard"
    with zipfile.ZipFile(archived) as old, zipfile.ZipFile(forged, "w") as new:
        manifest = json.loads(old.read("manifest.json"))
        for run in manifest["runs"]:
            first, rest = old.read(f"runs/{run['run']}").split(b"\n", 1)
            head = {**json.loads(first), "subject": subject.format(run=run["run"])}
            body = json.dumps(head).encode() + b"\n" + rest
            run["sha256"] = sha256(body).hexdigest()
            new.writestr(f"runs/{run['run']}", body)
        text = json.dumps(manifest).encode()
        new.writestr("manifest.json", text)
        new.comment = sha256(text).hexdigest().encode()
    async with standing(tmp_path / "two") as there:
        opened = Archive(forged)
        with pytest.raises(ArchiveInvalid, match=r"message 1 of run .* is neither an event nor a large value"):
            await import_runs(there.log, "default", opened, opened.runs, quietly)
        assert await there.log.last_sequence() == 0


async def test_an_archive_of_several_runs_requires_the_id_of_one(tmp_path: Path) -> None:
    runs = {**read_runs(GOLDEN / "stepped.jsonl"), **read_runs(GOLDEN / "bake.jsonl")}
    async with standing(tmp_path / "one") as here:
        await store(here.log, "default", runs)
        file = tmp_path / "runs.callboard"
        await archive_runs(here.log, "default", list(runs), file, children=False, progress=quietly)
    with pytest.raises(ArchiveLacks, match="2 runs"):
        Archive(file).run(None)
    with pytest.raises(ArchiveLacks, match="run 'nix' is not in this archive"):
        Archive(file).run("nix")


def test_commands_take_a_file_instead_of_a_run(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    ran = workdir.run("run", *workdir.write_one({"text": "said"}), "--run-id", "r1")
    assert ran.exit_code == 0, ran.output
    said = workdir.run_json("archive", "r1", "-o", "runs.callboard")
    assert [run["status"] for run in said["runs"]] == ["completed"]
    for command in (("show",), ("trace",), ("trace", "--format", "events"), ("replay",), ("diagram",), ("rebuild",)):
        from_log = workdir.run(command[0], "r1", *command[1:])
        (tmp_path / ".callboard").rename(tmp_path / "aside")
        from_file = workdir.run(command[0], "runs.callboard", *command[1:])
        (tmp_path / "aside").rename(tmp_path / ".callboard")
        assert (from_file.exit_code, from_file.stdout) == (0, from_log.stdout), command
    assert workdir.run("diff", "r1", "runs.callboard#r1").exit_code == 0
    watched = workdir.run("watch", "runs.callboard")
    assert watched.exit_code == 0
    assert "completed" in watched.output
    workdir.write("events.jsonl", workdir.run("trace", "r1", "--format", "events").stdout)
    assert workdir.run("show", "events.jsonl").stdout == workdir.run("show", "r1").stdout
    [found] = workdir.run_json("import", "runs.callboard", "--as", "r2")
    assert found["verdict"] == "imported"
    assert workdir.run("replay", "r2").exit_code == 0
    (tmp_path / "runs.callboard").write_bytes(b"PK")
    torn = workdir.run("show", "runs.callboard")
    assert torn.exit_code == 4
    assert "archive.invalid: this is not an archive, or it is truncated: " in torn.output
    absent = workdir.run("import", "none.callboard")
    assert "archive.invalid: the file cannot be read: No such file or directory" in absent.output


async def test_children_are_archived_on_request_with_the_id_of_their_parent(tmp_path: Path) -> None:
    runs = {**read_runs(GOLDEN / "bake.jsonl"), **read_runs(GOLDEN / "stepped.jsonl")}
    [parent, child] = runs
    first = runs[parent][0]
    start = Raw(msgspec.json.encode({"definition": {}, "child": child}))
    begun = msgspec.structs.replace(first, n=2, type="child.start", payload=start)
    async with standing(tmp_path / "one") as here:
        await store(here.log, "default", {**runs, parent: [first, begun]})
        file = tmp_path / "runs.callboard"
        alone = await archive_runs(here.log, "default", [parent], file, children=False, progress=quietly)
        assert [(run.run, run.children) for run in alone] == [(parent, [child])]
        both = await archive_runs(here.log, "default", [parent], file, children=True, progress=quietly)
        assert [run.run for run in both] == [parent, child]
        with pytest.raises(CallboardError) as refused:
            await import_as(here.log, "default", Archive(file), both[0], "another")
        assert refused.value.code == "archive.children"


@pytest.mark.parametrize("place", [0, 2, -1])
async def test_an_event_of_a_newer_version_is_not_reported_as_damage(tmp_path: Path, place: int) -> None:
    [(id, recorded)] = read_runs(GOLDEN / "bake.jsonl").items()
    events = list(recorded)
    event = events[place]
    members = {**json.loads(bytes(event.payload)), "start": "newer", "environment": "newer", "usage": "newer"}
    events[place] = msgspec.structs.replace(event, payload=msgspec.Raw(json.dumps(members).encode()))
    ref, file = RunRef("default", id), tmp_path / "runs.callboard"
    async with standing(tmp_path / "one") as here:
        log, folder = here.log, SegmentFolder(tmp_path / "cold")
        await store(log, "default", {id: events})
        assert [one.event.n for one in await log.read(ref) if one.event.type == NEWER] == [event.n]
        assert (await verify_store(log, "default", values=True)).sound
        before = await bytes_of(log, ref)
        [archived] = await archive_runs(log, "default", [id], file, children=False, progress=quietly)
        assert (archived.events, archived.status) == (len(events), "completed")
        log.cold = ColdRuns(log, folder)
        # Cold storage takes a run whose end this version can read.
        assert await cool_runs(log, folder, [ref]) == ([ref] if place != -1 else [])
        assert (await verify_store(log, "default", values=True)).sound
        assert await bytes_of(log, ref) == before
        archive = Archive(file)
        await import_runs(log, "acme", archive, archive.runs, quietly)
        assert await bytes_of(log, RunRef("acme", id)) == before
