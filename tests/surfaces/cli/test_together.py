"""Several commands over one data directory: they share a server and take it over; each run uses its own tools."""

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from callboard.bus.nats.server.data_directory import standing_by
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.runtime.client.errors import NoServer
from callboard.runtime.settings.config import load
from callboard.service.operations.reach import reach
from callboard.surfaces.cli import exits
from tests.support.flows import call, flow, returned
from tests.support.workdir import INPUT, Workdir, next_event, shown_url

LONG = {"text": "late", "delay_ms": 600_000}
"""A turn longer than any test waits."""

pytestmark = pytest.mark.usefixtures("own_servers")

HUMAN = {"provider": "mwl:provider.call/callboard/human/v1", "with": {"question": "Which?"}}


def tool(function: str) -> dict[str, Any]:
    return {
        "provider": "mwl:provider.call/callboard/tool/v1",
        "with": {"python": f"tools_of_the_test:{function}", "arguments": {}},
    }


ASKING = flow({"ask": call(HUMAN, "look"), "look": call(tool("where")), "done": returned()})
"""Asks a question, and then calls a tool."""

GATED = flow({"wait": call(tool("gated")), "done": returned()})
"""Calls a tool that waits for a file."""

TOOLS = """\
import time
from pathlib import Path


def where() -> str:
    return Path.cwd().name


def gated() -> str:
    while not Path("gate").exists():
        time.sleep(0.02)
    return where()
"""


@contextmanager
def start_until(workdir: Workdir, run: str, *turns: dict[str, Any], until: str) -> Generator[subprocess.Popen[str]]:
    """Start `callboard run` of one node, and wait for an event type."""
    with workdir.process("run", *workdir.write_one(*turns), "--run-id", run, "--stream") as process:
        next_event(process, until)
        yield process


