"""The ``process`` provider: which programs are allowed, their output, and that no process keeps running."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.actors.providers.process import PROCESS, ProcessProvider
from callboard.actors.providers.process_rules import ProcessRules, allows
from callboard.actors.providers.provider import Answer
from tests.support.flow_providers import code_of, flow_of, played, request, value_of
from tests.support.flows import FlowTheatre

PATIENCE_S = 20.0


def rules(**more: Any) -> ProcessRules:
    lent = {"PATH": os.environ["PATH"], "LENT": "yes"}
    return replace(ProcessRules(allow=[f"{sys.executable} *"], env=lent), **more)


async def run(code: str, *args: str, input: Any = None, more: dict[str, Any] | None = None, **arguments: Any) -> Answer:
    asked = request(PROCESS, input, argv=[sys.executable, "-c", code, *args], **arguments)
    return await ProcessProvider(rules(**(more or {}))).execute(asked)


# -- which programs are allowed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "argv", "allowed"),
    [
        ("git log *", ["git", "log"], True),
        ("git log *", ["git", "log", "-1", "x y"], True),
        ("git log *", ["git", "push"], False),
        ("git log", ["git", "log", "-1"], False),
        ("git *", ["git log", "x"], False),
        ("*", ["ls"], True),
        ("*", ["ls", "-l"], False),
        ("* *", ["ls", "-l", "x"], True),
        ("echo 'a b'", ["echo", "a b"], True),
        ("tool-[ab] --n=?", ["tool-a", "--n=7"], True),
        ("tool-[ab] --n=?", ["tool-c", "--n=7"], False),
        ("GIT *", ["git"], False),
        ("", ["ls"], False),
    ],
)
def test_patterns_are_read_word_by_word(pattern: str, argv: list[str], allowed: bool) -> None:
    assert allows([pattern], argv) is allowed


async def test_nothing_runs_unless_the_worker_allows_it(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    answer = await ProcessProvider(ProcessRules()).execute(request(PROCESS, argv=["touch", str(touched)]))
    assert (code_of(answer), answer.result["retryable"]) == ("NotAllowed", False)
    assert "providers.process.allow" in answer.result["message"]
    assert answer.result["details"] == {"setting": "providers.process.allow", "allowed": []}
    assert not touched.exists()


async def test_a_variable_that_calls_may_not_set_is_refused() -> None:
    answer = await run("pass", env={"LD_PRELOAD": "x", "MODE": "y"}, more={"settable": ["MODE"]})
    assert code_of(answer) == "NotAllowed"
    assert "LD_PRELOAD" in answer.result["message"]


# -- the result --------------------------------------------------------------------------------------------------------


async def test_a_program_gets_the_input_and_answers_on_stdout() -> None:
    answer = await run("import sys, json; print(json.load(sys.stdin)['n'] + 1)", input={"n": 1})
    assert value_of(answer) == {"exit_code": 0, "stdout": "2\n", "stderr": ""}
    assert answer.metadata["exit_code"] == 0


async def test_output_in_json_is_parsed() -> None:
    code = "import sys; print('[1, 2]'); print('told', file=sys.stderr)"
    assert value_of(await run(code, output="json")) == {"exit_code": 0, "stdout": [1, 2], "stderr": "told\n"}
    answer = await run("print('no')", output="json")
    assert (code_of(answer), answer.result["details"]["stdout"]) == ("InvalidOutput", "no\n")


async def test_a_program_runs_in_an_empty_folder_that_is_removed() -> None:
    code = "import os; open('made', 'w'); print(os.getcwd(), os.listdir())"
    folder, listed = value_of(await run(code))["stdout"].split(" ", 1)
    assert listed == "['made']\n"
    assert not await anyio.Path(folder).exists()


async def test_a_program_has_the_variables_of_the_worker_and_of_the_call() -> None:
    code = "import os; print(sorted(name for name in os.environ if name not in ('LC_CTYPE', 'CALLBOARD_KEEPER')))"
    answer = await run(code, env={"MODE": "x"}, more={"settable": ["MODE"]})
    assert value_of(answer)["stdout"] == "['LENT', 'MODE', 'PATH']\n"


async def test_an_unexpected_exit_code_is_a_failure() -> None:
    answer = await run("import sys; print('out'); sys.exit('broken')")
    assert code_of(answer) == "Failed"
    assert answer.result["details"] == {"exit_code": 1, "stdout": "out\n", "stderr": "broken\n"}
    assert value_of(await run("import sys; sys.exit(3)", expect=[0, 3]))["exit_code"] == 3


async def test_a_program_killed_by_a_signal_is_a_failure() -> None:
    answer = await run("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert (code_of(answer), answer.result["details"]["exit_code"]) == ("Failed", -15)


async def test_a_missing_program_is_a_failure() -> None:
    answer = await ProcessProvider(ProcessRules(allow=["no-such-program"])).execute(
        request(PROCESS, argv=["no-such-program"])
    )
    assert code_of(answer) == "NotFound"


async def test_a_program_need_not_read_its_input() -> None:
    assert value_of(await run("print('x')", input="y" * 2_000_000))["stdout"] == "x\n"


async def test_output_is_bounded() -> None:
    answer = await run("while True: print('x' * 1000)", more={"output_bytes_max": 100_000})
    assert code_of(answer) == "OutputTooLarge"


# -- no process keeps running ------------------------------------------------------------------------------------------

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])
with open(sys.argv[1], 'w') as file:
    file.write(str(child.pid))
if sys.argv[2] == 'wait':
    time.sleep(1000)
"""


