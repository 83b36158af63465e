"""MCP servers as tools: a real server over stdio and over streamable HTTP, and programs that are not MCP servers."""

import hashlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from callboard.actors.tools.mcp import McpTransport, open_mcp
from callboard.actors.tools.mcp_connecting import LIST_PAGES_MAX
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.actors.tools.toolbox import open_toolbox
from callboard.bus.effects import Failure, McpTools
from callboard.bus.tracecontext import sent_as, within
from callboard.lib.redaction import Redaction
from tests.support.failures import opening_failure, tool_failure
from tests.support.forks import python
from tests.support.mcp_sessions import forgetful_server
from tests.support.patience import is_gone, until
from tests.support.places import TESTS
from tests.support.ports import free_ports

FIXTURES = TESTS / "fixtures" / "tools"
ENVIRONMENT = ToolEnvironment(env={**os.environ, "DESK_TOKEN": "t0ken"})
CONTEXT = ToolCallContext("r1", "a", "key-1")


def program(name: str, *arguments: str) -> list[str]:
    return python(str(FIXTURES / name), *arguments)


def server(**more: Any) -> McpTools:
    return replace(McpTools(name="desk", command=program("mcp_server.py"), timeout_s=60.0), **more)


def rude_server() -> McpTools:
    return McpTools(name="rude_server", command=program("mcp_rude_server.py"), timeout_s=60.0)


async def call(transport: McpTransport, tool: str, input: Any = None, **context: Any) -> Any:
    return await transport.call(tool, input or {}, replace(CONTEXT, **context))


async def refuse_opening(source: McpTools) -> Failure:
    return await opening_failure(open_mcp(source, ENVIRONMENT))


async def test_a_stdio_server_lists_its_tools_and_answers_calls() -> None:
    lines: list[str] = []
    async with open_mcp(server(), ENVIRONMENT) as transport:
        weather = next(spec for spec in transport.specs if spec.name == "weather")
        assert weather.description == "Say what the weather is."
        assert weather.input_schema["required"] == ["city"]
        assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}
        assert await call(transport, "words", {"first": "a", "second": "b"}) == "a\nb"
        assert await call(transport, "long", on_progress=lines.append) == {"result": "done"}
        assert await call(transport, "key") == {"result": "key-1"}
        assert await call(transport, "caller") == {"result": "callboard"}
        with within(context := sent_as("ab" * 16, "cd" * 8)):
            assert await call(transport, "span") == {"result": context.traceparent}
    assert lines == ["half way", "2 of 2"]


async def test_a_picture_is_stored_outside_the_event_which_has_its_digest() -> None:
    kept: dict[str, bytes] = {}
    digest = hashlib.sha256(b"hi").hexdigest()

    async def keep(data: bytes) -> str:
        kept[digest] = data
        return digest

    async with open_mcp(server(), replace(ENVIRONMENT, keep=keep)) as transport:
        output = await call(transport, "picture")
    picture = {"type": "image", "mimeType": "image/png", "sha256": digest, "bytes": 2}
    assert output == [{"type": "text", "text": "look"}, picture]
    assert kept == {digest: b"hi"}


async def test_an_error_result_fails_the_call_with_its_text() -> None:
    async with open_mcp(server(), ENVIRONMENT) as transport:
        found = await tool_failure(call(transport, "refuse", {"reason": "not on a Sunday"}))
        assert found == Failure("tool.failed", "not on a Sunday")
        assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}


async def test_a_failure_has_the_stderr_of_the_server_without_secrets() -> None:
    environment = replace(ENVIRONMENT, redact=Redaction({"DESK_TOKEN": "t0ken-of-the-desk"}).text)
    async with open_mcp(server(), environment) as transport:
        await call(transport, "weather", {"city": "Rome"})
        found = await tool_failure(call(transport, "refuse", {"reason": "no", "aside": "I saw t0ken-of-the-desk"}))
    assert found.details == {"printed": "I saw [secret:DESK_TOKEN]"}


