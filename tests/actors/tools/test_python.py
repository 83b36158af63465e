"""Python tools in real processes: their specs, their outputs and their faults."""

import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from callboard.actors.tools import python as python_tools
from callboard.actors.tools.python import HOSTS_MAX, open_python
from callboard.actors.tools.stderr import PRINTED_CHARS_MAX
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.bus.effects import Failure, PythonTools, ToolSpec
from callboard.bus.tracecontext import sent_as, within
from callboard.bus.work import NEEDS_PERSON
from callboard.lib.redaction import Redaction
from tests.support import forks
from tests.support.failures import opening_failure, tool_failure
from tests.support.patience import is_gone, until
from tests.support.places import TESTS

FIXTURES = TESTS / "fixtures" / "tools"
CONTEXT = ToolCallContext(run="r1", path="a/b", idempotency_key="key-1")
ENVIRONMENT = ToolEnvironment(env=dict(os.environ))


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools import their functions from the path of the worker."""
    monkeypatch.syspath_prepend(str(FIXTURES))


def tools(*names: str, timeout_s: float = 60.0, config: dict[str, str] | None = None) -> PythonTools:
    return PythonTools({name: f"functions:{name}" for name in names}, config or {}, timeout_s)


async def call(name: str, timeout_s: float = 60.0, **input: Any) -> Any:
    async with open_python(tools(name, timeout_s=timeout_s), ENVIRONMENT) as transport:
        return await transport.call(name, input, CONTEXT)


async def failure(name: str, timeout_s: float = 60.0, **input: Any) -> Failure:
    return await tool_failure(call(name, timeout_s, **input))


async def refuse_opening(dotted: str, timeout_s: float = 60.0) -> Failure:
    return await opening_failure(open_python(PythonTools({"it": dotted}, timeout_s=timeout_s), ENVIRONMENT))


async def until_all_are_gone(pids: Path) -> None:
    await until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))


async def test_the_spec_has_the_signature_and_docstring_of_the_function() -> None:
    async with open_python(tools("add", "search", "config", "rest", "untyped"), ENVIRONMENT) as transport:
        specs = {spec.name: spec for spec in transport.specs}
    assert specs["add"] == ToolSpec(
        name="add",
        description="Add two numbers of any size.",
        input_schema={
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "the first summand, an integer"},
                "b": {"type": "integer", "default": 2},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    )
    assert specs["search"].input_schema["properties"] == {
        "query": {"type": "string", "minLength": 1, "description": "what to look for"},
        "limit": {"type": "integer", "default": 10, "description": "how many at most"},
        "order": {"type": "string", "enum": ["asc", "desc"], "default": "asc", "description": "which way round"},
    }
    assert specs["config"].input_schema["properties"] == {}
    assert specs["rest"].input_schema["additionalProperties"] is True
    assert specs["untyped"].input_schema["properties"] == {"a": {}, "b": {"default": None}}


async def test_a_dotted_path_may_use_a_dot_and_name_a_method() -> None:
    source = PythonTools({"dotted": "functions.add", "method": "functions:desk.ring", "both": "functions.desk.ring"})
    async with open_python(source, ENVIRONMENT) as transport:
        assert await transport.call("dotted", {"a": 1}, CONTEXT) == 3
        assert await transport.call("method", {"times": 2}, CONTEXT) == "ringring"
        assert await transport.call("both", {"times": 1}, CONTEXT) == "ring"


@pytest.mark.parametrize(
    ("dotted", "expected_text"),
    [
        ("no_such_package.module:function", "No module named 'no_such_package'"),
        ("no_such_package.module.function", "no module of no_such_package.module.function can be found"),
        ("functions:nothing", "functions has no nothing"),
        ("functions:not_a_function", "is not a function but of type int"),
        ("functions:variadic", "takes *items"),
        ("functions:unhinted", "cannot be described"),
        ("broken_import.tool", "No module named 'module_that_nobody_has'"),
        ("exits_at_import:tool", "ended with exit status 7"),
    ],
)
async def test_a_path_that_is_not_a_usable_function_is_unavailable(dotted: str, expected_text: str) -> None:
    found = await refuse_opening(dotted)
    assert found.code == "tool.unavailable"
    assert expected_text in found.message


async def test_an_import_that_hangs_is_unavailable() -> None:
    found = await refuse_opening("hangs_at_import:tool", timeout_s=0.5)
    assert (found.code, "may block at import" in found.message) == ("tool.unavailable", True)


async def test_sync_and_async_functions_get_typed_parameters() -> None:
    async with open_python(tools("add", "search", "shapes", "rest"), ENVIRONMENT) as transport:
        assert await transport.call("add", {"a": 1}, CONTEXT) == 3
        assert await transport.call("search", {"query": "q", "limit": 2}, CONTEXT) == ["q asc 0", "q asc 1"]
        typed = {"json": {"x": 1}, "copy": ["2026-01-02"], "model_config": {"title": "t", "when": "2026-01-02"}}
        report = {"title": "t", "when": "2026-01-02"}
        assert await transport.call("shapes", typed, CONTEXT) == {"x": 1, "years": [2026], "report": report}
        assert await transport.call("rest", {"a": 1, "z": [2]}, CONTEXT) == {"a": 1, "z": [2]}


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("set", [1]),
        ("point", {"x": 1, "y": 0}),
        ("report", {"title": "t", "when": "2026-01-02"}),
        ("instant", "2026-01-02T00:00:00Z"),
        ("none", None),
        ("surrogate", "\ufffd"),
    ],
)
async def test_an_output_is_converted_to_json(kind: str, output: Any) -> None:
    assert await call("what", kind=kind) == output


@pytest.mark.parametrize(
    ("kind", "expected_text"),
    [
        ("object", "objects of type object"),
        ("generator", "objects of type generator"),
        ("lock", "objects of type lock"),
        ("recursion", "recursion"),
    ],
)
async def test_the_failure_names_the_type_of_an_output_without_json_form(kind: str, expected_text: str) -> None:
    found = await failure("what", kind=kind)
    assert (found.code, expected_text in found.message) == ("tool.bad_output", True)


@pytest.mark.parametrize(
    ("kind", "expected_text", "place"),
    [
        ("nan", "tool what returned nan at /, which is not a number of JSON", ""),
        ("infinite", "tool what returned -inf at /at/1, which is not a number of JSON", "/at/1"),
        ("model", "tool what returned nan at /x, which is not a number of JSON", "/x"),
    ],
)
async def test_the_failure_has_the_place_of_nan_or_infinity_in_an_output(
    kind: str, expected_text: str, place: str
) -> None:
    found = await failure("what", kind=kind)
    assert (found.code, found.message, found.details) == ("tool.bad_output", expected_text, {"at": place})


async def test_requests_of_a_tool_have_the_trace_context_of_its_call() -> None:
    async with open_python(tools("span"), ENVIRONMENT) as transport:
        with within(context := sent_as("ab" * 16, "cd" * 8)):
            assert await transport.call("span", {}, CONTEXT) == [context.traceparent] * 2
        assert await transport.call("span", {}, CONTEXT) == ["", ""]


async def test_the_context_of_a_tool_has_config_log_progress_and_key() -> None:
    lines: list[str] = []
    environment = ToolEnvironment(env={**os.environ, "DESK_TOKEN": "t0ken"})
    source = tools("config", config={"region": "eu", "auth": "Bearer ${DESK_TOKEN}"})
    context = ToolCallContext(run="r1", path="p", idempotency_key="k", on_progress=lines.append)
    with capture_logs() as logs:
        async with open_python(source, environment) as transport:
            output = await transport.call("config", {}, context)
    assert output == {"config": {"region": "eu", "auth": "Bearer t0ken"}, "key": "k", "run": "r1", "path": "p"}
    assert lines == ["looking"]
    logged = [(log["log_level"], log["message"], log["tool"]) for log in logs if log["event"] == "tool.log"]
    assert logged == [("warning", "a loud warning", "config")]


async def test_processes_get_the_variables_of_the_worker_but_not_those_of_a_start() -> None:
    source = tools("variable", "config", config={"auth": "${DESK_TOKEN}"})
    own = {**os.environ, "DESK": "the worker's"}
    environment = ToolEnvironment(env={**own, "DESK_TOKEN": "t0ken", "PYTHONWARNINGS": "error"}, inherited=own)
    async with open_python(source, environment) as transport:
        found = [await transport.call("variable", {"name": name}, CONTEXT) for name in ("DESK", "PYTHONWARNINGS")]
        assert (await transport.call("config", {}, CONTEXT))["config"] == {"auth": "t0ken"}
    assert found == ["the worker's", os.environ.get("PYTHONWARNINGS")]


async def test_a_missing_variable_makes_the_source_unavailable() -> None:
    found = await opening_failure(open_python(tools("add", config={"auth": "${NO_SUCH_VARIABLE}"}), ENVIRONMENT))
    assert found.code == "tool.unavailable"
    assert "NO_SUCH_VARIABLE" in found.message


async def test_an_output_of_50_mib_arrives_whole() -> None:
    size = 50 * 1024 * 1024
    output = await call("big", size=size)
    assert len(output) == size
    assert output.strip("x") == ""


async def test_an_output_over_the_limit_is_refused_before_it_is_sent() -> None:
    environment = ToolEnvironment(env=dict(os.environ), output_bytes_max=1000)
    async with open_python(tools("big"), environment) as transport:
        assert len(await transport.call("big", {"size": 998}, CONTEXT)) == 998
        found = await tool_failure(transport.call("big", {"size": 3_000_000}, CONTEXT))
    assert found.code == "tool.output_too_large"
    assert "3000002 bytes, the limit is 1000" in found.message


async def test_invalid_input_fails_with_every_problem() -> None:
    found = await failure("add", a="x", b=[], c=1)
    assert found.code == "tool.invalid_input"
    assert [problem["at"] for problem in found.details] == ["/a", "/b", "/c"]


async def test_a_failure_has_the_traceback_of_the_tool_and_the_log_has_the_whole_one() -> None:
    with capture_logs() as logs:
        found = await failure("fails")
    assert found.code == "tool.failed"
    assert found.message == "tool fails raised ValueError: cannot do that with 6 letters"
    first, place, *_, last = found.details["traceback"].splitlines()
    assert first == "Traceback (most recent call last):"
    assert re.fullmatch(rf'  File "{FIXTURES}/functions.py", line \d+, in fails', place)
    assert last == "ValueError: cannot do that with 6 letters"
    assert set(found.details) == {"type", "traceback"}
    assert found.details["type"] == "ValueError"
    logged = next(log["traceback"] for log in logs if log["event"] == "tool.failed")
    assert "python_host.py" in logged


async def test_a_failure_has_the_output_of_its_call_and_the_chained_tracebacks() -> None:
    environment = replace(ENVIRONMENT, redact=Redaction({"TOKEN": "t0ken-of-the-test"}).text)
    async with open_python(tools("explains"), environment) as transport:
        await tool_failure(transport.call("explains", {"token": "of an earlier call"}, CONTEXT))
        found = await tool_failure(transport.call("explains", {"token": "t0ken-of-the-test"}, CONTEXT))
    details = found.details
    assert details["printed"] == "line 0 of it\nline 1 of it\nusing [secret:TOKEN]\nno newline"
    assert "KeyError: 'missing'\n\nThe above exception was the direct cause" in details["traceback"]
    files = re.findall(r'File "([^"]+)"', details["traceback"])
    assert files == [f"{FIXTURES}/functions.py"] * 3


async def test_a_failure_has_the_end_of_a_long_printed_text() -> None:
    found = await failure("explains", token="s", lines=20_000)
    printed = found.details["printed"].splitlines()
    assert printed[0] == "…"
    assert printed[-3:] == ["line 19999 of it", "using s", "no newline"]
    assert 0.9 * PRINTED_CHARS_MAX < len(found.details["printed"]) <= PRINTED_CHARS_MAX + 2


async def test_the_traceback_of_a_coroutine_omits_the_event_loop() -> None:
    found = await failure("fails_later")
    assert re.findall(r"in (\w+)", found.details["traceback"]) == ["fails_later", "_inner"]


async def test_sys_exit_fails_the_call() -> None:
    found = await failure("exits")
    assert (found.code, found.message) == ("tool.failed", "tool exits raised SystemExit: leaving")


async def test_a_failed_import_has_its_traceback_and_its_output() -> None:
    found = await refuse_opening("broken_import.tool")
    [place] = re.findall(r"File .*", found.details["traceback"])
    assert "broken_import.py" in place
    loud = await refuse_opening("exits_at_import:tool")
    assert "it printed last: leaving at the import" in loud.message


async def test_a_crash_has_the_last_output_of_the_process() -> None:
    found = await failure("dies_loudly")
    assert found.message.endswith("ended with exit status 3; it printed last: the last words")
    assert found.details == {"printed": "the last words"}
    crash = await failure("segfaults")
    assert "Fatal Python error: Segmentation fault" in crash.details["printed"]


@pytest.mark.parametrize(("name", "how"), [("dies", "ended with exit status 3"), ("segfaults", "killed by SIGSEGV")])
async def test_a_dead_process_fails_its_call_and_the_next_call_gets_another_process(name: str, how: str) -> None:
    async with open_python(tools(name, "add"), ENVIRONMENT) as transport:
        found = await tool_failure(transport.call(name, {}, CONTEXT))
        assert await transport.call("add", {"a": 1}, CONTEXT) == 3
    assert found.code == "tool.crashed"
    assert how in found.message


async def test_output_of_every_kind_goes_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_tools, "HOST", forks.REAL_HOST)
    with capture_logs() as logs:
        async with open_python(tools("noisy", "reads", "forks"), ENVIRONMENT) as transport:
            assert await transport.call("noisy", {}, CONTEXT) == "still here"
            assert await transport.call("reads", {}, CONTEXT) == ""
            assert await transport.call("forks", {}, CONTEXT) == "the parent"
            expected = {"printed", "to stderr", "\0\0\0\0\0\0\0\5raw bytes on fd 1", "grandchild"}
            await until(lambda: expected <= {log.get("line") for log in logs})


async def test_a_hanging_call_is_killed_with_its_child_processes(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    found = await failure("hangs", timeout_s=10.0, started=str(started))
    assert (found.code, found.details) == ("tool.timeout", {"timeout_s": 10.0, "printed": "hanging now"})
    await until_all_are_gone(started)


async def test_a_cancelled_call_is_killed_and_other_calls_continue(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    async with open_python(tools("hangs", "add"), ENVIRONMENT) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.call, "hangs", {"started": str(started)}, CONTEXT)
            await until(started.exists)
            assert await transport.call("add", {"a": 1}, CONTEXT) == 3
            tasks.cancel_scope.cancel()
        await until_all_are_gone(started)
        assert await transport.call("add", {"a": 2}, CONTEXT) == 4


async def test_a_hanging_call_ends_with_its_worker(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    program = f"""
import anyio, os
from callboard.actors.tools import python as python_tools
from callboard.actors.tools.python import open_python
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.bus.effects import PythonTools

