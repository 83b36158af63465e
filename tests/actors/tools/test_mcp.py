"""MCP servers as tools: a real server over stdio and over streamable HTTP, and programs that only pretend to be one."""

import hashlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from callboard.actors.tools.mcp import McpTransport, open_mcp
from callboard.actors.tools.mcp_connecting import LIST_PAGES_MAX
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.actors.tools.toolbox import open_toolbox
from callboard.bus.effects import Failure, McpTools
from callboard.bus.tracecontext import sent_as, within
from callboard.lib.redaction import Redaction
from tests.support.forks import python
from tests.support.http_server import http_server as serving
from tests.support.mcp_sessions import Forgetful
from tests.support.patience import is_gone, until
from tests.support.places import TESTS
from tests.support.ports import free_ports

FIXTURES = TESTS / "fixtures" / "tools"
ENVIRONMENT = ToolEnvironment(env={**os.environ, "DESK_TOKEN": "t0ken"})


def program(name: str, *arguments: str) -> list[str]:
    return python(str(FIXTURES / name), *arguments)


def server(**more: Any) -> McpTools:
    return msgspec.structs.replace(McpTools(name="desk", command=program("mcp_server.py"), timeout_s=60.0), **more)


def rude() -> McpTools:
    return McpTools(name="rude", command=program("mcp_rude_server.py"), timeout_s=60.0)


async def call(transport: McpTransport, tool: str, input: Any = None, **context: Any) -> Any:
    return await transport.call(tool, input or {}, ToolCallContext("r1", "a", "key-1", **context))


async def opening_failure(source: McpTools) -> Failure:
    with capture_logs(), pytest.raises(ToolFailed) as caught:
        async with open_mcp(source, ENVIRONMENT):
            pytest.fail("opened")
    return caught.value.failure


async def test_a_server_over_stdio_lists_and_answers() -> None:
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


async def test_a_picture_is_kept_beside_the_event_and_named_in_it() -> None:
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


async def test_an_error_result_is_a_failure_with_its_text() -> None:
    async with open_mcp(server(), ENVIRONMENT) as transport:
        with pytest.raises(ToolFailed) as caught:
            await call(transport, "refuse", {"reason": "not on a Sunday"})
        assert caught.value.failure == Failure("tool.failed", "not on a Sunday")
        assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}


async def test_what_a_server_says_on_stderr_is_told_with_a_failure_and_without_secrets() -> None:
    environment = replace(ENVIRONMENT, redact=Redaction({"DESK_TOKEN": "t0ken-of-the-desk"}).text)
    with capture_logs():
        async with open_mcp(server(), environment) as transport:
            await call(transport, "weather", {"city": "Rome"})
            with pytest.raises(ToolFailed) as caught:
                await call(transport, "refuse", {"reason": "no", "aside": "I saw t0ken-of-the-desk"})
    assert caught.value.failure.details == {"printed": "I saw [secret:DESK_TOKEN]"}


async def test_environment_variables_are_lent_by_name_only() -> None:
    async with open_mcp(server(env={"TOKEN": "DESK_TOKEN"}), ENVIRONMENT) as transport:
        assert await call(transport, "secret", {"name": "TOKEN"}) == {"result": "t0ken"}
        assert await call(transport, "secret", {"name": "DESK_TOKEN"}) == {"result": "(unset)"}


async def test_a_missing_environment_variable_is_named() -> None:
    found = await opening_failure(server(env={"TOKEN": "NO_SUCH_VARIABLE"}))
    assert (found.code, found.details) == ("tool.unavailable", {"missing": ["NO_SUCH_VARIABLE"]})


async def test_stderr_of_a_server_goes_to_the_log() -> None:
    with capture_logs() as logs:
        async with open_mcp(server(), ENVIRONMENT):
            with anyio.fail_after(30):
                while not logs:  # noqa: ASYNC110 - the line comes from another process
                    await anyio.sleep(0.01)
    assert logs[0] == {
        "event": "tool.stderr",
        "line": "the desk is open",
        "server": "desk",
        "log_level": "info",
    }


