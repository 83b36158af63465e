"""`callboard up`, and the commands that need a server: start, watch, and others; and their errors without one."""

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from callboard.bus.nats.credentials import without_secrets
from callboard.bus.nats.server.data_directory import running_url
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.runtime.settings.config import load
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.process import worker_environment
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import program
from callboard.surfaces.cli.worker import commands_elsewhere
from tests.support.places import ROOT
from tests.support.workdir import Workdir, next_event, read_json, shown_url

LONG = {"text": "late", "delay_ms": 60_000}
"""A turn longer than any test waits."""


# -- start and watch --------------------------------------------------------------------------------------------------


def test_a_run_is_started_and_watched_to_its_end(running: Workdir) -> None:
    run = running.start_run()
    done = running.run("watch", run)
    assert done.exit_code == exits.OK
    assert done.stdout.splitlines()[-1].endswith("■ completed")
    assert running.run("start", "missing.yaml").exit_code == exits.USAGE


def test_starting_twice_with_one_id_is_one_run(running: Workdir) -> None:
    args = [*running.write_one({"text": "x"}), "--run-id", "mine"]
    assert running.run("start", *args).stdout == "mine\n"
    assert running.run_json("start", *args)["duplicate"] is True
    assert running.run("watch", "mine").exit_code == exits.OK
    assert [row["run"] for row in running.run_json("runs")].count("mine") == 1


def test_watching_continues_after_a_sequence(running: Workdir) -> None:
    run = running.start_run()
    assert running.run("watch", run).exit_code == exits.OK
    events = [json.loads(line) for line in running.run("watch", run, "--json").stdout.splitlines()]
    half = events[len(events) // 2]["sequence"]
    rest = running.run("watch", run, "--json", "--after", str(half)).stdout.splitlines()
    assert [json.loads(line)["n"] for line in rest] == [event["n"] for event in events if event["sequence"] > half]
    assert running.run("watch", run, "--after", str(events[-1]["sequence"])).stdout == ""
    exits_only = running.run("watch", run, "--json", "--type", "node.exit").stdout.splitlines()
    assert [json.loads(line)["path"] for line in exits_only] == ["gather", "investigate", "note"]


def test_watching_ends_at_an_event_type(running: Workdir) -> None:
    run = running.start_run()
    lines = running.run("watch", run, "--json", "--until", "node.exit").stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines].count("node.exit") == 1
    assert json.loads(lines[-1])["type"] == "node.exit"
    first = json.loads(lines[0])["sequence"] - 1
    only = running.run(
        "watch", "--json", "--type", "node.enter", "--until", "run.end", "--definition", "triage", "--after", str(first)
    )
    assert only.exit_code == exits.OK
    assert {json.loads(line)["type"] for line in only.stdout.splitlines()} == {"node.enter"}
    assert running.run("watch", run, "--until", "run.end").exit_code == exits.OK
    # The end of a run without the event ends the watching with another exit code.
    without = running.run("watch", run, "--until", "human.asked")
    assert (without.exit_code, without.stderr) == (exits.FAILED, f"{run} ended without human.asked.\n")
    for wrong in ("a b", "node.nonsense"):
        refused = running.run("watch", run, "--until", wrong)
        assert (refused.exit_code, f"unknown event type {wrong!r}" in refused.stderr) == (exits.FAILED, True)


def test_watching_everything_until_ctrl_c(running: Workdir) -> None:
    first = running.start_run()
    after = json.loads(running.run("watch", first, "--json").stdout.splitlines()[0])["sequence"] - 1
    with running.process(
        "watch", "--json", "--type", "run.*", "--definition", "triage", "--after", str(after)
    ) as process:
        assert next_event(process, "run.end")["run"] == first
        second = running.start_run()
        assert next_event(process, "run.end")["run"] == second
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == exits.INTERRUPTED
    assert "Traceback" not in stderr


def test_watching_a_failed_run_has_its_exit_code(running: Workdir) -> None:
    run = running.start_run(*running.write_one({"error": "overloaded"}))
    assert running.run("watch", run).exit_code == exits.FAILED
    shown = running.run_json("show", run)
    assert (shown["status"], shown["error"]["code"]) == ("failed", "workflow.node_failed")
    (row,) = [row for row in running.run_json("runs", "--status", "failed") if row["run"] == run]
    assert row["error"] == "workflow.node_failed"


