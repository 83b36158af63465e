"""The sandbox: what code of a definition can do, and attempts to escape that must fail."""

import errno
import os
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from structlog.testing import capture_logs

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.kinds.code import NESTING_MAX, CodeSandboxes, Mode
from callboard.actors.sandbox.process import Sandbox, SandboxBroken
from callboard.bus.effects import Failure
from tests.support.patience import until

JOB = cast(Job, None)
"""Code gets nothing of its run."""

ISOLATES = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")

WALK = "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0].__init__.__globals__"
"""An expression for the globals of the module `os`, which needs no import."""

pytestmark = pytest.mark.skipif(not ISOLATES, reason="no filter of system calls is known here")


@pytest.fixture(scope="module")
async def code() -> AsyncIterator[CodeSandboxes]:
    async with aclosing(CodeSandboxes("isolated")) as code:
        yield code


@pytest.fixture
async def fresh() -> AsyncIterator[CodeSandboxes]:
    """Code whose process has not been started."""
    async with aclosing(CodeSandboxes("isolated")) as code:
        yield code


async def run(code: CodeSandboxes, source: str, *inputs: Any, **more: Any) -> Any:
    """The results of a source that is a function `f` or a lambda."""
    limits = {name: more.pop(name) for name in ("wall_s", "cpu_s", "memory_bytes", "output_bytes") if name in more}
    function = "f" if source.startswith("def f") else None
    request = {"source": source, "function": function, "inputs": list(inputs) or [1], "limits": limits, **more}
    value, _metadata = await code.carry(JOB, request)
    return value["results"]


async def result(code: CodeSandboxes, source: str, **more: Any) -> Any:
    [one] = await run(code, source, **more)
    return one


async def failure(code: CodeSandboxes, source: str, **more: Any) -> Failure:
    with pytest.raises(EffectFailed) as caught:
        await run(code, source, **more)
    return caught.value.failure


async def test_the_function_is_called_for_each_input(code: CodeSandboxes) -> None:
    first, second, third = await run(code, "lambda x: {'twice': x * 2}", 1, None, [2])
    assert first == {"value": {"twice": 2}}
    assert second["code"] == "code.raised"
    assert third == {"value": {"twice": [2, 2]}}


async def test_the_offered_modules_can_be_used(code: CodeSandboxes) -> None:
    source = """def f(x: Dict[str, Any]) -> Any:
    import math, urllib.parse
    from datetime import datetime
    from collections import Counter
    class Point:
        at = math.floor(x["n"])
    day = datetime.strptime("2024-02-29", "%Y-%m-%d").strftime("%A")
    return [Point.at, day, Counter("aab")["a"], urllib.parse.quote("a b"), json.loads("[1]"), sorted(x)]
"""
    assert await run(code, source, {"n": 2.5}) == [{"value": [2, "Thursday", 2, "a%20b", [1], ["n"]]}]


async def test_printed_text_is_returned_beside_the_results(code: CodeSandboxes) -> None:
    request = {"source": "lambda x: print('x is', x)", "inputs": [1, 2]}
    assert await code.carry(JOB, request) == (
        {"results": [{"value": None}, {"value": None}]},
        {"printed": "x is 1\nx is 2\n"},
    )


@pytest.mark.parametrize("value", ["text", 3, 1.5, [1, 2], True, None])
async def test_a_wrapped_scalar_has_the_usual_member_names(code: CodeSandboxes, value: Any) -> None:
    both = "lambda x: [x, x['value'], x['output'], x['data']['result'], x.get('value'), x.get('other', 7)]"
    assert await run(code, both, value, wrap=True) == [{"value": [*[value] * 5, 7]}]
    assert (await run(code, both, value))[0]["code"] == "code.raised"


async def test_an_object_is_never_wrapped(code: CodeSandboxes) -> None:
    assert await run(code, "lambda x: x", {"a": 1}, wrap=True) == [{"value": {"a": 1}}]


async def test_a_call_leaves_nothing_for_the_next_one(code: CodeSandboxes) -> None:
    assert await result(code, "lambda x: setattr(json, 'seen', x) or json.seen") == {"value": 1}
    assert await result(code, "lambda x: hasattr(json, 'seen')") == {"value": False}


@pytest.mark.parametrize(
    "source",
    [
        "lambda x: open('/etc/passwd').read()",
        f"lambda x: {WALK}['open']('/etc/passwd', 0)",
        f"lambda x: {WALK}['fork']()",
        f"lambda x: {WALK}['kill']({WALK}['getppid']() or 1, 9)",
        f"lambda x: {WALK}['listdir']('/')",
        f"lambda x: {WALK}['dup'](1)",
        f"lambda x: {WALK}['write'](2, b'out')",
        "lambda x: json.codecs.open('/proc/self/environ').read()",
        "lambda x: eval('1')",
        "def f(x):\n    import os",
        "def f(x):\n    import socket",
        "def f(x):\n    import time\n    time.sleep(1)",
    ],
)
async def test_code_cannot_use_files_or_processes(code: CodeSandboxes, source: str) -> None:
    one = await result(code, source)
    assert one["code"] == "code.refused"
    assert "(line " in one["error"]