async def test_a_call_that_hangs_times_out_and_the_session_lives_on() -> None:
    async with open_mcp(server(), ENVIRONMENT) as transport:
        with pytest.raises(ToolFailed) as caught:
            await call(transport, "hang", timeout_s=0.5)
        assert caught.value.failure.code == "tool.timeout"
        assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}


async def test_a_server_that_dies_in_a_call_is_a_crash_for_all_its_calls() -> None:
    failures: list[Failure] = []

    async def failing(tool: str) -> None:
        with pytest.raises(ToolFailed) as caught:
            await call(transport, tool)
        failures.append(caught.value.failure)

    async with open_mcp(server(), ENVIRONMENT) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(failing, "hang")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(failing, "die")
        await failing("pid")
    assert [failure.code for failure in failures] == ["tool.crashed"] * 3
    assert "desk" in failures[0].message
    assert all(failure.details["printed"] == "the desk is on fire" for failure in failures[:2])
    assert failures[2].details == {"server": "desk"}


async def test_calls_from_several_tasks_at_once() -> None:
    outputs: list[Any] = []

    async def one(city: str) -> None:
        outputs.append(await call(transport, "weather", {"city": city}))

    async with open_mcp(server(), ENVIRONMENT) as transport, anyio.create_task_group() as tasks:
        for k in range(20):
            tasks.start_soon(one, f"city {k}")
    assert sorted(output["city"] for output in outputs) == sorted(f"city {k}" for k in range(20))


async def test_all_pages_of_a_listing_are_read_and_a_banner_on_stdout_does_no_harm() -> None:
    source = McpTools(name="pages", command=program("mcp_paged_server.py", "7"))
    async with open_mcp(source, ENVIRONMENT) as transport:
        assert [spec.name for spec in transport.specs] == [f"tool_{k}" for k in range(7)]
        assert await call(transport, "tool_6", {"q": 1}) == "tool_6 {'q': 1}"


async def test_a_listing_without_end_is_refused() -> None:
    pages = str(LIST_PAGES_MAX + 1)
    found = await opening_failure(McpTools(name="pages", command=program("mcp_paged_server.py", pages)))
    assert (found.code, f"more than {LIST_PAGES_MAX} pages" in found.message) == ("tool.unavailable", True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (program("mcp_impostor.py", "exits"), "Connection closed"),
        ([sys.executable, "-c", "import module_that_nobody_has"], "; it printed last: ModuleNotFoundError: No module"),
        (["no-such-program-anywhere"], "No such file or directory"),
        ([], "neither a command nor a url"),
    ],
)
async def test_what_is_no_mcp_server_is_unavailable_and_says_why(command: list[str], said: str) -> None:
    found = await opening_failure(McpTools(name="odd", command=command, timeout_s=60.0))
    assert found.code == "tool.unavailable"
    assert "MCP server odd" in found.message
    assert said in found.message


@pytest.mark.parametrize(
    ("behaviour", "timeout_s", "said"),
    [("silent", 0.5, "was not ready within 0.5 s"), ("garbage", 5.0, "lines to stdout that are not MCP messages")],
)
async def test_a_program_that_never_answers_is_no_mcp_server(behaviour: str, timeout_s: float, said: str) -> None:
    # The process that forks may have to be started first, which takes longer.
    command = [sys.executable, "-S", str(FIXTURES / "mcp_impostor.py"), behaviour]
    found = await opening_failure(McpTools(name="odd", command=command, timeout_s=timeout_s))
    assert (found.code, said in found.message) == ("tool.unavailable", True)


# -- rude servers -------------------------------------------------------------------------------------------------


