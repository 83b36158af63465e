"""Python tools in real processes: what models see of them, what they return, and everything they can do wrong."""

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
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus.effects import Failure, PythonTools, ToolSpec
from callboard.bus.tracecontext import sent_as, within
from callboard.bus.work import NEEDS_PERSON
from callboard.lib.redaction import Redaction
from tests.support import forks
from tests.support.patience import is_gone, until
from tests.support.places import TESTS

FIXTURES = TESTS / "fixtures" / "tools"
CONTEXT = ToolCallContext(run="r1", path="a/b", idempotency_key="key-1")
ENVIRONMENT = ToolEnvironment(env=dict(os.environ))


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are imported from the worker's own path."""
    monkeypatch.syspath_prepend(str(FIXTURES))


def tools(*names: str, timeout_s: float = 60.0, config: dict[str, str] | None = None) -> PythonTools:
    return PythonTools({name: f"functions:{name}" for name in names}, config or {}, timeout_s)


async def call(name: str, timeout_s: float = 60.0, **input: Any) -> Any:
    async with open_python(tools(name, timeout_s=timeout_s), ENVIRONMENT) as transport:
        return await transport.call(name, input, CONTEXT)


async def failure(name: str, timeout_s: float = 60.0, **input: Any) -> Failure:
    with capture_logs(), pytest.raises(ToolFailed) as caught:
        await call(name, timeout_s, **input)
    return caught.value.failure


async def opening_failure(dotted: str, timeout_s: float = 60.0) -> Failure:
    with capture_logs(), pytest.raises(ToolFailed) as caught:
        async with open_python(PythonTools({"it": dotted}, timeout_s=timeout_s), ENVIRONMENT):
            pytest.fail("opened")
    return caught.value.failure


# -- what models see ----------------------------------------------------------------------------------------------


async def test_signature_and_docstring_become_the_spec() -> None:
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


async def test_dotted_paths_may_use_a_dot_and_name_methods() -> None:
    source = PythonTools({"dotted": "functions.add", "method": "functions:desk.ring", "both": "functions.desk.ring"})
    async with open_python(source, ENVIRONMENT) as transport:
        assert await transport.call("dotted", {"a": 1}, CONTEXT) == 3
        assert await transport.call("method", {"times": 2}, CONTEXT) == "ringring"
        assert await transport.call("both", {"times": 1}, CONTEXT) == "ring"


@pytest.mark.parametrize(
    ("dotted", "said"),
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
async def test_what_cannot_serve_as_a_tool_is_unavailable_and_says_why(dotted: str, said: str) -> None:
    found = await opening_failure(dotted)
    assert found.code == "tool.unavailable"
    assert said in found.message


async def test_an_import_that_hangs_is_unavailable() -> None:
    found = await opening_failure("hangs_at_import:tool", timeout_s=0.5)
    assert (found.code, "may block at import" in found.message) == ("tool.unavailable", True)


# -- what comes back ----------------------------------------------------------------------------------------------


async def test_sync_and_async_functions_and_typed_parameters() -> None:
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
async def test_whatever_has_a_json_form_is_an_output(kind: str, output: Any) -> None:
    assert await call("what", kind=kind) == output


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("object", "objects of type object"),
        ("generator", "objects of type generator"),
        ("lock", "objects of type lock"),
        ("recursion", "recursion"),
    ],
)
async def test_an_output_without_json_form_names_its_type(kind: str, said: str) -> None:
    found = await failure("what", kind=kind)
    assert (found.code, said in found.message) == ("tool.bad_output", True)


@pytest.mark.parametrize(
    ("kind", "said", "place"),
    [
        ("nan", "tool what returned nan at /, which is not a number of JSON", ""),
        ("infinite", "tool what returned -inf at /at/1, which is not a number of JSON", "/at/1"),
        ("model", "tool what returned nan at /x, which is not a number of JSON", "/x"),
    ],
)
async def test_a_number_that_json_has_not_is_told_with_its_place(kind: str, said: str, place: str) -> None:
    found = await failure("what", kind=kind)
    assert (found.code, found.message, found.details) == ("tool.bad_output", said, {"at": place})