async def main():
    source = PythonTools({{"hangs": "functions:hangs"}})
    async with open_python(source, ToolEnvironment(env=dict(os.environ))) as transport:
        await transport.call("hangs", {{"started": {str(started)!r}}}, ToolCallContext("", "", ""))

anyio.run(main)
"""
    async with await anyio.open_process([sys.executable, "-c", program], cwd=FIXTURES, stderr=None) as worker:
        await until(started.exists)
        worker.kill()
    await until_all_are_gone(started)


async def test_concurrent_calls_have_separate_processes(tmp_path: Path) -> None:
    pids: list[int] = []

    async def one(name: str) -> None:
        input = {"folder": str(tmp_path), "name": name, "others": 3}
        pids.append(await transport.call("meets", input, CONTEXT))

    async with open_python(tools("meets"), ENVIRONMENT) as transport, anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(one, name)
    assert len(set(pids)) == 3


async def test_idle_processes_are_reused_and_end_with_the_source() -> None:
    async with open_python(tools("process"), ENVIRONMENT) as transport:
        pids = {await transport.call("process", {}, CONTEXT) for _ in range(5)}
        assert len(pids) == 1
    assert all(is_gone(pid) for pid in pids)


async def test_an_idle_process_that_died_is_replaced() -> None:
    async with open_python(tools("process"), ENVIRONMENT) as transport:
        first = await transport.call("process", {}, CONTEXT)
        os.kill(first, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{first}").exists())
        # Some event loops wait for a child process in a thread, which then schedules a callback in the loop. A callback
        # that another thread schedules now runs after that one.
        await until(lambda: not any("waitpid" in thread.name for thread in threading.enumerate()))
        await anyio.to_thread.run_sync(threading.active_count)
        await anyio.wait_all_tasks_blocked()
        second = await transport.call("process", {}, CONTEXT)
    assert second != first


async def test_the_number_of_processes_is_limited() -> None:
    pids: set[int] = set()

    async def one() -> None:
        pids.add(await transport.call("process", {}, CONTEXT))

    async with open_python(tools("process"), ENVIRONMENT) as transport, anyio.create_task_group() as tasks:
        for _ in range(4 * HOSTS_MAX):
            tasks.start_soon(one)
    assert len(pids) <= HOSTS_MAX


async def test_surrogates_in_any_text_of_a_tool_are_joined_or_replaced() -> None:
    progress: list[str] = []
    context = replace(CONTEXT, on_progress=progress.append)
    with capture_logs() as logs:
        async with open_python(tools("halves"), ENVIRONMENT) as transport:
            assert await transport.call("halves", {"how": "returns"}, context) == {"a�": ["😀", "�"]}
            report: Any = await transport.call("halves", {"how": "object"}, context)
            found = await tool_failure(transport.call("halves", {"how": "raises"}, context))
            assert await transport.call("halves", {"how": "returns"}, context)
    assert report["title"] == "�"
    assert found.message == "tool halves raised ValueError: raised �"
    assert found.details["traceback"].endswith("ValueError: raised �")
    assert progress == ["progress �"] * 4
    assert [log["message"] for log in logs if log["event"] == "tool.log"] == ["logged �"] * 4


async def test_a_call_that_needs_a_person_fails() -> None:
    failed = await failure("asks_a_person")
    assert failed.code == NEEDS_PERSON
    assert "agent clerk calls pay in the step asks_a_person" in failed.message