def test_a_refused_start_lists_its_problems(running: Workdir) -> None:
    done = running.run("start", "flows/triage.yaml", "--model", "nobody:nothing", "--json")
    assert done.exit_code == exits.FAILED
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "start.refused"
    assert {"model.unknown", "INPUT"} <= {problem["code"] for problem in error["problems"]}
    text = running.run("start", "flows/triage.yaml")
    assert text.exit_code == exits.FAILED
    assert "input.service" in text.stderr
    assert text.stdout == ""


def test_an_unknown_run_or_type_cannot_be_watched(running: Workdir) -> None:
    for args, code in ((["nobody"], "run.unknown"), (["--type", "a..b"], "watch.type")):
        assert running.refusal("watch", *args) == (exits.FAILED, code)


@pytest.mark.parametrize("time", range(3))
def test_a_data_directory_that_is_a_file_is_an_error_in_three_lines(workdir: Workdir, time: int) -> None:
    (workdir.folder / "file").write_text("")
    with workdir.process("up", "--data-dir", "file") as process:
        _, stderr = process.communicate()
    assert process.returncode == exits.UNUSABLE, time
    assert stderr.startswith("error store.unusable"), stderr
    assert len(stderr.splitlines()) == 3


# -- servers ----------------------------------------------------------------------------------------------------------


def test_a_second_up_joins_the_server(running: Workdir) -> None:
    with running.up() as (process, result):
        assert result["url"] == shown_url(running.folder / ".callboard")
        assert result["data_dir"] == str(running.folder / ".callboard")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        assert f"Joined the server at {result['url']}" in err
    assert shown_url(running.folder / ".callboard") == result["url"]


def test_the_configuration_shows_how_events_are_appended(running: Workdir, workdir: Workdir) -> None:
    appends = running.run_json("config")["appends"]
    assert appends["server"] == without_secrets(running_url(running.folder / ".callboard") or "")
    assert appends["together"] is (appends["batches"] == "memory")
    assert f"batches are staged in {appends['batches']}" in running.run("config").stdout
    assert workdir.run_json("config")["appends"] is None


def test_a_run_uses_a_named_server(running: Workdir) -> None:
    url = running_url(running.folder / ".callboard")
    assert url is not None
    done = running.call("run", *running.write_one({"text": "x"}), "--nats", url, "--run-id", "named", "--json")
    assert done.returncode == exits.OK, done.stderr
    assert json.loads(done.stdout)["status"] == "completed"
    assert running.run_json("show", "named", "--nats", url)["status"] == "completed"


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_worker_takes_scripts_only_if_it_was_allowed_to(workdir: Workdir, allowed: bool) -> None:
    def start(url: str) -> int:
        with workdir.process("worker", "--json", "--nats", url, *(["--allow-scripts"] if allowed else [])) as worker:
            assert read_json(worker)["url"] == without_secrets(url)
            return workdir.call("start", *workdir.write_one({"text": "x"}), "--nats", url).returncode

    async with EmbeddedServer(workdir.folder / "server", sync="1s") as server:
        assert await to_thread.run_sync(start, server.url) == (exits.OK if allowed else exits.FAILED)


def test_a_further_worker_joins(running: Workdir) -> None:
    with running.process("worker", "--json", "--import-from", "flows") as process:
        assert read_json(process)["url"] == shown_url(running.folder / ".callboard")
        run = running.start_run()
        assert running.run("watch", run).exit_code == exits.OK
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == exits.OK


@pytest.mark.parametrize(
    "args",
    [
        ["start", "one.yaml"],
        ["watch"],
        ["worker"],
        ["cancel", "r"],
        ["show", "r"],
        ["runs"],
        ["rebuild"],
        ["replay", "r"],
        ["diff", "a", "b"],
        ["http", "--listen", "127.0.0.1:0"],
    ],
)
def test_a_command_without_a_server_has_a_remedy(workdir: Workdir, args: list[str]) -> None:
    workdir.write_one({"text": "x"})
    done = workdir.run(*args, "--json")
    assert done.exit_code == exits.UNUSABLE
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "server.none"
    assert "callboard" in error["remedy"]
    text = workdir.run(*args)
    assert text.stdout == ""
    assert text.stderr.startswith("error server.none: ")
    assert not (workdir.folder / ".callboard").exists()


