"""Programs that workers start, and their child processes, end with their effect and with their worker."""

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from callboard.actors.programs import keeper
from callboard.actors.programs.orphan_cleanup import sweep
from callboard.actors.programs.program import Program
from callboard.actors.providers.process import ProcessProvider
from callboard.actors.providers.process_rules import ProcessRules
from callboard.actors.tools.mcp import open_mcp
from callboard.actors.tools.python import open_python
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.bus.effects import McpTools, PythonTools
from tests.support.flow_providers import request
from tests.support.patience import is_gone, until
from tests.support.places import TESTS

FIXTURES = TESTS / "fixtures" / "tools"
SPAWNING = str(FIXTURES / "spawning.py")
ENV = dict(os.environ)
KINDS = 4
"""How many processes `spawning` has: itself, a child, one in its own session, a daemon."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has child subreapers")


async def pids_in(path: Path) -> list[int]:
    await until(path.exists)
    return list(map(int, (await anyio.Path(path).read_text()).split()))


async def until_all_are_gone(pids: list[int]) -> None:
    assert len(pids) == KINDS
    for pid in pids:
        await until(lambda pid=pid: is_gone(pid))


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-S", *arguments]


async def run_to_end(command: list[str]) -> int:
    program = await Program.start(command, env=ENV)
    try:
        return await program.wait()
    finally:
        await program.end()


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(3)", 3), ("import os; os.abort()", -6), ("import os; os.kill(os.getpid(), 9)", -9), ("", 0)],
)
async def test_a_program_ends_with_its_own_exit_status(code: str, expected: int) -> None:
    assert await run_to_end(python("-c", code)) == expected


async def test_a_program_gets_the_given_input_folder_and_environment(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.getcwd(), 'LC_ALL' in os.environ, os.environ['A'])"
    program = await Program.start(python("-I", "-c", code), env={"A": "b"}, cwd=str(tmp_path))
    await program.stdin.send(b"input")
    await program.stdin.aclose()
    output = b"".join([chunk async for chunk in program.stdout])
    assert output.decode() == f"input {tmp_path} False b\n"
    await program.end()


async def test_only_the_mark_is_added_to_the_environment() -> None:
    program = await Program.start(["/usr/bin/env"], env={"A": "b"})
    output = b"".join([chunk async for chunk in program.stdout])
    await program.end()
    assert sorted(line.partition("=")[0] for line in output.decode().splitlines()) == ["A", keeper.MARK]


async def test_the_error_names_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        await Program.start(["no-such-program-anywhere"], env=ENV)
    assert missing.value.filename == "no-such-program-anywhere"
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PermissionError):
        await Program.start([str(file)], env=ENV)


async def test_the_children_of_a_program_end_with_it(tmp_path: Path) -> None:
    assert await run_to_end(python(SPAWNING, str(tmp_path / "pids"))) == 0
    await until_all_are_gone(await pids_in(tmp_path / "pids"))


async def test_the_children_of_a_program_are_killed_with_it(tmp_path: Path) -> None:
    program = await Program.start(python(SPAWNING, str(tmp_path / "pids"), "waits"), env=ENV)
    pids = await pids_in(tmp_path / "pids")
    await program.end()
    assert all(is_gone(pid) for pid in pids)
    assert program.returncode == -signal.SIGKILL


async def test_a_request_to_end_reaches_the_program() -> None:
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); signal.pause()"
    program = await Program.start(python("-c", code), env=ENV)
    output = b""
    while b"\n" not in output:
        output += await program.stdout.receive()
    program.terminate()
    assert await program.wait() == 7
    await program.end()


WORKER = """
import anyio, os, sys
from callboard.actors.programs.program import Program
async def main():
    program = await Program.start([sys.executable, "-S", *sys.argv[1:]], env=dict(os.environ))
    await anyio.sleep_forever()
anyio.run(main)
"""


def keeper_of(pid: int) -> int:
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    mark = next(one for one in environment if one.startswith(keeper.MARK.encode()))
    return int(mark.partition(b"=")[2].partition(b".")[0])


async def test_a_program_ends_with_its_worker_or_is_swept_if_its_keeper_died(tmp_path: Path) -> None:
    for keeper_dies in (False, True):
        path = tmp_path / f"pids-{keeper_dies}"
        worker = await anyio.open_process([sys.executable, "-c", WORKER, SPAWNING, str(path), "waits"])
        try:
            pids = await pids_in(path)
            if keeper_dies:
                os.kill(worker.pid, signal.SIGSTOP)
                os.kill(keeper_of(pids[0]), signal.SIGKILL)
                await until(lambda pids=pids: is_gone(pids[0]))
        finally:
            worker.kill()
            await worker.wait()
        if keeper_dies:
            sweep()
        await until_all_are_gone(pids)


async def test_the_program_of_a_killed_keeper_is_swept_and_others_are_not(tmp_path: Path) -> None:
    programs = [await Program.start(python(SPAWNING, str(tmp_path / f"{k}"), "waits"), env=ENV) for k in range(2)]
    first, second = [await pids_in(tmp_path / f"{k}") for k in range(2)]
    os.kill(keeper_of(first[0]), signal.SIGKILL)
    with capture_logs() as logs:
        await programs[0].end()
    await until_all_are_gone(first)
    assert [log["event"] for log in logs] == ["program.swept"]
    assert not any(is_gone(pid) for pid in second)
    await programs[1].end()


Spawn = Callable[[Path, bool], Coroutine[Any, Any, None]]


async def process_provider(path: Path, waits: bool) -> None:
    command = python(SPAWNING, str(path), *(["waits"] if waits else []))
    rules = ProcessRules(allow=[f"{sys.executable} *"], env=ENV)
    await ProcessProvider(rules).execute(request("mwl:provider.call/callboard/process/v1", None, argv=command))


async def python_tool(path: Path, waits: bool) -> None:
    environment = ToolEnvironment(env={**ENV, "PYTHONPATH": str(FIXTURES)})
    async with open_python(PythonTools({"spawn": "spawning:spawn"}), environment) as transport:
        await transport.call("spawn", {"path": str(path), "waits": waits}, ToolCallContext("r1", "a", "key-1"))


async def mcp_server(path: Path, waits: bool) -> None:
    code = f"import runpy, sys; sys.path.insert(0, {str(FIXTURES)!r})"
    code = f"{code}; import spawning; spawning.spawn({str(path)!r}, {waits})"
    server = f"sys.argv = ['', '7']; runpy.run_path({str(FIXTURES / 'mcp_paged_server.py')!r}, run_name='__main__')"
    source = McpTools("spawning", [sys.executable, "-c", f"{code}; {server}"], timeout_s=60.0)
    async with open_mcp(source, ToolEnvironment(env=ENV)):
        return


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FIXTURES))


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("waits", [False, True], ids=["ends", "is_cancelled"])
@pytest.mark.parametrize("spawn", [process_provider, python_tool, mcp_server])
async def test_programs_of_every_kind_end_with_their_children(tmp_path: Path, spawn: Spawn, waits: bool) -> None:
    path = tmp_path / "pids"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawn, path, waits)
        if waits:
            await until(path.exists)
            tasks.cancel_scope.cancel()
    await until_all_are_gone(await pids_in(path))