def wait_for_success(process: subprocess.Popen[str]) -> str:
    """Wait until a command succeeds; return its stderr."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == exits.OK, f"{out}\n{err}"
    return err


def test_a_run_beside_up_uses_the_tools_beside_its_definition(workdir: Workdir) -> None:
    file = workdir.write_triage()
    with workdir.up() as (_process, result):
        done = workdir.call(
            "run", file, "--input", INPUT, "--script", "flows/script.json", "--run-id", "mine", "--json"
        )
        assert done.returncode == exits.OK, done.stderr
        assert f"Joined the server at {result['url']}" in done.stderr
        results = json.loads(done.stdout)["results"]
        assert results["gather"]["toolCalls"][0]["output"] == {"hits": 7, "worked_in": "flows"}
        assert shown_url(workdir.folder / ".callboard") == result["url"]


def test_the_worker_of_a_run_allows_scripts_for_itself(workdir: Workdir) -> None:
    file, *script = workdir.write_one({"text": "x"})
    with workdir.process("up", "--json", env={"CALLBOARD_ALLOW_SCRIPTS": "false"}) as up:
        assert up.stdout is not None
        assert up.stdout.readline()
        assert workdir.call("start", file, *script).returncode == exits.FAILED
        assert workdir.call("run", file, *script, "--json").returncode == exits.OK


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_run_takes_over_the_server_of_the_first(workdir: Workdir, killed: bool) -> None:
    workdir.write("flows/tools_of_the_test.py", TOOLS)
    gated = workdir.write("flows/gated.json", GATED)
    with (
        start_until(workdir, "first", LONG, until="model.call") as first,
        workdir.process("run", gated, "--run-id", "second", "--stream") as second,
    ):
        url = shown_url(workdir.folder / ".callboard")
        next_event(second, "tool.call")
        if killed:
            first.kill()
        else:
            assert workdir.run("cancel", "first").exit_code == exits.OK
        first.communicate(timeout=60)
        # A verdict means that the server runs again.
        assert workdir.call("run", *workdir.write_one({"text": "x"}), "--run-id", "third").returncode == exits.OK
        workdir.write("flows/gate", "")
        err = wait_for_success(second)
    assert f"Joined the server at {url}" in err
    assert "this command runs it now" in err
    assert "warning" not in err
    types = [event["type"] for event in workdir.events("second")]
    # The second run lost nothing and repeated nothing.
    assert (types.count("tool.call"), types.count("run.claimed")) == (1, 1)
    assert {row["run"]: row["status"] for row in workdir.run_json("runs")} == {
        "first": "running" if killed else "cancelled",
        "second": "completed",
        "third": "completed",
    }


def test_a_waiting_run_blocks_no_other_command(workdir: Workdir) -> None:
    workdir.write("flows/tools_of_the_test.py", TOOLS)
    file = workdir.write("flows/asking.json", ASKING)
    no_linger = {"CALLBOARD_PARK_LINGER_S": "0"}
    with workdir.process("run", file, "--run-id", "asks", "--stream", env=no_linger) as asks:
        next_event(asks, "run.parked")
        assert workdir.call("run", *workdir.write_one({"text": "x"}), "--json").returncode == exits.OK
        # `callboard up` accepts the answer, and leaves the run to the worker with its tools.
        with workdir.up() as (_process, result):
            assert result["url"] == shown_url(workdir.folder / ".callboard")
            assert workdir.run("answer", "asks", "this one").exit_code == exits.OK
            end = next_event(asks, "run.end")
            assert (end["payload"]["status"], end["payload"]["output"]) == ("completed", "flows")
            wait_for_success(asks)
            # `callboard up` has taken over the server.
            assert workdir.run("start", *workdir.write_one({"text": "x"}), "--run-id", "later").exit_code == exits.OK
            assert workdir.run("watch", "later").exit_code == exits.OK
            assert shown_url(workdir.folder / ".callboard") == result["url"]
    claims = {event["payload"]["worker"] for event in workdir.events("asks") if event["type"] == "run.claimed"}
    assert len(claims) == 1


def test_another_worker_continues_runs_of_an_ended_command(workdir: Workdir) -> None:
    with start_until(workdir, "first", LONG, until="model.call") as first:
        assert workdir.run("start", *workdir.write_one(LONG), "--run-id", "other").exit_code == exits.OK
        with workdir.up() as (up, _said):
            assert workdir.run("cancel", "first").exit_code == exits.OK
            first.communicate(timeout=60)
            assert up.stderr is not None
            assert next(line for line in up.stderr if "this command runs it now" in line)
            with workdir.process("watch", "other", "--json") as watch:
                claims = [next_event(watch, "run.claimed")["payload"]["worker"] for _ in range(2)]
            assert len(set(claims)) == 2
            assert workdir.run("cancel", "other").exit_code == exits.OK
            assert workdir.run("watch", "other").exit_code == exits.CANCELLED
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=60)
            assert up.returncode == exits.OK


def test_commands_that_start_together_share_one_server(workdir: Workdir) -> None:
    args = workdir.write_one({"text": "x", "delay_ms": 500})
    with (
        workdir.process("run", *args, "--run-id", "one", "--json") as one,
        workdir.process("run", *args, "--run-id", "two", "--json") as two,
        workdir.process("run", *args, "--run-id", "three", "--json") as three,
    ):
        result = [wait_for_success(process) for process in (one, two, three)]
    assert 1 <= sum("Joined the server" in err for err in result) <= 2
    assert {row["run"] for row in workdir.run_json("runs", "--status", "completed")} == {"one", "two", "three"}


async def test_a_command_waits_for_a_server_that_is_taken_over(workdir: Workdir) -> None:
    """A command on standby needs a moment to notice that the server has ended; others wait for it."""
    async with EmbeddedServer(workdir.folder / ".callboard", sync="1s") as server:
        url = server.url
    config = load({"data_dir": workdir.folder / ".callboard"}, env={})
    found, seen = list[str | None](), anyio.Event()

    async def look() -> None:
        async with reach(config, reads=False, name="test") as connection:
            found.append(connection.config.nats_url)
            seen.set()

    with standing_by(config.data_dir):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await anyio.wait_all_tasks_blocked()
            async with EmbeddedServer(config.data_dir, sync="1s"):
                await seen.wait()
    assert found == [url]
    with pytest.raises(NoServer):
        await look()
