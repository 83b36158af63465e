"""Sources of a run: one MCP server for all its nodes, from the first that asks until the run is done here."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from callboard.actors.actor import Supervisor
from callboard.actors.tools.run_scoped_servers import Standing
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.actors.tools.toolbox import Toolbox, open_toolbox
from callboard.bus import events as ev
from callboard.bus.effects import McpTools, ToolLimits
from callboard.bus.log.port import Entry
from callboard.testing.crashes import CrashingLog, CrashPoint
from tests.support.flow_providers import ours, played
from tests.support.flows import SCHEMA, FlowTheatre
from tests.support.forks import python
from tests.support.http_server import http_server
from tests.support.mcp_sessions import Forgetful
from tests.support.places import TESTS

SERVER = python(str(TESTS / "fixtures" / "tools" / "mcp_server.py"))
DESK = McpTools("desk", SERVER, scope="run")
ENVIRONMENT = ToolEnvironment(env=dict(os.environ))
PATIENCE_S = 60.0


@asynccontextmanager
async def run_here() -> AsyncGenerator[Standing]:
    """What a run has here, which ends with the block."""
    async with Supervisor(lambda _name, error: pytest.fail(str(error))) as tasks:
        yield Standing(partial(tasks.spawn, "tools of the run"))
        tasks.stop_all()


async def pid(toolbox: Toolbox) -> int:
    output: Any = await toolbox.call("pid", {}, ToolCallContext("r1", "a", "key-1"))
    return int(output["result"])


async def gone(process: int) -> None:
    """Wait until a process is no more."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return
            await anyio.sleep(0.01)


async def test_all_nodes_of_a_run_have_one_server_and_it_ends_with_the_run() -> None:
    slower = msgspec.structs.replace(DESK, timeout_s=120.0, limits={"pid": ToolLimits(timeout="5m")})
    async with run_here() as standing:
        found: list[int] = []
        for source in (DESK, DESK, slower):
            async with open_toolbox([source], ENVIRONMENT, standing) as toolbox:
                assert toolbox.specs[0].server == "desk"
                found.append(await pid(toolbox))
        assert len(set(found)) == 1
        async with open_toolbox([msgspec.structs.replace(DESK, scope="node")], ENVIRONMENT, standing) as toolbox:
            assert await pid(toolbox) not in found
        os.kill(found[0], 0)
    await gone(found[0])


async def test_nodes_that_ask_at_the_same_time_get_the_same_server() -> None:
    found: list[int] = []

    async def node() -> None:
        async with open_toolbox([DESK], ENVIRONMENT, standing) as toolbox:
            found.append(await pid(toolbox))

    async with run_here() as standing, anyio.create_task_group() as nodes:
        for _ in range(3):
            nodes.start_soon(node)
    assert len(found) == 3
    assert len(set(found)) == 1


async def test_a_server_that_died_is_opened_again_by_the_next_call() -> None:
    async with run_here() as standing, open_toolbox([DESK], ENVIRONMENT, standing) as toolbox:
        first = await pid(toolbox)
        with pytest.raises(ToolFailed) as caught:
            await toolbox.call("die", {}, ToolCallContext("r1", "a", "key-1"))
        assert caught.value.failure.code == "tool.crashed"
        assert "the next call of its tools starts a new session" in caught.value.failure.message
        await gone(first)
        assert await pid(toolbox) != first