async def test_what_a_tool_asks_belongs_to_the_span_of_its_call() -> None:
    async with open_python(tools("span"), ENVIRONMENT) as transport:
        with within(context := sent_as("ab" * 16, "cd" * 8)):
            assert await transport.call("span", {}, CONTEXT) == [context.traceparent] * 2
        assert await transport.call("span", {}, CONTEXT) == ["", ""]


async def test_the_context_has_config_log_progress_and_the_key() -> None:
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


async def test_processes_get_the_variables_of_the_worker_and_none_that_a_start_brings() -> None:
    source = tools("variable", "config", config={"auth": "${DESK_TOKEN}"})
    own = {**os.environ, "DESK": "the worker's"}
    environment = ToolEnvironment(env={**own, "DESK_TOKEN": "t0ken", "PYTHONWARNINGS": "error"}, inherited=own)
    async with open_python(source, environment) as transport:
        found = [await transport.call("variable", {"name": name}, CONTEXT) for name in ("DESK", "PYTHONWARNINGS")]
        assert (await transport.call("config", {}, CONTEXT))["config"] == {"auth": "t0ken"}
    assert found == ["the worker's", os.environ.get("PYTHONWARNINGS")]


async def test_a_variable_the_worker_does_not_have_makes_the_source_unavailable() -> None:
    with pytest.raises(ToolFailed) as caught:
        async with open_python(tools("add", config={"auth": "${NO_SUCH_VARIABLE}"}), ENVIRONMENT):
            pytest.fail("opened")
    assert caught.value.failure.code == "tool.unavailable"
    assert "NO_SUCH_VARIABLE" in caught.value.failure.message


async def test_an_output_of_50_mib_arrives_whole() -> None:
    size = 50 * 1024 * 1024
    output = await call("big", size=size)
    assert len(output) == size
    assert output.strip("x") == ""


async def test_an_output_over_the_limit_is_refused_before_it_is_sent() -> None:
    environment = ToolEnvironment(env=dict(os.environ), output_bytes_max=1000)
    async with open_python(tools("big"), environment) as transport:
        assert len(await transport.call("big", {"size": 998}, CONTEXT)) == 998
        with capture_logs(), pytest.raises(ToolFailed) as caught:
            await transport.call("big", {"size": 3_000_000}, CONTEXT)
    assert caught.value.failure.code == "tool.output_too_large"
    assert "3000002 bytes, the limit is 1000" in caught.value.failure.message


async def test_input_that_does_not_fit_lists_every_problem() -> None:
    found = await failure("add", a="x", b=[], c=1)
    assert found.code == "tool.invalid_input"
    assert [problem["at"] for problem in found.details] == ["/a", "/b", "/c"]


# -- what goes wrong ----------------------------------------------------------------------------------------------


async def test_an_exception_is_a_failure_with_the_traceback_of_the_tool_and_the_log_has_all_of_it() -> None:
    with capture_logs() as logs, pytest.raises(ToolFailed) as caught:
        await call("fails")
    failure = caught.value.failure
    assert (failure.code, failure.message) == (
        "tool.failed",
        "tool fails raised ValueError: cannot do that with 6 letters",
    )
    first, place, *_, last = failure.details["traceback"].splitlines()
    assert first == "Traceback (most recent call last):"
    assert re.fullmatch(rf'  File "{FIXTURES}/functions.py", line \d+, in fails', place)
    assert last == "ValueError: cannot do that with 6 letters"
    assert set(failure.details) == {"type", "traceback"}
    assert failure.details["type"] == "ValueError"
    logged = next(log["traceback"] for log in logs if log["event"] == "tool.failed")
    assert "python_host.py" in logged