async def wait_for_end(pid: int) -> None:
    """Wait until a process has ended, or is a zombie."""
    with anyio.fail_after(PATIENCE_S):
        while _runs(pid):  # noqa: ASYNC110 - the process is not a child of this one
            await anyio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def read_pid(file: Path) -> int:
    with anyio.fail_after(PATIENCE_S):
        while not (written := _written(file)):  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.01)
    return int(written)


def _written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def test_a_timeout_kills_every_started_process(tmp_path: Path) -> None:
    answer = await run(FAMILY, str(tmp_path / "pid"), "wait", timeout="PT1S")
    assert (code_of(answer), answer.result["type"]) == ("Timeout", "timeout")
    await wait_for_end(await read_pid(tmp_path / "pid"))


async def test_a_cancelled_call_kills_every_started_process(tmp_path: Path) -> None:
    pid = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(FAMILY, str(tmp_path / "pid"), "wait"))
        pid = await read_pid(tmp_path / "pid")
        tasks.cancel_scope.cancel()
    assert pid
    await wait_for_end(pid)


async def test_the_end_of_a_program_kills_its_children(tmp_path: Path) -> None:
    assert value_of(await run(FAMILY, str(tmp_path / "pid"), "leave"))["exit_code"] == 0
    await wait_for_end(await read_pid(tmp_path / "pid"))


# -- containers: a command that takes docker's arguments and logs them -------------------------------------------------

RUNTIME = """#!{python}
import os, sys
with open({log!r}, 'a') as log:
    print(*sys.argv[1:], file=log)
if sys.argv[1] == 'run':
    if sys.argv[-1] == 'hang':
        import time
        time.sleep(1000)
    print(os.environ.get('MODE'), sys.stdin.read())
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Callable[[], list[str]]:
    program = tmp_path / "runtime"
    program.write_text(RUNTIME.format(python=sys.executable, log=str(tmp_path / "log")))
    program.chmod(0o755)
    return lambda: (tmp_path / "log").read_text().splitlines()


async def test_an_image_is_run_by_the_container_command(runtime: Callable[[], list[str]], tmp_path: Path) -> None:
    ours = {
        "images": ["registry.example/*"],
        "containers": str(tmp_path / "runtime"),
        "settable": ["MODE"],
        "allow": [],
    }
    asked = request(PROCESS, [1], argv=["work", "-v"], image="registry.example/tool:1", env={"MODE": "fast"})
    assert value_of(await ProcessProvider(rules(**ours)).execute(asked))["stdout"] == "fast [1]\n"
    expected = "run --rm --interactive --name callboard-key-1 --env MODE registry.example/tool:1 work -v"
    assert runtime() == ["rm --force callboard-key-1", expected], "a container that a dead worker left is removed first"
    foreign = request(PROCESS, argv=["work"], image="elsewhere/tool")
    assert code_of(await ProcessProvider(rules(**ours)).execute(foreign)) == "NotAllowed"
    bare = request(PROCESS, argv=["work"])
    assert code_of(await ProcessProvider(rules(**ours)).execute(bare)) == "NotAllowed"


async def test_a_container_that_takes_too_long_is_removed(runtime: Callable[[], list[str]], tmp_path: Path) -> None:
    ours = {"images": ["tool"], "containers": str(tmp_path / "runtime")}
    asked = request(PROCESS, argv=["hang"], image="tool", timeout="PT1S")
    assert code_of(await ProcessProvider(rules(**ours)).execute(asked)) == "Timeout"
    assert [line.split()[0] for line in runtime()] == ["rm", "run", "rm"]


# -- in a run ----------------------------------------------------------------------------------------------------------


async def test_a_flow_runs_a_program() -> None:
    harness = FlowTheatre()
    harness.providers[PROCESS] = lambda: ProcessProvider(rules())
    code = "import sys; sys.stdout.write(sys.stdin.read().upper())"
    output, _ = await played(harness, flow_of(PROCESS, argv=[sys.executable, "-c", code], output="json"), "word")
    assert output["value"] == {"exit_code": 0, "stdout": "WORD", "stderr": ""}
    assert output["metadata"]["exit_code"] == 0
