"""The rule of cold storage: which runs it selects, and the commands that move and restore them."""

import datetime as dt
import shutil
from pathlib import Path

import pytest

from callboard.bus.errors import ConfigInvalid
from callboard.bus.nats.jetstream_api import api
from callboard.features.cold.cooling_leader import round_of
from callboard.runtime.settings.config import Config, load
from tests.support.cold_runs import TENANT, count_events_in_stream, open_cold_store, run_log
from tests.support.event_logs import Log
from tests.support.s3_server import BUCKET, ENV, s3_server
from tests.support.workdir import Workdir


def config(home: Path, **cold: object) -> Config:
    return load({"data_dir": str(home), "tenant": TENANT}, arguments={"cold": cold}, env={})


async def test_the_oldest_ended_runs_are_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_run = Log("open")
    open_run.started()
    async with open_cold_store(tmp_path, run_log("a"), open_run, run_log("b"), run_log("c")) as (connection, _folder):
        log = connection.log
        [dry] = await round_of(log, config(tmp_path, keep=2), dry=True)
        assert dry.runs == ["a", "b"]
        assert await round_of(log, config(tmp_path, after="1h", tenant="other"), dry=True) != []
        assert (await round_of(log, config(tmp_path, after="1h", definition="none"), dry=False))[0].runs == []
        assert (await round_of(log, config(tmp_path, keep=2), dry=False))[0].runs == ["a", "b"]
        assert [await count_events_in_stream(log, run) for run in "ab"] == [1, 1]
        assert (await round_of(log, config(tmp_path, keep=2), dry=False))[0].runs == []
        later = log.now() + dt.timedelta(hours=2)
        monkeypatch.setattr(log, "now", lambda: later)
        assert (await round_of(log, config(tmp_path, after="1h"), dry=False))[0].runs == ["c"]


async def test_the_oldest_are_selected_while_the_stream_is_too_large(tmp_path: Path) -> None:
    async with open_cold_store(tmp_path, *(run_log(name) for name in "abcd")) as (connection, _folder):
        log = connection.log
        size = (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]["bytes"]
        assert (await round_of(log, config(tmp_path, keep_bytes=size), dry=True))[0].runs == []
        [dry] = await round_of(log, config(tmp_path, keep_bytes=size * 6 // 10), dry=True)
        assert dry.runs == ["a", "b"]
        assert (await round_of(log, config(tmp_path, keep_bytes=0), dry=False))[0].runs == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("cold", "expected"),
    [
        ({}, "after, keep or keep_bytes is required"),
        ({"keep": 1, "to": "s3://bucket", "folder": "/cold"}, "folder and to exclude each other"),
        ({"keep": 1, "endpoint": "http://localhost:9000"}, "set `to` as well"),
        ({"keep": 1, "to": "bucket/prefix"}, "to"),
        ({"after": "1d", "folder": "here"}, "folder must be an absolute path"),
        ({"after": "1d", "every": "0s"}, "every"),
    ],
)
def test_an_invalid_cold_storage_rule_is_refused(tmp_path: Path, cold: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigInvalid, match=expected):
        config(tmp_path, **cold)


def test_runs_in_an_object_store_are_read_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    workdir = Workdir(tmp_path)
    with s3_server() as url:
        (tmp_path / "callboard.toml").write_text(f'[cold]\nkeep = 0\nto = "s3://{BUCKET}/runs"\nendpoint = "{url}"\n')
        assert workdir.run("run", *workdir.write_one({"text": "done"}), "--run-id", "r1").exit_code == 0
        shown = workdir.run("trace", "r1").output
        assert workdir.run_json("cool") == [{"tenant": "default", "runs": ["r1"]}]
        assert workdir.run("trace", "r1").output == shown
    # The block was read from the store once, and is in the cache now.
    assert workdir.run("trace", "r1").output == shown
    shutil.rmtree(tmp_path / ".callboard" / "cold-cache")
    gone = workdir.run("trace", "r1")
    assert gone.exit_code != 0
    assert "the object store of s3://segments/runs failed" in gone.output


def test_runs_are_moved_and_restored_at_the_command_line(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    args = workdir.write_one({"text": "done"})
    assert workdir.run("run", *args, "--run-id", "r1").exit_code == 0
    shown = workdir.run("trace", "r1").output
    assert workdir.run("cool").exit_code == 2
    (tmp_path / "callboard.toml").write_text("[cold]\nkeep = 0\n")
    assert workdir.run("cool", "--dry-run").output == "1 run of default would be moved to cold storage\n"
    assert workdir.run_json("cool") == [{"tenant": "default", "runs": ["r1"]}]
    assert workdir.run("trace", "r1").output == shown
    assert workdir.run("warm", "r1").output.startswith("restored r1, ")
    assert workdir.run("trace", "r1").output == shown
    assert workdir.run("warm", "r1").exit_code == 1
