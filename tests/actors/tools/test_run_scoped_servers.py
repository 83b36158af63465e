"""An MCP server of a run serves all its nodes, from the first that opens it until the run ends in this worker."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from callboard.actors.actor import Supervisor
from callboard.actors.tools.run_scoped_servers import RunScopedServers
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.actors.tools.toolbox import NodeToolbox, open_toolbox
from callboard.bus import events as ev
from callboard.bus.effects import McpTools, ToolLimits
from callboard.bus.log.port import Entry
from callboard.testing.crashes import CrashingLog, CrashPoint
from tests.support.failures import opening_failure, tool_failure
from tests.support.flow_providers import ours, played
from tests.support.flows import SCHEMA, FlowTheatre
from tests.support.forks import python
from tests.support.mcp_sessions import Forgetful, forgetful_server
from tests.support.patience import until
from tests.support.places import TESTS

SERVER = python(str(TESTS / "fixtures" / "tools" / "mcp_server.py"))
DESK = McpTools("desk", SERVER, scope="run")
ENVIRONMENT = ToolEnvironment(env=dict(os.environ))
CONTEXT = ToolCallContext("r1", "a", "key-1")


@asynccontextmanager
async def run_servers() -> AsyncGenerator[RunScopedServers]:
    """The servers of a run, which end with the block."""
    async with Supervisor(lambda _name, error: pytest.fail(str(error))) as tasks:
        yield RunScopedServers(partial(tasks.spawn, "tools of the run"))
        tasks.stop_all()


async def pid(toolbox: NodeToolbox) -> int:
    output: Any = await toolbox.call("pid", {}, CONTEXT)
    return int(output["result"])


async def wait_until_gone(process: int) -> None:
    await until(lambda: not Path(f"/proc/{process}").exists())


async def test_all_nodes_of_a_run_share_a_server_that_ends_with_the_run() -> None:
    slower = msgspec.structs.replace(DESK, timeout_s=120.0, limits={"pid": ToolLimits(timeout="5m")})
    async with run_servers() as servers:
        pids: list[int] = []
        for source in (DESK, DESK, slower):
            async with open_toolbox([source], ENVIRONMENT, servers) as toolbox:
                assert toolbox.specs[0].server == "desk"
                pids.append(await pid(toolbox))
        assert len(set(pids)) == 1
        async with open_toolbox([msgspec.structs.replace(DESK, scope="node")], ENVIRONMENT, servers) as toolbox:
            assert await pid(toolbox) not in pids
        os.kill(pids[0], 0)
    await wait_until_gone(pids[0])


async def test_nodes_that_open_a_server_at_the_same_time_share_it() -> None:
    pids: list[int] = []

    async def node() -> None:
        async with open_toolbox([DESK], ENVIRONMENT, servers) as toolbox:
            pids.append(await pid(toolbox))

    async with run_servers() as servers, anyio.create_task_group() as nodes:
        for _ in range(3):
            nodes.start_soon(node)
    assert len(pids) == 3
    assert len(set(pids)) == 1


async def test_a_server_that_died_is_opened_again_by_the_next_call() -> None:
    async with run_servers() as servers, open_toolbox([DESK], ENVIRONMENT, servers) as toolbox:
        first = await pid(toolbox)
        failure = await tool_failure(toolbox.call("die", {}, CONTEXT))
        assert failure.code == "tool.crashed"
        assert "the next call of its tools starts a new session" in failure.message
        await wait_until_gone(first)
        assert await pid(toolbox) != first


def error_body(code: int, message: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}).encode()


UNKNOWN = [
    (404, b"no such session"),
    (404, error_body(-32001, "Session not found")),
    (400, error_body(-32000, "Bad Request: No valid session ID")),
    (400, error_body(-32000, "Bad Request: Server not initialized")),
    (400, b"Invalid or missing session ID"),
]
"""How servers refuse an unknown session: as the specification says, and as some servers do instead."""


@asynccontextmanager
async def forgetful_toolbox(scope: Any, **attributes: Any) -> AsyncGenerator[tuple[type[Forgetful], NodeToolbox]]:
    with forgetful_server(**attributes) as (server, url):
        source = McpTools("desk", url=url, scope=scope)
        async with run_servers() as servers, open_toolbox([source], ENVIRONMENT, servers) as toolbox:
            yield server, toolbox


@pytest.mark.parametrize("scope", ["node", "run"])
@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_a_call_in_a_forgotten_session_is_made_again_in_a_new_one(scope: Any, unknown: tuple[int, bytes]) -> None:
    async with forgetful_toolbox(scope, unknown=unknown) as (server, toolbox):
        assert await toolbox.call("session", {}, CONTEXT) == "1"
        server.forgotten = True
        sessions: list[Any] = []

        async def ask() -> None:
            sessions.append(await toolbox.call("session", {}, CONTEXT))

        async with anyio.create_task_group() as calls:
            calls.start_soon(ask)
            calls.start_soon(ask)
    assert sessions == ["2", "2"]
    assert (server.called, server.begun) == (3, 2)


@pytest.mark.parametrize("scope", ["node", "run"])
async def test_a_call_that_also_a_new_session_forgets_fails_as_crashed(scope: Any) -> None:
    async with forgetful_toolbox(scope) as (server, toolbox):
        failure = await tool_failure(toolbox.call("forget", {}, CONTEXT))
        assert failure.code == "tool.crashed"
        assert "no longer knows the session" in failure.message
        assert await toolbox.call("session", {}, CONTEXT) == "3"
    assert (server.called, server.begun) == (1, 3)


@pytest.mark.parametrize("scope", ["node", "run"])
@pytest.mark.parametrize("method", ["notifications/initialized", "tools/list"])
async def test_a_session_that_is_forgotten_while_it_is_opened_is_opened_again(scope: Any, method: str) -> None:
    async with forgetful_toolbox(scope, forgets=method) as (_server, toolbox):
        assert await toolbox.call("session", {}, CONTEXT) == "2"


@pytest.mark.parametrize(
    "unknown",
    [
        (404, error_body(-32601, "no such method in this session")),
        (400, error_body(-32602, "session is required")),
        (400, b"the request is malformed"),
    ],
)
async def test_other_refusals_do_not_end_the_session(unknown: tuple[int, bytes]) -> None:
    async with forgetful_toolbox("node", unknown=unknown) as (server, toolbox):
        failure = await tool_failure(toolbox.call("forget", {}, CONTEXT))
    assert (failure.code, server.begun) == ("tool.failed", 1)


async def test_a_retry_reaches_a_new_server_after_the_first_died() -> None:
    tries: list[int] = []
    source = msgspec.structs.replace(DESK, limits={"pid": ToolLimits(retries=1)})
    async with run_servers() as servers, open_toolbox([source], ENVIRONMENT, servers) as toolbox:
        first = await pid(toolbox)
        os.kill(first, 9)
        await wait_until_gone(first)
        context = ToolCallContext("r1", "a", "key-1", on_try=tries.append)
        output: Any = await toolbox.call("pid", {}, context)
    assert output["result"] != first
    assert tries[-1] <= 2


async def test_the_next_node_tries_again_to_open_a_server_that_failed_to_open() -> None:
    missing = McpTools("desk", ["no-such-program-anywhere"], scope="run")
    async with run_servers() as servers:
        for _ in range(2):
            failure = await opening_failure(open_toolbox([missing], ENVIRONMENT, servers))
            assert failure.code == "tool.unavailable"


def flow_calling_twice(scope: str, between: dict[str, Any] | None = None) -> dict[str, Any]:
    """A flow that asks a server twice for its process id, with a step in between."""
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


async def find_pids(harness: FlowTheatre, flow: dict[str, Any]) -> list[int]:
    """Run a flow; return the processes that answered in it, after all of them have ended."""
    _value, events = await played(harness, flow)
    results = [ev.payload_of(event) for event in events if event.type == ev.ToolResult.type]
    pids = [int(result.output["result"]) for result in results if isinstance(result, ev.ToolResult)]
    for process in pids:
        await wait_until_gone(process)
    return pids


async def test_the_steps_of_a_run_share_a_server_of_scope_run() -> None:
    first, second = await find_pids(FlowTheatre(script={}), flow_calling_twice("run"))
    assert first == second


async def test_each_step_has_its_own_server_of_scope_node() -> None:
    first, second = await find_pids(FlowTheatre(script={}), flow_calling_twice("node"))
    assert first != second


async def test_a_parked_run_has_a_new_server_when_it_continues() -> None:
    first, second = await find_pids(
        FlowTheatre(script={}), flow_calling_twice("run", {"action": "Sleep", "for": "PT1H"})
    )
    assert first != second


async def test_a_run_has_a_new_server_after_a_takeover() -> None:
    log = CrashingLog()
    crashed = False

    def crash(entry: Entry) -> CrashPoint:
        nonlocal crashed
        if crashed or entry.type != ev.ToolResult.type:
            return None
        crashed = True
        return "after"

    log.crash = crash
    first, second = await find_pids(FlowTheatre(log, script={}), flow_calling_twice("run"))
    assert crashed
    assert first != second
