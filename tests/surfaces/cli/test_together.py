"""Several commands over one data directory: who joins whom, whose tools are used, and who runs the server on."""

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.nats.server.data_directory import standing_by
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.runtime.client.errors import NoServer
from callboard.runtime.settings.config import load
from callboard.service.operations.reach import reach
from callboard.surfaces.cli import exits
from tests.support.cli_stage import INPUT, Place, next_event, shown_url
from tests.support.flows import call, flow, returned

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
"""Asks somebody, and calls a tool afterwards."""

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


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def log_of(place: Place, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.here("trace", run, "--format", "events").stdout.splitlines()]


@contextmanager
def running(place: Place, run: str, *turns: dict[str, Any], until: str) -> Generator[subprocess.Popen[str]]:
    """`callboard run` of one node as a process, having come to an event."""
    with place.process("run", *place.one(*turns), "--run-id", run, "--stream") as process:
        next_event(process, until)
        yield process


def ended(process: subprocess.Popen[str]) -> str:
    """Wait for a command that is to succeed; return what it said on stderr."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == exits.OK, f"{out}\n{err}"
    return err


def test_a_run_beside_up_is_performed_with_what_lies_beside_it(place: Place) -> None:
    file = place.triage()
    with place.up() as (_process, said):
        done = place.call("run", file, "--input", INPUT, "--script", "flows/script.json", "--run-id", "mine", "--json")
        assert done.returncode == exits.OK, done.stderr
        assert f"Joined the server at {said['url']}" in done.stderr
        results = json.loads(done.stdout)["results"]
        assert results["gather"]["toolCalls"][0]["output"] == {"hits": 7, "worked_in": "flows"}
        assert shown_url(place.folder / ".callboard") == said["url"]


def test_the_worker_of_a_run_says_itself_whether_it_can_perform_it(place: Place) -> None:
    file, *script = place.one({"text": "x"})
    with place.process("up", "--json", env={"CALLBOARD_ALLOW_SCRIPTS": "false"}) as up:
        assert up.stdout is not None
        assert up.stdout.readline()
        assert place.call("start", file, *script).returncode == exits.FAILED
        assert place.call("run", file, *script, "--json").returncode == exits.OK


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_run_goes_on_when_the_first_takes_its_server_along(place: Place, killed: bool) -> None:
    place.write("flows/tools_of_the_test.py", TOOLS)
    gated = place.write("flows/gated.json", GATED)
    with (
        running(place, "first", LONG, until="model.call") as first,
        place.process("run", gated, "--run-id", "second", "--stream") as second,
    ):
        url = shown_url(place.folder / ".callboard")
        next_event(second, "tool.call")
        if killed:
            first.kill()
        else:
            assert place.here("cancel", "first").exit_code == exits.OK
        first.communicate(timeout=60)
        # Behind a verdict the server stands again.
        assert place.call("run", *place.one({"text": "x"}), "--run-id", "third").returncode == exits.OK
        place.write("flows/gate", "")
        err = ended(second)
    assert f"Joined the server at {url}" in err
    assert "this command runs it now" in err
    assert "warning" not in err
    types = [event["type"] for event in log_of(place, "second")]
    # It has lost nothing and made nothing twice.
    assert (types.count("tool.call"), types.count("run.claimed")) == (1, 1)
    assert {row["run"]: row["status"] for row in place.told("runs")} == {
        "first": "running" if killed else "cancelled",
        "second": "completed",
        "third": "completed",
    }


def test_a_run_that_waits_for_somebody_blocks_nobody(place: Place) -> None:
    place.write("flows/tools_of_the_test.py", TOOLS)
    file = place.write("flows/asking.json", ASKING)
    no_linger = {"CALLBOARD_PARK_LINGER_S": "0"}
    with place.process("run", file, "--run-id", "asks", "--stream", env=no_linger) as asks:
        next_event(asks, "run.parked")
        assert place.call("run", *place.one({"text": "x"}), "--json").returncode == exits.OK
        # One that stands for all takes its answer in, and leaves the run where its tools are.
        with place.up() as (_process, said):
            assert said["url"] == shown_url(place.folder / ".callboard")
            assert place.here("answer", "asks", "this one").exit_code == exits.OK
            end = next_event(asks, "run.end")
            assert (end["payload"]["status"], end["payload"]["output"]) == ("completed", "flows")
            ended(asks)
            # The server has come to the one that stands.
            assert place.here("start", *place.one({"text": "x"}), "--run-id", "later").exit_code == exits.OK
            assert place.here("watch", "later").exit_code == exits.OK
            assert shown_url(place.folder / ".callboard") == said["url"]
    claims = {event["payload"]["worker"] for event in log_of(place, "asks") if event["type"] == "run.claimed"}
    assert len(claims) == 1


def test_what_was_handed_to_a_run_that_ends_goes_on_where_another_one_stands(place: Place) -> None:
    with running(place, "first", LONG, until="model.call") as first:
        assert place.here("start", *place.one(LONG), "--run-id", "other").exit_code == exits.OK
        with place.up() as (up, _said):
            assert place.here("cancel", "first").exit_code == exits.OK
            first.communicate(timeout=60)
            assert up.stderr is not None
            assert next(line for line in up.stderr if "this command runs it now" in line)
            with place.process("watch", "other", "--json") as watch:
                claims = [next_event(watch, "run.claimed")["payload"]["worker"] for _ in range(2)]
            assert len(set(claims)) == 2
            assert place.here("cancel", "other").exit_code == exits.OK
            assert place.here("watch", "other").exit_code == exits.CANCELLED
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=60)
            assert up.returncode == exits.OK


def test_two_that_start_at_once_share_one_server(place: Place) -> None:
    args = place.one({"text": "x", "delay_ms": 500})
    with (
        place.process("run", *args, "--run-id", "one", "--json") as one,
        place.process("run", *args, "--run-id", "two", "--json") as two,
        place.process("run", *args, "--run-id", "three", "--json") as three,
    ):
        said = [ended(process) for process in (one, two, three)]
    assert 1 <= sum("Joined the server" in err for err in said) <= 2
    assert {row["run"] for row in place.told("runs", "--status", "completed")} == {"one", "two", "three"}


async def test_a_server_that_changes_hands_is_waited_for(place: Place) -> None:
    """Whoever stands by takes a moment to notice that the server has gone; nobody is told meanwhile that none is."""
    async with EmbeddedServer(place.folder / ".callboard", sync="1s") as server:
        url = server.url
    config = load({"data_dir": place.folder / ".callboard"}, env={})
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
