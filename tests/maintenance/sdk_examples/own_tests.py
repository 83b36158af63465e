"""Performs the tests of an SDK in workflows, through its adapter.

``python -m tests.maintenance.sdk_examples.own_tests SDK TESTS [FILE…] [OPTION…]`` takes the files in the folder of the
SDK's tests, by default those that its module lists. The options are those of pytest.

First the tests are performed as they are, since they may be of another version than the SDK that is installed, or need
packages that are not. Those that pass are performed again, each as the code of a workflow on an embedded server, in
which each run of an agent or a graph is durable. They are not replayed, because they keep what models were asked in
variables. The command prints how many have passed, and why others do not apply. This module is also the plugin of
pytest which does that.
"""

import argparse
import asyncio
import functools
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.hosted_calls import Host
from tests.support.places import ROOT

LIMIT_S = 60
"""How long a test may take as it is."""

FAILURE_CHARS_MAX = 600
"""How many characters of a failure are kept."""

_PACKAGE = "own"
"""The package to which the tests are copied. Most SDKs name theirs `tests`, as this repository does."""

_RECORDED = ("model.call", "tool.call", "effect.call")

APPROVAL = {"": True}
"""The answer to any question, unless the module of an SDK has other `ANSWERS`."""


def main() -> int:
    """Perform the tests both ways, and print the counts; return 1 if a test fails that should pass."""
    parser = argparse.ArgumentParser(prog="own_tests")
    parser.add_argument("sdk")
    parser.add_argument("tests", type=Path)
    given, rest = parser.parse_known_args()
    sdk = given.sdk.replace("-", "_")
    module = importlib.import_module(f"tests.maintenance.sdk_examples.{sdk}")
    with TemporaryDirectory() as root:
        package = Path(root) / _PACKAGE
        shutil.copytree(given.tests, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "__init__.py").touch()
        for path in package.rglob("*.py"):
            path.write_text(re.sub(r"(from|import) tests\b", rf"\1 {_PACKAGE}", path.read_text()))
        if not any(".py" in one for one in rest):
            rest = [*getattr(module, "OWN_TESTS", ()), *rest]
        if not any(".py" in one for one in rest):
            parser.error("name the files of tests to perform")
        plain, durable = Path(root) / "plain", Path(root) / "durable"
        _pytest(root, rest, ["--results", str(plain)])
        _pytest(root, rest, ["--results", str(durable), "--sdk", sdk, "--plain", str(plain)])
        return _report(_read(plain), _read(durable), getattr(module, "REASONS", {}))


def _pytest(root: str, given: list[str], own: list[str]) -> None:
    options = ["-p", __spec__.name, "--rootdir", root, "-c", "/dev/null", "-p", "no:xdist", "-p", "no:cacheprovider"]
    options += ["-q", "--no-summary", "-W", "ignore", "--continue-on-collection-errors", *own]
    chosen = [f"{_PACKAGE}/{one}" if ".py" in one else one for one in given]
    # Pydantic AI's detector of blocking calls is for the library's own code.
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "BLOCKBUSTER_ENABLED": "false",
    }
    subprocess.run([sys.executable, "-m", "pytest", *options, *chosen], cwd=root, env=env, check=False)


def _read(file: Path) -> dict[str, dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {one["id"]: one for one in map(json.loads, lines)}


def _report(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], reasons: dict[str, str]) -> int:
    counts: Counter[str] = Counter()
    for id, one in after.items():
        found = [
            why for pattern, why in reasons.items() if any(re.search(pattern, text) for text in (id, one["failure"]))
        ]
        if one["passed"]:
            counts["passed" if one["recorded"] else "passed, and record no turn, call or step"] += 1
        elif found:
            counts[f"does not apply: {found[0]}"] += 1
        else:
            counts["failed"] += 1
            print(f"{id} ({one['recorded']} turns, calls and steps)\n    {one['failure']}")
    counts["does not apply: it does not pass as it is"] = sum(not one["passed"] for one in before.values())
    for name, number in counts.most_common():
        print(f"{number:5} {name}")
    return 1 if counts["failed"] else 0


# -- the plugin ------------------------------------------------------------------------------------------------------


class _Tests:
    """The tests of this process, performed as they are, or in runs of a host."""

    def __init__(self, results: Path, sdk: str, plain: Path | None) -> None:
        self._results = results
        self._recorded = 0
        self._host: Host | None = None
        self._sdk = importlib.import_module(f"tests.maintenance.sdk_examples.{sdk}") if sdk else None
        self._wanted = {id for id, one in _read(plain).items() if one["passed"]} if plain is not None else None
        if self._sdk is not None:
            # Before the tests are imported, some of which make agents then.
            self._sdk.patch(self._perform)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._wanted is None:
            return
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid not in self._wanted])
        items[:] = [one for one in items if one.nodeid in self._wanted]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[Any]:
        if self._sdk is None:
            return (yield)
        with TemporaryDirectory() as folder, Host(Path(folder) / "state") as self._host:
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Perform an asynchronous test."""
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        names = pyfuncitem._fixtureinfo.argnames  # pyright: ignore[reportPrivateUsage]
        test = functools.partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
        if self._host is None:
            asyncio.run(asyncio.wait_for(test(), LIMIT_S))
        else:
            self._perform(test)
        return True

    def _perform(self, make: Callable[[], Any]) -> Any:
        assert self._host is not None
        performed = self._host.perform(make, answers=getattr(self._sdk, "ANSWERS", APPROVAL))
        self._recorded += sum(performed.events[one] for one in _RECORDED)
        if performed.raised is not None:
            raise performed.raised
        return performed.value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
        report = yield
        if report.when == "setup":
            self._recorded = 0
        if report.when == "call" or report.outcome == "failed":
            failure = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}"
            passed = report.outcome == "passed"
            noted = {"id": item.nodeid, "passed": passed, "failure": failure[:FAILURE_CHARS_MAX]}
            with self._results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**noted, "recorded": self._recorded}) + "\n")
        return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sdk", default="", help="the SDK whose adapter makes the tests durable; default: none")
    parser.addoption("--results", type=Path, help="the file to which results are appended")
    parser.addoption("--plain", type=Path, help="the results of the tests as they are: those that passed are performed")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to note results."""
    if (results := config.getoption("--results")) is not None:
        config.pluginmanager.register(_Tests(results, str(config.getoption("--sdk")), config.getoption("--plain")))


if __name__ == "__main__":
    sys.exit(main())
