"""The rule of cold storage: which runs it selects, and the commands that apply it and take it back."""

import datetime as dt
from pathlib import Path

import pytest

from callboard.bus.errors import ConfigInvalid
from callboard.features.cold.office import round_of
from callboard.runtime.settings.config import Config, load
from tests.bus.nats.test_cooling import TENANT, hot, run_log, stage
from tests.support.cli_stage import Place
from tests.support.event_logs import Log


def config(home: Path, **cold: object) -> Config:
    return load({"data_dir": str(home), "tenant": TENANT}, arguments={"cold": cold}, env={})


async def test_the_oldest_ended_runs_are_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_run = Log("open")
    open_run.started()
    async with stage(tmp_path, run_log("a"), open_run, run_log("b"), run_log("c")) as (connection, _folder):
        log = connection.log
        [dry] = await round_of(log, config(tmp_path, keep=2), dry=True)
        assert dry.runs == ["a", "b"]
        assert await round_of(log, config(tmp_path, after="1h", tenant="other"), dry=True) != []
        assert (await round_of(log, config(tmp_path, after="1h", definition="none"), dry=False))[0].runs == []
        assert (await round_of(log, config(tmp_path, keep=2), dry=False))[0].runs == ["a", "b"]
        assert [await hot(log, run) for run in "ab"] == [1, 1]
        assert (await round_of(log, config(tmp_path, keep=2), dry=False))[0].runs == []
        later = log.now() + dt.timedelta(hours=2)
        monkeypatch.setattr(log, "now", lambda: later)
        assert (await round_of(log, config(tmp_path, after="1h"), dry=False))[0].runs == ["c"]


@pytest.mark.parametrize(
    ("cold", "expected"),
    [
        ({}, "after or keep is required"),
        ({"after": "1d", "folder": "here"}, "folder must be an absolute path"),
        ({"after": "1d", "every": "0s"}, "every"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(tmp_path: Path, cold: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigInvalid, match=expected):
        config(tmp_path, **cold)


def test_runs_are_moved_and_restored_at_the_command_line(tmp_path: Path) -> None:
    place = Place(tmp_path)
    args = place.one({"text": "done"})
    assert place.here("run", *args, "--run-id", "r1").exit_code == 0
    shown = place.here("trace", "r1").output
    assert place.here("cool").exit_code == 2
    (tmp_path / "callboard.toml").write_text("[cold]\nkeep = 0\n")
    assert place.here("cool", "--dry-run").output == "1 run of default would be moved to cold storage\n"
    assert place.told("cool") == [{"tenant": "default", "runs": ["r1"]}]
    assert place.here("trace", "r1").output == shown
    assert place.here("warm", "r1").output.startswith("restored r1, ")
    assert place.here("trace", "r1").output == shown
    assert place.here("warm", "r1").exit_code == 1