async def test_a_byte_that_is_no_text_does_no_harm() -> None:
    async with open_mcp(rude(), ENVIRONMENT) as transport:
        assert await call(transport, "bytes") == "fine"
        assert await call(transport, "fine") == "fine"


async def test_a_large_message_arrives_whole() -> None:
    async with open_mcp(rude(), ENVIRONMENT) as transport:
        assert await call(transport, "large") == "x" * 3_000_000


async def test_a_line_without_end_ends_the_session() -> None:
    with capture_logs() as logs:
        async with open_mcp(rude(), replace(ENVIRONMENT, output_bytes_max=1)) as transport:
            for tool in ("endless", "fine"):
                with pytest.raises(ToolFailed) as caught:
                    await call(transport, tool)
                assert caught.value.failure.code == "tool.crashed"
    assert "tool.mcp.line_too_long" in {log["event"] for log in logs}


async def test_a_server_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    command = [sys.executable, str(FIXTURES / "mcp_rude_server.py"), str(started)]  # a process of its own, and no fork
    async with open_mcp(McpTools(name="rude", command=command, timeout_s=60.0), ENVIRONMENT) as transport:
        assert await call(transport, "fine") == "fine"
    for pid in map(int, started.read_text().split()):
        await until(lambda pid=pid: is_gone(pid))


# -- tasks --------------------------------------------------------------------------------------------------------


async def test_a_task_is_followed_to_its_result() -> None:
    patient = McpTools(name="patient", command=program("mcp_tasks_server.py"), timeout_s=60.0)
    async with open_mcp(patient, ENVIRONMENT) as transport:
        assert await call(transport, "done") == "at last"
        found: dict[str, str] = {}
        for tool, timeout_s in (("broken", None), ("asking", None), ("endless", 0.5)):
            with pytest.raises(ToolFailed) as caught:
                await call(transport, tool, timeout_s=timeout_s)
            found[tool] = f"{caught.value.failure.code} {caught.value.failure.message}"
        assert await call(transport, "cancelled") == "asking,endless"
    assert "it broke" in found["broken"]
    assert "asks for input, which this client cannot answer" in found["asking"]
    assert found["endless"].startswith("tool.timeout")


async def test_a_tool_that_requires_tasks_of_the_old_protocol_is_refused_with_a_reason() -> None:
    scales = McpTools(name="scales", command=program("mcp_scales.py", "--tasks"), timeout_s=60.0)
    async with open_mcp(scales, ENVIRONMENT) as transport:
        with pytest.raises(ToolFailed) as caught:
            await call(transport, "weigh", {"what": "a"})
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("tool.unavailable", False)
    assert "as a task of protocol 2025-11-25" in caught.value.failure.message


# -- lists that change --------------------------------------------------------------------------------------------


def changing(when: str) -> McpTools:
    return McpTools(name="desk", command=program("mcp_changing_server.py", when), timeout_s=60.0)


@pytest.mark.parametrize("when", ["before", "after", "modern"])
async def test_tools_are_listed_again_when_the_server_says_that_they_have_changed(when: str) -> None:
    async with open_mcp(changing(when), ENVIRONMENT) as transport:
        before = transport.specs
        await transport.refresh()
        assert transport.specs is before
        for tool, expected in (("enable", ["enable", "disable", "echo"]), ("disable", ["enable", "disable"])):
            assert await call(transport, tool) == f"did {tool}"
            await transport.refresh()
            assert [spec.name for spec in transport.specs] == expected


async def test_tools_stay_as_they_were_if_they_cannot_be_listed_again() -> None:
    with capture_logs() as logs:
        async with open_mcp(changing("broken"), ENVIRONMENT) as transport:
            await call(transport, "enable")
            await transport.refresh()
            assert [spec.name for spec in transport.specs] == ["enable", "disable"]
    assert "tool.server.unlisted" in [line["event"] for line in logs]