async def test_code_cannot_open_a_socket(code: CodeSandboxes) -> None:
    # The call of the C library, as no Python module for sockets is loaded.
    walk = f"    ctypes = {WALK}['sys'].modules['ctypes']\n"
    call = "    fd = ctypes.CDLL(None, use_errno=True).socket(2, 1, 0)\n    return [fd, ctypes.get_errno()]"
    assert await result(code, f"def f(x):\n{walk}{call}") == {"value": [-1, errno.EPERM]}


async def test_code_does_not_see_the_environment_of_the_worker(
    fresh: CodeSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s3cret")
    assert await result(fresh, f"lambda x: dict({WALK}['environ'])") == {"value": {}}


async def test_code_cannot_fork(code: CodeSandboxes) -> None:
    source = f"def f(x):\n    made = 0\n    for _ in range(100):\n        try:\n            {WALK}['fork']()\n"
    source += "            made += 1\n        except PermissionError:\n            pass\n    return made"
    assert await result(code, source) == {"value": 0}


async def test_code_cannot_start_a_program(code: CodeSandboxes, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    await result(code, f"lambda x: {WALK}['system']('touch {touched}')")
    assert not touched.exists()


async def test_code_that_writes_to_the_answer_pipe_fails_only_its_own_call(code: CodeSandboxes) -> None:
    forged = await failure(code, f"lambda x: {WALK}['write'](1, b'{{}}') and {WALK}['_exit'](0)")
    assert forged.code == "code.crashed"
    noise = await failure(code, f"lambda x: {WALK}['write'](1, b'noise')")
    assert noise.code == "code.bad_output"
    assert await result(code, "lambda x: x") == {"value": 1}


async def test_an_endless_loop_is_ended(code: CodeSandboxes) -> None:
    endless = "def f(x):\n    while True:\n        pass"
    assert (await failure(code, endless, cpu_s=0.2)).code == "code.cpu"
    ended = await failure(code, endless, wall_s=0.2)
    assert (ended.code, ended.message) == ("code.timeout", "the code was ended: it took longer than 0.2 s")
    caught = (
        "def f(x):\n    while True:\n        try:\n            f(x)\n        except BaseException:\n            pass"
    )
    assert (await failure(code, caught, cpu_s=0.2)).code == "code.cpu"


async def test_memory_is_bounded(code: CodeSandboxes) -> None:
    assert (await result(code, "lambda x: [0] * 10**9"))["code"] == "code.memory"
    growing = "def f(x):\n    kept = []\n    while True:\n        kept.append(bytearray(10**6))"
    assert (await result(code, growing))["code"] == "code.memory"
    assert await result(code, "lambda x: len([0] * 10**6)") == {"value": 10**6}


async def test_the_output_is_bounded(code: CodeSandboxes) -> None:
    assert (await failure(code, "lambda x: 'x' * 1001", output_bytes=1000)).code == "code.output_too_large"
    flood = f"def f(x):\n    while True:\n        {WALK}['write'](1, b'x' * 10**6)"
    assert (await failure(code, flood)).code == "code.output_too_large"
    assert (await code.carry(JOB, {"source": "lambda x: print('x' * 10**6)", "inputs": [1]}))[1] == {
        "printed": "x" * 7_999 + "\n"
    }


async def test_nesting_is_bounded(code: CodeSandboxes) -> None:
    nested = "def f(x):\n    found = []\n    for _ in range(x - 1):\n        found = [found]\n    return found"
    deepest, deeper, none = await run(code, nested, NESTING_MAX, NESTING_MAX + 1, 10**5)
    assert deepest["value"]
    assert (deeper["code"], none["code"]) == ("code.bad_output", "code.bad_output")
    assert (await failure(code, "(" * 300 + "1" + ")" * 300)).code == "code.invalid"
    assert (await result(code, "def f(x):\n    return f(x)"))["code"] == "code.raised"


@pytest.mark.parametrize("value", ["{1, 2}", "float('nan')", "'\\ud800'", "lambda: 1", "b'x'", "{(1, 2): 3}"])
async def test_a_result_that_is_not_json_is_bad_output(code: CodeSandboxes, value: str) -> None:
    assert (await result(code, f"lambda x: {value}"))["code"] == "code.bad_output"


async def test_an_exception_is_returned_with_its_line(code: CodeSandboxes) -> None:
    source = "def f(x):\n    return g(x)\n\ndef g(x):\n    return 1 / (x - 1)"
    assert await result(code, source) == {
        "error": "ZeroDivisionError: division by zero (line 5: return 1 / (x - 1))",
        "code": "code.raised",
    }
    assert (await result(code, "def f(x):\n    raise SystemExit(3)"))["code"] == "code.raised"
    unreadable = "def f(x):\n    class E(Exception):\n        def __str__(self):\n            return 1\n    raise E"
    assert "cannot be read" in (await result(code, unreadable))["error"]


async def test_an_invalid_source_is_refused(code: CodeSandboxes) -> None:
    syntax = await failure(code, "def f(x)\n    return 1")
    assert (syntax.code, syntax.retryable) == ("code.invalid", False)
    assert syntax.message.endswith("(line 1: def f(x))")
    assert (await failure(code, "7")).code == "code.invalid"
    assert (await failure(code, "\0")).code == "code.invalid"
    named = {"source": "x = 1", "function": "g", "inputs": [1]}
    with pytest.raises(EffectFailed, match=r"code\.invalid: the source defines no function g"):
        await code.carry(JOB, named)
    raising = await failure(code, "def f(x):\n    pass\n\n1 / 0")
    assert (raising.code, raising.message) == ("code.raised", "ZeroDivisionError: division by zero (line 4: 1 / 0)")


async def test_an_invalid_request_is_refused(code: CodeSandboxes) -> None:
    for request, expected in (
        ({"inputs": []}, "code.malformed"),
        ({"source": "1", "inputs": [], "language": "javascript"}, "code.language"),
    ):
        with pytest.raises(EffectFailed) as caught:
            await code.carry(JOB, request)
        assert caught.value.failure.code == expected


async def test_a_worker_with_code_off_refuses_it() -> None:
    assert (await failure(CodeSandboxes("off"), "lambda x: x")).code == "code.unavailable"


async def test_bounded_code_cannot_use_files_either() -> None:
    async with aclosing(CodeSandboxes("bounded")) as bounded:
        with capture_logs() as logs:
            assert await result(bounded, "lambda x: x + 1") == {"value": 2}
        assert [entry["log_level"] for entry in logs] == ["warning"]
        opened = await result(bounded, f"lambda x: {WALK}['open']('/etc/passwd', 0)")
        assert "Too many open files" in opened["error"]
        assert (await failure(bounded, "def f(x):\n    while True: pass", cpu_s=0.2)).code == "code.cpu"


async def test_each_request_has_a_new_process_that_ends_with_it() -> None:
    async with aclosing(CodeSandboxes("bounded")) as bounded:
        parents = [(await result(bounded, f"lambda x: {WALK}['getppid']()"))["value"] for _ in range(3)]
        assert len(set(parents)) == len(parents)
        await until(lambda: not _sandboxes() & set(parents))


async def test_code_ends_with_its_worker() -> None:
    sandbox = await Sandbox.start(isolated=True)
    limits = {"wall_s": 60.0, "cpu_s": 60.0, "memory_bytes": 2**28, "output_bytes": 1000}
    endless = b'{"source": "def f(x):\\n    while True: pass", "function": "f", "inputs": [1], "wrap": false}'
    before = _sandboxes()
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(SandboxBroken):
                await sandbox.ask(limits, endless)

        tasks.start_soon(ask)
        await until(lambda: len(_sandboxes() - before) >= 2)
        # The pipe also closes when a worker ends.
        await sandbox._stdin.aclose()  # pyright: ignore[reportPrivateUsage]
    await until(lambda: not _sandboxes() - before)
    await sandbox.kill()


async def test_code_is_refused_if_isolation_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, fresh: CodeSandboxes
) -> None:
    async def start(isolated: bool) -> Sandbox:
        raise SandboxBroken(f"no filter, isolated={isolated}")

    monkeypatch.setattr(Sandbox, "start", start)
    with capture_logs() as logs:
        refused = await failure(fresh, "lambda x: x")
    assert (refused.code, refused.retryable) == ("code.unavailable", False)
    assert "no filter, isolated=True; its setting `code` may waive isolation" in refused.message
    assert [entry["log_level"] for entry in logs] == ["warning"]


async def test_a_cancelled_effect_leaves_no_process(fresh: CodeSandboxes) -> None:
    began = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    with anyio.move_on_after(0.5) as scope:
        await run(fresh, "def f(x):\n    while True:\n        pass", cpu_s=60, wall_s=60)
    assert scope.cancelled_caught
    await until(lambda: not _sandboxes() - began)
    assert await result(fresh, "lambda x: x") == {"value": 1}


def _sandboxes() -> set[int]:
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if b"callboard.actors.sandbox.program" in line and _is_ours(name):
                found.add(int(name))
    return found


def _is_ours(process: str) -> bool:
    """Whether a process descends from this one: other tests have sandboxes too."""
    while process not in ("0", "1", str(os.getpid())):
        try:
            process = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            return False
    return process == str(os.getpid())


@pytest.mark.parametrize("mode", ["isolated", "bounded"])
async def test_concurrent_requests_get_their_own_results(mode: Mode) -> None:
    found: list[Any] = []

    async def run_one(number: int) -> None:
        found.append((await run(code, "lambda x: x", number))[0]["value"])

    async with aclosing(CodeSandboxes(mode)) as code, anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(run_one, number)
    assert sorted(found) == list(range(10))