async def test_what_was_printed_and_what_led_to_a_failure_is_told_with_it() -> None:
    environment = replace(ENVIRONMENT, redact=Redaction({"TOKEN": "t0ken-of-the-test"}).text)
    with capture_logs():
        async with open_python(tools("explains"), environment) as transport:
            with pytest.raises(ToolFailed):
                await transport.call("explains", {"token": "of an earlier call"}, CONTEXT)
            with pytest.raises(ToolFailed) as caught:
                await transport.call("explains", {"token": "t0ken-of-the-test"}, CONTEXT)
    told = caught.value.failure.details
    assert told["printed"] == "line 0 of it\nline 1 of it\nusing [secret:TOKEN]\nno newline"
    assert "KeyError: 'missing'\n\nThe above exception was the direct cause" in told["traceback"]
    files = re.findall(r'File "([^"]+)"', told["traceback"])
    assert files == [f"{FIXTURES}/functions.py"] * 3


async def test_what_is_told_of_much_that_was_printed_is_its_end() -> None:
    found = await failure("explains", token="s", lines=20_000)
    printed = found.details["printed"].splitlines()
    assert printed[0] == "…"
    assert printed[-3:] == ["line 19999 of it", "using s", "no newline"]
    assert 0.9 * PRINTED_CHARS_MAX < len(found.details["printed"]) <= PRINTED_CHARS_MAX + 2


async def test_a_coroutine_has_a_traceback_without_the_event_loop() -> None:
    found = await failure("fails_later")
    assert re.findall(r"in (\w+)", found.details["traceback"]) == ["fails_later", "_inner"]


async def test_sys_exit_is_a_failure_of_the_tool() -> None:
    found = await failure("exits")
    assert (found.code, found.message) == ("tool.failed", "tool exits raised SystemExit: leaving")


async def test_an_import_that_fails_shows_where() -> None:
    found = await opening_failure("broken_import.tool")
    [place] = re.findall(r"File .*", found.details["traceback"])
    assert "broken_import.py" in place
    loud = await opening_failure("exits_at_import:tool")
    assert "it printed last: leaving at the import" in loud.message


async def test_the_last_words_of_a_process_are_told() -> None:
    found = await failure("dies_loudly")
    assert found.message.endswith("ended with exit status 3; it printed last: the last words")
    assert found.details == {"printed": "the last words"}
    crash = await failure("segfaults")
    assert "Fatal Python error: Segmentation fault" in crash.details["printed"]


@pytest.mark.parametrize(("name", "how"), [("dies", "ended with exit status 3"), ("segfaults", "killed by SIGSEGV")])
async def test_a_dying_process_is_a_crash_and_the_next_call_gets_another(name: str, how: str) -> None:
    with capture_logs():
        async with open_python(tools(name, "add"), ENVIRONMENT) as transport:
            with pytest.raises(ToolFailed) as caught:
                await transport.call(name, {}, CONTEXT)
            assert await transport.call("add", {"a": 1}, CONTEXT) == 3
    assert caught.value.failure.code == "tool.crashed"
    assert how in caught.value.failure.message


async def test_prints_of_every_kind_go_to_the_log_and_hurt_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_tools, "HOST", forks.REAL_HOST)
    with capture_logs() as logs:
        async with open_python(tools("noisy", "reads", "forks"), ENVIRONMENT) as transport:
            assert await transport.call("noisy", {}, CONTEXT) == "still here"
            assert await transport.call("reads", {}, CONTEXT) == ""
            assert await transport.call("forks", {}, CONTEXT) == "the parent"
            expected = {"printed", "to stderr", "\0\0\0\0\0\0\0\5raw bytes on fd 1", "grandchild"}
            await until(lambda: expected <= {log.get("line") for log in logs})


