"""``callboard page``: runs from a file of events are served read-only from a temporary log."""

import json
from pathlib import Path

import anyio
import httpx2
import pytest

from callboard.bus.events import decode_event
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import NoEventFile, read_runs, store
from callboard.service.operations.archives import archive_runs
from tests.support.http_application import code_of
from tests.support.places import TESTS
from tests.support.workdir import Workdir, read_json

GOLDEN = TESTS / "golden"
PATIENCE_S = 30.0


async def archive_events(file: Path, folder: Path) -> Path:
    """Write the runs of a file of events into an archive."""
    runs, archive = read_runs(file), folder / "runs.callboard"
    async with open_connection(load({"data_dir": str(folder / "store"), "sync": "1s"}, env={})) as connection:
        await store(connection.log, "acme", runs)
        await archive_runs(connection.log, "acme", list(runs), archive, children=False, progress=lambda _more: None)
    return archive


@pytest.mark.parametrize("kind", ["events", "archive"])
def test_a_file_of_runs_is_served_read_only(tmp_path: Path, kind: str) -> None:
    file = GOLDEN / "incident-triage.jsonl"
    shown = file if kind == "events" else anyio.run(archive_events, file, tmp_path)
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    with Workdir(tmp_path).process("page", str(shown), "--json") as process:
        page = httpx2.URL(read_json(process)["url"])
        with httpx2.Client(base_url=page.copy_with(path="/api/default"), timeout=PATIENCE_S, trust_env=False) as client:
            run = f"/runs/{events[0]['run']}"
            assert page.path.endswith(run)
            assert 'content="read"' in client.get(str(page)).text
            found = client.get(f"{run}/events", params={"limit": 1_000}).json()["events"]
            assert [one["event"] for one in found] == events
            assert client.get(f"{run}/replay/0").json()["ended"]
            refused = client.post("/runs", json={})
            assert code_of(refused) == (403, "http.scope")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


async def test_large_values_are_stored_separately(tmp_path: Path) -> None:
    first = json.loads((GOLDEN / "events.jsonl").read_text(encoding="utf-8").splitlines()[0])
    del first["payload"]["forked_from"]
    first["payload"]["start"]["input"] = {"long": "x" * (INLINE_BYTES_MAX + 1)}
    file = tmp_path / "large.jsonl"
    file.write_text(json.dumps(first) + "\n", encoding="utf-8")
    runs, log = read_runs(file), MemoryLog()
    await store(log, "acme", runs)
    [recorded] = await log.read(RunRef("acme", first["run"]))
    assert len(recorded.data) < INLINE_BYTES_MAX
    assert len(decode_event(recorded.data).blobs) == 1


@pytest.mark.parametrize("text", ["", "no event\n", "{}\n", "[]", "second line only"])
def test_a_file_without_events_is_refused(tmp_path: Path, text: str) -> None:
    lines = (GOLDEN / "events.jsonl").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "events.jsonl"
    file.write_text(lines[1] if text == "second line only" else text, encoding="utf-8")
    with pytest.raises(NoEventFile) as caught:
        read_runs(file)
    assert caught.value.code == "page.no_events"
