"""A deployment with a full store: runs wait, starts and commands are refused at once, and purging makes room."""

import json
from pathlib import Path

import anyio
import msgspec
import pytest
from click.testing import CliRunner

from callboard.bus import events as ev
from callboard.bus.commands import REPLY_HEADER
from callboard.bus.errors import StoreFull
from callboard.bus.nats.cooling import cool_runs
from callboard.bus.nats.purge import PurgeMark
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import UnknownRun
from callboard.service.operations.removal import purge_run
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.main import cli
from tests.support.full_store import (
    PATIENCE_S,
    SOURCE,
    fill,
    make_room,
    open_deployment,
    start,
    start_with_nats_tool,
)
from tests.support.full_store import small_store as small_store  # fixture

pytestmark = pytest.mark.usefixtures("own_servers")

STARTS = 200


async def test_runs_wait_and_continue_when_there_is_room(tmp_path: Path) -> None:
    async with open_deployment(tmp_path) as deployment:
        assert (await deployment.client.start(start_with_nats_tool("waiting"))).status == "accepted"
        with anyio.fail_after(PATIENCE_S):
            await deployment.has_request.wait()
        await fill(deployment.connection.log)
        # Its tool answers now, and the answer cannot be recorded.
        await deployment.tool_requests[0].respond(b'{"output": 42}')
        # A start is not stored, and its sender gets an error at once.
        with pytest.raises(StoreFull) as told:
            await deployment.client.start(start("refused"))
        assert told.value.code == "store.full"
        assert told.value.message.startswith("the start is not stored; the store is full: insufficient resources")
        for verb, body in (
            ("start", start("refused")),
            ("definition", {"source": SOURCE, "name": "n"}),
            ("tell", {"run_id": "waiting", "verb": "cancel"}),
        ):
            answer = await deployment.connection.nc.request(
                f"cb.api.acme.{verb}", json.dumps(body).encode(), timeout=60
            )
            error = json.loads(answer.data)["error"]
            assert (error["code"], answer.header and answer.header["Nats-Service-Error-Code"]) == ("store.full", "507")
            assert error["remedy"]
        assert (await deployment.client.events("waiting"))[-1].type == ev.ToolCall.type
        await make_room(deployment.connection.log)
        assert await deployment.status("waiting") == "completed"
        assert len(deployment.tool_requests) == 1, "a full disk is no reason to carry out anything again"
        assert (await deployment.client.start(start("refused"))).status == "accepted"
        assert await deployment.status("refused") == "completed"
        assert [said["event"] for said in deployment.store_logs] == [
            "the store accepts no messages",
            "the store accepts messages again",
        ]
        assert deployment.store_logs[0]["code"] == "store.full"


async def test_a_full_store_can_be_emptied_by_purging(tmp_path: Path) -> None:
    """The remedy that the error names needs room for the marks of the purged runs."""
    runs = ("one", "two", "three")
    async with open_deployment(tmp_path) as deployment:
        for run in runs:
            await deployment.client.start(start(run))
            assert await deployment.status(run) == "completed"
        await fill(deployment.connection.log)
        with pytest.raises(StoreFull):
            await deployment.client.start(start("four"))
        for run in runs:
            assert await purge_run(deployment.client, run, PurgeMark(by="ada")) > 0
            with pytest.raises(UnknownRun):
                await deployment.client.events(run)
        assert (await deployment.client.start(start("four"))).status == "accepted"
        assert await deployment.status("four") == "completed"
        again = await deployment.client.start(start("one"))
        assert [problem.code for problem in again.problems] == ["run.purged"]


async def test_a_full_store_can_be_emptied_by_moving_runs_to_cold_storage(tmp_path: Path) -> None:
    async with open_deployment(tmp_path) as deployment:
        for run in ("one", "two", "three"):
            await deployment.client.start(start(run))
            assert await deployment.status(run) == "completed"
        log = deployment.connection.log
        assert log.cold.store is not None
        await fill(log)
        with pytest.raises(StoreFull):
            await deployment.client.start(start("four"))
        refs = [deployment.client.ref(run) for run in ("one", "two", "three")]
        assert await cool_runs(log, log.cold.store, refs) == refs
        assert (await deployment.client.start(start("four"))).status == "accepted"
        assert await deployment.status("four") == "completed"


async def test_each_of_many_starts_is_admitted_or_refused_for_lack_of_room(tmp_path: Path) -> None:
    """Starts that were stored without room for the following events are refused, and run later."""
    told: dict[str, StoreFull] = {}
    admitted: list[str] = []

    async with open_deployment(tmp_path) as deployment:
        await fill(deployment.connection.log, leaving=300_000)

        async def one(run: str) -> None:
            try:
                verdict = await deployment.client.start(start(run, input={"x": "x" * 5_000}))
            except StoreFull as full:
                told[run] = full
            else:
                assert verdict.status == "accepted"
                admitted.append(run)

        await one("first")
        async with anyio.create_task_group() as tasks:
            for i in range(STARTS):
                tasks.start_soon(one, f"r{i}")
        assert {full.code for full in told.values()} == {"store.full"}
        waits = [run for run, full in told.items() if full.waits]
        assert "first" in admitted
        assert waits
        assert len(waits) + len(admitted) < STARTS, "the others were not even stored"
        assert f"the start of run {waits[0]} is stored and waits" in told[waits[0]].message
        await make_room(deployment.connection.log)
        for run in [*waits, *admitted]:
            assert await deployment.status(run) == "completed"


async def test_a_plain_nats_client_gets_the_waiting_notice_and_then_the_verdict(tmp_path: Path) -> None:
    async with open_deployment(tmp_path) as deployment:
        log = deployment.connection.log
        verdicts = await log.nc.subscribe("my.verdicts")
        message = json.dumps(start("mine", input={"x": "x" * 30_000})).encode()
        # It goes beyond the end, so that nothing can follow from it.
        await fill(log, leaving=len(message) - 2_000)
        await log.nc.jetstream().publish("cb.start.acme", message, headers={REPLY_HEADER: "my.verdicts"})
        heard: list[Verdict] = []
        while not heard or heard[-1].status == "waiting":
            verdict = msgspec.json.decode((await verdicts.next_msg(timeout=PATIENCE_S)).data, type=Verdict)
            if not heard:
                assert (verdict.status, verdict.run_id) == ("waiting", "mine")
                assert [problem.code for problem in verdict.problems] == ["store.full"]
                await make_room(log)
            heard.append(verdict)
        assert heard[-1].status == "accepted"
        assert await deployment.status("mine") == "completed"


async def test_a_command_to_a_full_store_is_refused_at_once(tmp_path: Path) -> None:
    async with open_deployment(tmp_path) as deployment:
        await fill(deployment.connection.log)
        assert deployment.connection.server is not None
        (tmp_path / "one.json").write_text(SOURCE)
        at = ["--nats", deployment.connection.server.url, "--tenant", "acme", "--json"]
        for command in (["start", *at, str(tmp_path / "one.json"), "--model", "anthropic"], ["cancel", *at, "r1"]):
            with anyio.fail_after(PATIENCE_S):
                done = await anyio.to_thread.run_sync(lambda words=command: CliRunner().invoke(cli, words))
            assert done.exit_code == exits.UNUSABLE, done.output
            assert json.loads(done.stdout)["error"]["code"] == "store.full"
        await make_room(deployment.connection.log)
