"""Performs the asynchronous tests of an SDK in workflows, through its adapter.

``python -m tests.maintenance.sdk_examples.own_tests SDK TESTS FILE… [OPTION…]`` performs each asynchronous test of the
files in the folder of the SDK's tests as the code of a workflow, in which each run of an agent or a graph is durable.
With ``none`` for the SDK
the tests are performed as they are, so that those which fail by themselves are known. The options are those of pytest.
The tests are not replayed, because they keep what models were asked in variables.
"""

import asyncio
import importlib
import inspect
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from callboard import Runtime
from callboard.client import Client
from tests.maintenance.sdk_examples import examples
from tests.maintenance.sdk_examples.examples import PROGRAMS

LIMIT_S = 60
"""How long a test may take."""


_PACKAGE = "own"
"""The package to which the tests are copied. Most SDKs name theirs `tests`, as this repository does."""


def main() -> int:
    """Perform the tests that the command line names."""
    sdk, folder, *given = sys.argv[1:]
    with TemporaryDirectory() as root:
        package = Path(root) / _PACKAGE
        shutil.copytree(folder, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "__init__.py").touch()
        for path in package.rglob("*.py"):
            path.write_text(re.sub(r"(from|import) tests\b", rf"\1 {_PACKAGE}", path.read_text()))
        chosen = [f"{package}/{one}" if one.endswith(".py") else one for one in given]
        options = ["--sdk", sdk, "--rootdir", root, "-c", "/dev/null", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
        return pytest.main([*options, *chosen], plugins=[sys.modules[__name__]])


class Background:
    """A runtime on a thread of its own, which performs one test at a time."""

    def __init__(self) -> None:
        self._ready: Future[Client] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)
        self._thread.start()
        self._count = 0

    async def _serve(self) -> None:
        with TemporaryDirectory() as folder:
            async with Runtime(data_dir=f"{folder}/state", code=[examples]) as runtime:
                self._ready.set_result(runtime)
                await self._stop.wait()

    def close(self) -> None:
        """Stop the runtime."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def perform(self, test: Any, given: dict[str, Any]) -> None:
        """Perform a test in a workflow, and raise what it raises."""
        raised: list[BaseException] = []

        async def program() -> None:
            try:
                await test(**given)
            except BaseException as error:
                raised.append(error)
                raise

        self._count += 1
        name = f"test-{self._count}"
        PROGRAMS[name] = program
        runtime = self._ready.result()
        doing = asyncio.run_coroutine_threadsafe(self._result(runtime, name), self._loop)
        try:
            failure = doing.result(LIMIT_S)
        finally:
            doing.cancel()
            del PROGRAMS[name]
        if raised:
            raise raised[-1]
        assert failure is None, failure

    async def _result(self, runtime: Client, name: str) -> str | None:
        """Return why a run has failed, if it has. People approve what it asks."""
        run = await runtime.start(registered="example", input={"name": name})
        async for event in run.events():
            if event.type == "human.asked":
                await run.answer(True, interaction=event.key)
        result = await run.result()
        return None if result.status == "completed" else str(result.error)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sdk", default="none", help="the adapter: openai_agents, langgraph, or none")


@pytest.fixture(scope="session", autouse=True)
def background(request: pytest.FixtureRequest) -> Iterator[Background | None]:
    """The runtime of the session, if there is an adapter."""
    sdk = str(request.config.getoption("--sdk"))
    if sdk == "none":
        yield None
        return
    importlib.import_module(f"tests.maintenance.sdk_examples.{sdk}").patch()
    made = Background()
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Perform an asynchronous test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # pyright: ignore[reportPrivateUsage]
    given = {name: pyfuncitem.funcargs[name] for name in names}
    made: Any = pyfuncitem.funcargs["background"]
    if made is None:
        asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), LIMIT_S))
    else:
        made.perform(pyfuncitem.obj, given)
    return True


if __name__ == "__main__":
    sys.exit(main())