async def test_a_server_gets_only_the_environment_variables_of_its_source() -> None:
    async with open_mcp(server(env={"TOKEN": "DESK_TOKEN"}), ENVIRONMENT) as transport:
        assert await call(transport, "secret", {"name": "TOKEN"}) == {"result": "t0ken"}
        assert await call(transport, "secret", {"name": "DESK_TOKEN"}) == {"result": "(unset)"}


async def test_a_missing_environment_variable_is_named() -> None:
    found = await refuse_opening(server(env={"TOKEN": "NO_SUCH_VARIABLE"}))
    assert (found.code, found.details) == ("tool.unavailable", {"missing": ["NO_SUCH_VARIABLE"]})


async def test_stderr_of_a_server_goes_to_the_log() -> None:
    with capture_logs() as logs:
        async with open_mcp(server(), ENVIRONMENT):
            await until(lambda: bool(logs))
    line = {"event": "tool.stderr", "line": "the desk is open", "server": "desk", "log_level": "info"}
    assert logs[0] == line


async def test_a_hanging_call_times_out_and_the_session_continues() -> None:
    async with open_mcp(server(), ENVIRONMENT) as transport:
        assert (await tool_failure(call(transport, "hang", timeout_s=0.5))).code == "tool.timeout"
        assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}


async def test_all_calls_fail_as_crashed_when_their_server_dies() -> None:
    failures: list[Failure] = []

    async def fail(tool: str) -> None:
        failures.append(await tool_failure(call(transport, tool)))

    async with open_mcp(server(), ENVIRONMENT) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, "hang")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(fail, "die")
        await fail("pid")
    assert [failure.code for failure in failures] == ["tool.crashed"] * 3
    assert "desk" in failures[0].message
    assert all(failure.details["printed"] == "the desk is on fire" for failure in failures[:2])
    assert failures[2].details == {"server": "desk"}


async def test_concurrent_calls_get_their_own_answers() -> None:
    outputs: list[Any] = []

    async def one(city: str) -> None:
        outputs.append(await call(transport, "weather", {"city": city}))

    async with open_mcp(server(), ENVIRONMENT) as transport, anyio.create_task_group() as tasks:
        for k in range(20):
            tasks.start_soon(one, f"city {k}")
    assert sorted(output["city"] for output in outputs) == sorted(f"city {k}" for k in range(20))


async def test_all_pages_of_a_listing_are_read_and_a_banner_on_stdout_is_ignored() -> None:
    source = McpTools(name="pages", command=program("mcp_paged_server.py", "7"))
    async with open_mcp(source, ENVIRONMENT) as transport:
        assert [spec.name for spec in transport.specs] == [f"tool_{k}" for k in range(7)]
        assert await call(transport, "tool_6", {"q": 1}) == "tool_6 {'q': 1}"


async def test_a_listing_with_too_many_pages_is_refused() -> None:
    pages = str(LIST_PAGES_MAX + 1)
    found = await refuse_opening(McpTools(name="pages", command=program("mcp_paged_server.py", pages)))
    assert (found.code, f"more than {LIST_PAGES_MAX} pages" in found.message) == ("tool.unavailable", True)


@pytest.mark.parametrize(
    ("command", "expected_text"),
    [
        (program("mcp_impostor.py", "exits"), "Connection closed"),
        ([sys.executable, "-c", "import module_that_nobody_has"], "; it printed last: ModuleNotFoundError: No module"),
        (["no-such-program-anywhere"], "No such file or directory"),
        ([], "neither a command nor a url"),
    ],
)
async def test_a_program_that_is_not_an_mcp_server_is_unavailable(command: list[str], expected_text: str) -> None:
    found = await refuse_opening(McpTools(name="odd", command=command, timeout_s=60.0))
    assert found.code == "tool.unavailable"
    assert "MCP server odd" in found.message
    assert expected_text in found.message