UNKNOWN = [
    (404, b"no such session"),
    (404, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}'),
    (400, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: No valid session ID"}}'),
    (
        400,
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: Server not initialized"}}',
    ),
    (400, b"Invalid or missing session ID"),
]
"""How servers refuse a session that they do not know: as the specification says, and as others do."""


@pytest.mark.parametrize("scope", ["node", "run"])
@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_a_call_in_a_forgotten_session_is_made_again_in_a_new_one(scope: Any, unknown: tuple[int, bytes]) -> None:
    class Server(Forgetful):
        pass

    Server.unknown = unknown
    with http_server(Server) as url:
        source = McpTools("desk", url=url, scope=scope)
        async with run_here() as standing, open_toolbox([source], ENVIRONMENT, standing) as toolbox:
            assert await toolbox.call("session", {}, ToolCallContext("r1", "a", "key-1")) == "1"
            Server.forgotten = True
            found: list[Any] = []

            async def ask() -> None:
                found.append(await toolbox.call("session", {}, ToolCallContext("r1", "a", "key-2")))

            async with anyio.create_task_group() as calls:
                calls.start_soon(ask)
                calls.start_soon(ask)
            assert found == ["2", "2"]
    assert (Server.called, Server.begun) == (3, 2)


@pytest.mark.parametrize("scope", ["node", "run"])
async def test_a_call_that_no_session_takes_fails_and_the_next_call_has_a_new_session(scope: Any) -> None:
    class Server(Forgetful):
        pass

    with http_server(Server) as url:
        source = McpTools("desk", url=url, scope=scope)
        async with run_here() as standing, open_toolbox([source], ENVIRONMENT, standing) as toolbox:
            with pytest.raises(ToolFailed) as caught:
                await toolbox.call("forget", {}, ToolCallContext("r1", "a", "key-2"))
            assert caught.value.failure.code == "tool.crashed"
            assert "no longer knows the session" in caught.value.failure.message
            assert await toolbox.call("session", {}, ToolCallContext("r1", "a", "key-3")) == "3"
    assert (Server.called, Server.begun) == (1, 3)


@pytest.mark.parametrize("scope", ["node", "run"])
@pytest.mark.parametrize("method", ["notifications/initialized", "tools/list"])
async def test_a_session_that_is_forgotten_while_it_is_opened_is_opened_again(scope: Any, method: str) -> None:
    class Server(Forgetful):
        pass

    Server.forgets = method
    with http_server(Server) as url:
        source = McpTools("desk", url=url, scope=scope)
        async with run_here() as standing, open_toolbox([source], ENVIRONMENT, standing) as toolbox:
            assert await toolbox.call("session", {}, ToolCallContext("r1", "a", "key-1")) == "2"


@pytest.mark.parametrize(
    "unknown",
    [
        (
            404,
            b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "no such method in this session"}}',
        ),
        (400, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "session is required"}}'),
        (400, b"the request is malformed"),
    ],
)
async def test_other_refusals_do_not_end_the_session(unknown: tuple[int, bytes]) -> None:
    class Server(Forgetful):
        pass

    Server.unknown = unknown
    with http_server(Server) as url:
        async with open_toolbox([McpTools("desk", url=url)], ENVIRONMENT) as toolbox:
            with pytest.raises(ToolFailed) as caught:
                await toolbox.call("forget", {}, ToolCallContext("r1", "a", "key-1"))
    assert (caught.value.failure.code, Server.begun) == ("tool.failed", 1)


async def test_with_tries_a_death_in_between_is_not_noticed() -> None:
    tries: list[int] = []
    source = msgspec.structs.replace(DESK, limits={"pid": ToolLimits(retries=1)})
    async with run_here() as standing, open_toolbox([source], ENVIRONMENT, standing) as toolbox:
        first = await pid(toolbox)
        os.kill(first, 9)
        await gone(first)
        context = ToolCallContext("r1", "a", "key-1", on_try=tries.append)
        output: Any = await toolbox.call("pid", {}, context)
    assert output["result"] != first
    assert tries[-1] <= 2


async def test_a_server_that_cannot_be_opened_is_asked_for_again_by_the_next_node() -> None:
    missing = McpTools("desk", ["no-such-program-anywhere"], scope="run")
    async with run_here() as standing:
        for _ in range(2):
            with capture_logs(), pytest.raises(ToolFailed) as caught:
                async with open_toolbox([missing], ENVIRONMENT, standing):
                    pytest.fail("opened")
            assert caught.value.failure.code == "tool.unavailable"


# -- in runs ----------------------------------------------------------------------------------------------------------


def asking(scope: str, between: dict[str, Any] | None = None) -> dict[str, Any]:
    """A flow that asks a server twice for its process, with a step in between."""
    source = {"type": "mcp", "name": "desk", "command": SERVER, "scope": scope}
    call = {"provider": ours("tool"), "with": {"source": source, "tool": "pid", "arguments": {}}}
    return {
        "$schema": SCHEMA,
        "entrypoint": "first",
        "steps": {
            "first": {"action": "Call", "call": call, "next": "between"},
            "between": {**(between or {"action": "Pass"}), "next": "second"},
            "second": {"action": "Call", "call": call, "next": "done"},
            "done": {"action": "Return"},
        },
    }


async def pids(harness: FlowTheatre, flow: dict[str, Any]) -> list[int]:
    """Run a flow; return the processes that answered in it, all of which are gone."""
    _value, events = await played(harness, flow)
    results = [ev.payload_of(event) for event in events if event.type == ev.ToolResult.type]
    found = [int(result.output["result"]) for result in results if isinstance(result, ev.ToolResult)]
    for process in found:
        await gone(process)
    return found


async def test_a_run_keeps_its_server_from_step_to_step() -> None:
    first, second = await pids(FlowTheatre(script={}), asking("run"))
    assert first == second


async def test_a_server_of_a_step_is_another_one_for_the_next() -> None:
    first, second = await pids(FlowTheatre(script={}), asking("node"))
    assert first != second


async def test_a_run_that_was_parked_has_a_new_server() -> None:
    first, second = await pids(FlowTheatre(script={}), asking("run", {"action": "Sleep", "for": "PT1H"}))
    assert first != second


async def test_a_run_that_goes_on_elsewhere_has_a_new_server() -> None:
    log = CrashingLog()
    crashed = False

    def crash(entry: Entry) -> CrashPoint:
        nonlocal crashed
        if crashed or entry.type != ev.ToolResult.type:
            return None
        crashed = True
        return "after"

    log.crash = crash
    first, second = await pids(FlowTheatre(log, script={}), asking("run"))
    assert crashed
    assert first != second