def test_an_unreachable_server_is_an_error(workdir: Workdir, unused_port: int) -> None:
    url = f"nats://me:hush@127.0.0.1:{unused_port}"
    done = workdir.run("runs", "--nats", url, "--json")
    assert done.exit_code == exits.UNUSABLE
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "server.unreachable"
    assert "hush" not in done.output
    assert str(unused_port) in error["where"]


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound and at which no program listens."""
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_sigterm_lets_running_effects_finish(workdir: Workdir) -> None:
    args = workdir.write_one({"text": "in time", "delay_ms": 1500})
    with workdir.up() as (process, _said):
        run = workdir.start_run(*args)
        workdir.run("watch", run, "--until", "model.call")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert json.loads(out) == {"stopped": True, "drained": True}
    assert process.returncode == exits.OK
    events = workdir.events(run)
    assert [event["epoch"] for event in events if event["type"] == "model.result"] == [1]
    with workdir.up():
        assert workdir.run("watch", run).exit_code == exits.OK
    assert [event["type"] for event in workdir.events(run)].count("model.call") == 1


def test_a_drain_ends_and_another_worker_continues_the_run(workdir: Workdir) -> None:
    args = workdir.write_one(LONG)
    with workdir.up("--drain-wait", "0.1") as (process, _said):
        run = workdir.start_run(*args)
        workdir.run("watch", run, "--until", "model.call")
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == exits.OK
    assert workdir.run_json("show", run)["status"] == "running"
    with workdir.up():
        assert workdir.run("cancel", run).exit_code == exits.OK
        assert workdir.run("watch", run).exit_code == exits.CANCELLED


def test_a_second_signal_stops_at_once(workdir: Workdir) -> None:
    args = workdir.write_one(LONG)
    with workdir.up("--drain-wait", "600") as (process, _said):
        run = workdir.start_run(*args)
        workdir.run("watch", run, "--until", "model.call")
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        out, _ = process.communicate()
    assert json.loads(out) == {"stopped": True, "drained": False}
    assert process.returncode == exits.INTERRUPTED


def test_printed_commands_name_the_options_of_the_server() -> None:
    given = {"nats_url": "tls://ada:hush@n1:4222", "nats_ca": "/etc/ca.pem", "tenant": "acme", "prefix": "x"}
    start, _watch, bare = (command for _about, command in commands_elsewhere(load(given, env={}), Settings()))
    assert start.endswith("callboard start --nats tls://USER:PASSWORD@n1:4222 --tenant acme FILE")
    assert bare == "nats --server tls://USER:PASSWORD@n1:4222 --tlsca /etc/ca.pem sub 'x.>'"


def test_the_program_is_named_as_the_shell_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python tools have another PATH and working directory than the person who types a command."""
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    before = program()
    assert before.endswith("/callboard")
    with worker_environment(tmp_path):
        assert program() == before
        assert Path(shlex.split(program(anywhere=True))[0]).is_absolute()


def test_printed_commands_work_from_any_folder(running: Workdir, tmp_path: Path) -> None:
    """Commands that `up` prints, with FILE filled in; a replacement of the tool `nats` prints its arguments."""
    config = load({}, env={}, cwd=running.folder).model_copy(update={"data_dir": running.folder / ".callboard"})
    start, watch, bare = (command for _about, command in commands_elsewhere(config, Settings()))
    elsewhere = Workdir(tmp_path)
    file, *script = elsewhere.write_one({"text": "x"})
    shell = elsewhere.shell(start.replace("FILE", shlex.join([file, *script, "--run-id", "elsewhere"])))
    assert (shell.returncode, shell.stdout) == (0, "elsewhere\n"), shell.stderr
    assert "■ completed" in elsewhere.run_line(f"{watch} elsewhere").stdout
    result = elsewhere.shell(bare.replace("nats ", "printf '%s ' ", 1)).stdout.split()
    assert result == ["--server", running_url(running.folder / ".callboard"), "sub", "cb.>"]


def test_the_commands_of_the_empty_page_work_as_printed(running: Workdir) -> None:
    source = (ROOT / "surfaces" / "page" / "static" / "views" / "examples.js").read_text(encoding="utf-8")
    (block,) = re.findall(r"h\('pre', \{[^}]*\}, '(callboard[^']*)'", source)
    for command in block.split("\\n"):
        done = running.run_line(command)
        assert done.exit_code == 0, done.output