@pytest.mark.parametrize(
    ("behaviour", "timeout_s", "expected_text"),
    [("silent", 0.5, "was not ready within 0.5 s"), ("garbage", 5.0, "lines to stdout that are not MCP messages")],
)
async def test_a_program_that_never_answers_is_unavailable(
    behaviour: str, timeout_s: float, expected_text: str
) -> None:
    # The program is not a fork of the shared fork server, whose start might take longer than the timeout.
    command = [sys.executable, "-S", str(FIXTURES / "mcp_impostor.py"), behaviour]
    found = await refuse_opening(McpTools(name="odd", command=command, timeout_s=timeout_s))
    assert (found.code, expected_text in found.message) == ("tool.unavailable", True)


async def test_an_invalid_byte_on_stdout_is_ignored_and_a_large_message_arrives_whole() -> None:
    async with open_mcp(rude_server(), ENVIRONMENT) as transport:
        assert await call(transport, "bytes") == "fine"
        assert await call(transport, "fine") == "fine"
        assert await call(transport, "large") == "x" * 3_000_000


async def test_a_line_over_the_size_limit_ends_the_session() -> None:
    with capture_logs() as logs:
        async with open_mcp(rude_server(), replace(ENVIRONMENT, output_bytes_max=1)) as transport:
            for tool in ("endless", "fine"):
                assert (await tool_failure(call(transport, tool))).code == "tool.crashed"
    assert "tool.mcp.line_too_long" in {log["event"] for log in logs}