async def test_a_call_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    found = await failure("hangs", timeout_s=10.0, started=str(started))
    assert (found.code, found.details) == ("tool.timeout", {"timeout_s": 10.0, "printed": "hanging now"})
    for pid in map(int, started.read_text().split()):
        await until(lambda pid=pid: is_gone(pid))


async def test_a_cancelled_call_is_killed_and_others_go_on(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    async with open_python(tools("hangs", "add"), ENVIRONMENT) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.call, "hangs", {"started": str(started)}, CONTEXT)
            await until(started.exists)
            assert await transport.call("add", {"a": 1}, CONTEXT) == 3
            tasks.cancel_scope.cancel()
        for pid in map(int, started.read_text().split()):
            await until(lambda pid=pid: is_gone(pid))
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
    for pid in map(int, started.read_text().split()):
        await until(lambda pid=pid: is_gone(pid))


# -- processes ----------------------------------------------------------------------------------------------------


async def test_calls_overlap_in_processes_of_their_own(tmp_path: Path) -> None:
    pids: list[int] = []

    async def one(name: str) -> None:
        input = {"folder": str(tmp_path), "name": name, "others": 3}
        pids.append(await transport.call("meets", input, CONTEXT))

    async with open_python(tools("meets"), ENVIRONMENT) as transport, anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(one, name)
    assert len(set(pids)) == 3


async def test_idle_processes_are_used_again_and_end_with_the_source() -> None:
    async with open_python(tools("process"), ENVIRONMENT) as transport:
        pids = {await transport.call("process", {}, CONTEXT) for _ in range(5)}
        assert len(pids) == 1
    assert all(is_gone(pid) for pid in pids)


async def test_an_idle_process_that_died_is_replaced() -> None:
    async with open_python(tools("process"), ENVIRONMENT) as transport:
        first = await transport.call("process", {}, CONTEXT)
        os.kill(first, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{first}").exists())
        # Whoever waited for it in a thread, where that is how it is done, has left the news in the loop: what another
        # thread leaves there comes behind it.
        await until(lambda: not any("waitpid" in thread.name for thread in threading.enumerate()))
        await anyio.to_thread.run_sync(threading.active_count)
        await anyio.wait_all_tasks_blocked()
        with capture_logs():
            second = await transport.call("process", {}, CONTEXT)
    assert second != first


async def test_no_more_processes_than_the_limit() -> None:
    pids: set[int] = set()

    async def one() -> None:
        pids.add(await transport.call("process", {}, CONTEXT))

    async with open_python(tools("process"), ENVIRONMENT) as transport, anyio.create_task_group() as tasks:
        for _ in range(4 * HOSTS_MAX):
            tasks.start_soon(one)
    assert len(pids) <= HOSTS_MAX


# -- text that UTF-8 cannot carry -------------------------------------------------------------------------------------


async def test_halves_of_characters_are_joined_or_replaced_wherever_a_tool_says_them() -> None:
    progress: list[str] = []
    context = replace(CONTEXT, on_progress=progress.append)
    with capture_logs() as logs:
        async with open_python(tools("halves"), ENVIRONMENT) as transport:
            assert await transport.call("halves", {"how": "returns"}, context) == {"a�": ["😀", "�"]}
            report: Any = await transport.call("halves", {"how": "object"}, context)
            with pytest.raises(ToolFailed) as caught:
                await transport.call("halves", {"how": "raises"}, context)
            assert await transport.call("halves", {"how": "returns"}, context)
    assert report["title"] == "�"
    assert caught.value.failure.message == "tool halves raised ValueError: raised �"
    assert caught.value.failure.details["traceback"].endswith("ValueError: raised �")
    assert progress == ["progress �"] * 4
    assert [log["message"] for log in logs if log["event"] == "tool.log"] == ["logged �"] * 4


async def test_a_call_that_needs_a_person_fails() -> None:
    failed = await failure("asks_a_person")
    assert failed.code == NEEDS_PERSON
    assert "agent clerk calls pay in the step asks_a_person" in failed.message