async def test_a_toolbox_has_the_tools_of_its_servers_at_the_moment() -> None:
    async with open_toolbox([changing("before")], ENVIRONMENT) as toolbox:
        assert not toolbox.has("echo")
        await toolbox.call("enable", {}, ToolCallContext("r1", "a", "key-1"))
        await toolbox.renew()
        assert toolbox.has("echo", "desk")
        assert await toolbox.call("echo", {}, ToolCallContext("r1", "a", "key-2")) == "did echo"
        await toolbox.call("disable", {}, ToolCallContext("r1", "a", "key-3"))
        await toolbox.renew()
        with pytest.raises(ToolFailed) as caught:
            await toolbox.call("echo", {}, ToolCallContext("r1", "a", "key-4"))
        assert caught.value.failure.message == "tool echo not found; the tools here: disable, enable"


# -- streamable HTTP ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def http_server() -> AsyncGenerator[str]:
    port = free_ports(1)[0]
    process = await anyio.open_process(program("mcp_server.py", "--http", str(port)), stdout=None, stderr=None)
    try:
        with anyio.fail_after(30):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await anyio.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with suppress(ProcessLookupError):  # it may have ended itself, by a tool
            process.kill()
        await process.aclose()


async def test_a_server_over_http_lists_answers_and_gets_headers() -> None:
    lines: list[str] = []
    async with http_server() as url:
        source = McpTools(name="desk", url=url, headers={"Authorization": "Bearer ${DESK_TOKEN}"})
        async with open_mcp(source, ENVIRONMENT) as transport:
            assert "weather" in [spec.name for spec in transport.specs]
            assert await call(transport, "weather", {"city": "Rome"}) == {"city": "Rome", "degrees": 21}
            assert await call(transport, "header", {"name": "authorization"}) == {"result": "Bearer t0ken"}
            assert await call(transport, "long", on_progress=lines.append) == {"result": "done"}
            with pytest.raises(ToolFailed) as caught:
                await call(transport, "refuse", {"reason": "no"})
    assert caught.value.failure == Failure("tool.failed", "no")
    assert lines == ["half way", "2 of 2"]


async def test_an_http_server_that_dies_in_a_call_is_gone() -> None:
    failures: list[Failure] = []

    async def failing(tool: str) -> None:
        with pytest.raises(ToolFailed) as caught:
            await toolbox.call(tool, {}, ToolCallContext("r1", "a", "key-1"))
        failures.append(caught.value.failure)

    with capture_logs():
        async with http_server() as url, open_toolbox([McpTools(name="desk", url=url)], ENVIRONMENT) as toolbox:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(failing, "hang")
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(failing, "die")
            await failing("pid")
    assert [failure.code for failure in failures] == ["tool.crashed", "tool.crashed", "tool.unavailable"]
    assert all("MCP server desk" in failure.message for failure in failures)


async def test_an_answer_over_http_without_end_is_a_failure() -> None:
    class Server(Forgetful):
        pass

    with serving(Server) as url, capture_logs():
        async with open_mcp(McpTools(name="desk", url=url), replace(ENVIRONMENT, output_bytes_max=1)) as transport:
            with pytest.raises(ToolFailed) as caught:
                await call(transport, "endless")
            assert caught.value.failure.code == "tool.output_too_large"
            assert await call(transport, "session") == "1"


async def test_a_server_that_refuses_is_unavailable_and_its_status_is_told() -> None:
    class Refusing(Forgetful):
        refuses = 401

    with serving(Refusing) as url:
        found = await opening_failure(McpTools(name="desk", url=url))
    assert (found.code, "(HTTP 401)" in found.message) == ("tool.unavailable", True)


async def test_an_address_where_nobody_listens_is_unavailable() -> None:
    found = await opening_failure(McpTools(name="desk", url=f"http://127.0.0.1:{free_ports(1)[0]}/mcp", timeout_s=20.0))
    assert found.code == "tool.unavailable"
    assert "see that it runs at this address" in found.message