async def test_a_server_that_does_not_exit_is_killed_with_its_child_processes(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    command = [sys.executable, str(FIXTURES / "mcp_rude_server.py"), str(started)]  # not a fork of the fork server
    async with open_mcp(McpTools(name="rude_server", command=command, timeout_s=60.0), ENVIRONMENT) as transport:
        assert await call(transport, "fine") == "fine"
    for pid in map(int, started.read_text().split()):
        await until(lambda pid=pid: is_gone(pid))


async def test_a_task_is_polled_until_its_result() -> None:
    patient = McpTools(name="patient", command=program("mcp_tasks_server.py"), timeout_s=60.0)
    async with open_mcp(patient, ENVIRONMENT) as transport:
        assert await call(transport, "done") == "at last"
        found: dict[str, str] = {}
        for tool, timeout_s in (("broken", None), ("asking", None), ("endless", 0.5)):
            failure = await tool_failure(call(transport, tool, timeout_s=timeout_s))
            found[tool] = f"{failure.code} {failure.message}"
        assert await call(transport, "cancelled") == "asking,endless"
    assert "it broke" in found["broken"]
    assert "asks for input, which this client cannot answer" in found["asking"]
    assert found["endless"].startswith("tool.timeout")


async def test_a_tool_that_requires_tasks_of_the_old_protocol_is_refused() -> None:
    scales = McpTools(name="scales", command=program("mcp_scales.py", "--tasks"), timeout_s=60.0)
    async with open_mcp(scales, ENVIRONMENT) as transport:
        found = await tool_failure(call(transport, "weigh", {"what": "a"}))
    assert (found.code, found.retryable) == ("tool.unavailable", False)
    assert "as a task of protocol 2025-11-25" in found.message


def changing_server(when: str) -> McpTools:
    return McpTools(name="desk", command=program("mcp_changing_server.py", when), timeout_s=60.0)


@pytest.mark.parametrize("when", ["before", "after", "modern"])
async def test_tools_are_listed_again_after_a_change_notification(when: str) -> None:
    async with open_mcp(changing_server(when), ENVIRONMENT) as transport:
        before = transport.specs
        await transport.refresh()
        assert transport.specs is before
        for tool, expected in (("enable", ["enable", "disable", "echo"]), ("disable", ["enable", "disable"])):
            assert await call(transport, tool) == f"did {tool}"
            await transport.refresh()
            assert [spec.name for spec in transport.specs] == expected


async def test_a_failed_second_listing_keeps_the_tools() -> None:
    with capture_logs() as logs:
        async with open_mcp(changing_server("broken"), ENVIRONMENT) as transport:
            await call(transport, "enable")
            await transport.refresh()
            assert [spec.name for spec in transport.specs] == ["enable", "disable"]
    assert "tool.server.unlisted" in [line["event"] for line in logs]


async def test_a_renewed_toolbox_has_the_current_tools_of_its_servers() -> None:
    async with open_toolbox([changing_server("before")], ENVIRONMENT) as toolbox:
        assert not toolbox.has("echo")
        await toolbox.call("enable", {}, CONTEXT)
        await toolbox.renew()
        assert toolbox.has("echo", "desk")
        assert await toolbox.call("echo", {}, CONTEXT) == "did echo"
        await toolbox.call("disable", {}, CONTEXT)
        await toolbox.renew()
        found = await tool_failure(toolbox.call("echo", {}, CONTEXT))
        assert found.message == "tool echo not found; the tools here: disable, enable"


async def is_listening(port: int) -> bool:
    try:
        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


@asynccontextmanager
async def http_server() -> AsyncGenerator[str]:
    port = free_ports(1)[0]
    process = await anyio.open_process(program("mcp_server.py", "--http", str(port)), stdout=None, stderr=None)
    try:
        await until(partial(is_listening, port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with suppress(ProcessLookupError):  # the tool `die` ends it
            process.kill()
        await process.aclose()


async def test_an_http_server_gets_the_headers_and_answers_calls() -> None:
    lines: list[str] = []
    async with http_server() as url:
        source = McpTools(name="desk", url=url, headers={"Authorization": "Bearer ${DESK_TOKEN}"})
        async with open_mcp(source, ENVIRONMENT) as transport:
            assert "weather" in [spec.name for spec in transport.specs]
            assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}
            assert await call(transport, "header", {"name": "authorization"}) == {"result": "Bearer t0ken"}
            assert await call(transport, "long", on_progress=lines.append) == {"result": "done"}
            assert await tool_failure(call(transport, "refuse", {"reason": "no"})) == Failure("tool.failed", "no")
    assert lines == ["half way", "2 of 2"]


async def test_calls_fail_when_their_http_server_dies() -> None:
    failures: list[Failure] = []

    async def fail(tool: str) -> None:
        failures.append(await tool_failure(toolbox.call(tool, {}, CONTEXT)))

    async with http_server() as url, open_toolbox([McpTools(name="desk", url=url)], ENVIRONMENT) as toolbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, "hang")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(fail, "die")
        await fail("pid")
    assert [failure.code for failure in failures] == ["tool.crashed", "tool.crashed", "tool.unavailable"]
    assert all("MCP server desk" in failure.message for failure in failures)


async def test_an_http_answer_over_the_size_limit_fails_the_call() -> None:
    with forgetful_server() as (_server, url):
        async with open_mcp(McpTools(name="desk", url=url), replace(ENVIRONMENT, output_bytes_max=1)) as transport:
            assert (await tool_failure(call(transport, "endless"))).code == "tool.output_too_large"
            assert await call(transport, "session") == "1"


async def test_the_failure_has_the_http_status_of_a_server_that_refuses() -> None:
    with forgetful_server(refuses=401) as (_server, url):
        found = await refuse_opening(McpTools(name="desk", url=url))
    assert (found.code, "(HTTP 401)" in found.message) == ("tool.unavailable", True)


async def test_an_address_without_a_listener_is_unavailable() -> None:
    found = await refuse_opening(McpTools(name="desk", url=f"http://127.0.0.1:{free_ports(1)[0]}/mcp", timeout_s=20.0))
    assert found.code == "tool.unavailable"
    assert "see that it runs at this address" in found.message
