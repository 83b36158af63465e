"""Pydantic AI's own tests, with all their agents durable: ``python -m tests.maintenance.pydantic_ai_tests CHECKOUT``.

``CHECKOUT`` is a folder with the library's repository, which has to have its ``tests``. Their packages have to be
installed: pytest-mock, pytest-recording, vcrpy, inline-snapshot, dirty-equals.

First the tests are run as they are, since a checkout may be of another version than the library that is installed.
Those that pass are run again, each in a run on an embedded server: an asynchronous test as a whole, of any other test
each ``Agent.run_sync``. Every ``Agent`` then has one argument more, ``capabilities=[Durable()]``. This module is the
plugin of pytest which does that. Tests in which no turn is recorded say nothing about the adapter.
"""

import argparse
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

FILES = (
    "test_agent.py",
    "test_deps.py",
    "test_history_processor.py",
    "test_streaming.py",
    "test_tools.py",
    "test_toolsets.py",
    "test_usage_limits.py",
    "test_validation_context.py",
    "models/test_model_function.py",
    "models/test_model_test.py",
)
"""The tests of agents, tools, deferred calls, validators, streams, limits and toolsets."""

PACKAGE = "sdk_tests"
"""The name under which the tests of the checkout are imported."""

DURABLE = "CALLBOARD_DURABLE"
"""The variable of the environment that names the file of tests to make durable."""

RESULTS = "CALLBOARD_RESULTS"
"""The variable of the environment that names the file to which results are appended."""

NO_TURN = "no turn of an agent is recorded"

ONE_PIECE = (
    "test_(structured_response_iter|output_validator_(text|structured)|output_function_(text|structured)|"
    "stream_output_partial_then_final_validation|output_validator_text_double_stream_text|stream_structured_output|"
    "iter_stream_structured_output|iter_stream_output_tool_dont_hit_retry_limit|run(_sync|_stream)?_event_stream_handler|"
    "stream_tool_returning_user_content|run_stream_events|args_validator_event_args_valid_field)$"
)

REASONS = {
    r"^Unanswered:": "a call that wants approval is a question of the run, and no `DeferredToolRequests`",
    r"^(StepFailed|ModelFailed):": "a tool or model raises an exception that is not the library's",
    r"^NotInWorkflow: the workflow (starts a thread|opens a file)": "parts of the library are called without an agent",
    ONE_PIECE: "the workflow sees a streamed answer in one piece",
    r"outer_cancellation": "a tool that is cancelled ends in the worker, and the agent does not wait for that",
    r"test_toolset_factory": "the function of a dynamic toolset is called again in the step of each call",
    r"event_loop|test_name_from_global": "this program replaces `run_sync`, which the test examines",
    r"response_singleton|test_set_mcp_sampling_model": "the test examines an object of the library's own model",
    r"set_exception_handler|debounce": (
        "an object of the test is shared between the loops of the workflow and of the worker"
    ),
    r"using_thread_executor|does_not_need_a_worker_thread": "the worker has threads of its own",
    r"test_tool_name_conflict_hint|test_return_bytes_invalid": "a message or value of the library for its own toolset",
    r"test_plain_response": "a text instead of a required output ends `run_stream`; see the limits",
}
"""Why tests do not apply, by a pattern of their failure, or of their name."""


def main() -> int:
    """Run the tests both ways, and print the counts; return 1 if a test fails that should pass."""
    parser = argparse.ArgumentParser(prog="pydantic_ai_tests")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", nargs="*", help="files or ids of tests; by default those about agents")
    parser.add_argument(
        "--results", type=Path, help="a folder that keeps the results; those that it has are not repeated"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Their package has the name of ours.
        (folder / PACKAGE).symlink_to(given.checkout.absolute() / "tests")
        tests = [f"{PACKAGE}/{test}" for test in given.tests or FILES]
        results = (given.results or folder / "results").absolute()
        results.mkdir(parents=True, exist_ok=True)
        plain, durable = results / "plain", results / "durable"
        if not plain.exists():
            _pytest(folder, tests, {RESULTS: str(plain)})
        if not durable.exists():
            _pytest(folder, tests, {RESULTS: str(durable), DURABLE: str(plain)})
        before, after = _read(plain), _read(durable)
    return _report(before, after)


def _pytest(folder: Path, tests: list[str], variables: dict[str, str]) -> None:
    # Their settings make an error of every warning. The detector of blocking calls is for the library's own code.
    options = [
        "-p",
        "tests.maintenance.pydantic_ai_tests",
        "-p",
        "no:cacheprovider",
        "-q",
        "--no-summary",
        "--timeout=100",
    ]
    options += ["-W", "ignore", "-o", "filterwarnings=", "-o", "xfail_strict=false", "--continue-on-collection-errors"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "BLOCKBUSTER_ENABLED": "false", **variables}
    subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=folder, env=env, check=False)


def _read(file: Path) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {one["id"]: one for one in lines}


def _report(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> int:
    counts: Counter[str] = Counter()
    for id, one in after.items():
        found = [
            why for pattern, why in REASONS.items() if any(re.search(pattern, text) for text in (id, one["failure"]))
        ]
        reason = found[0] if found else ""
        if one["turns"] == 0 and one["passed"]:
            counts[f"does not apply: {NO_TURN}"] += 1
        elif one["passed"]:
            counts["passed"] += 1
        elif reason:
            counts[f"does not apply: {reason}"] += 1
        else:
            counts["failed"] += 1
            print(f"{id} ({one['turns']} turns)\n    {one['failure']}")
    counts["does not apply: it does not pass as it is with the installed version"] = sum(
        not one["passed"] for one in before.values()
    )
    for name, number in counts.most_common():
        print(f"{number:5} {name}")
    return 1 if counts["failed"] else 0


# -- the plugin ------------------------------------------------------------------------------------------------------


class Tested:
    """The tests of this process, and what is known of each."""

    def __init__(self, results: Path, plain: Path | None) -> None:
        self.results = results
        self.wanted = None if plain is None else {id for id, one in _read(plain).items() if one["passed"]}
        self.turns = 0
        if self.wanted is not None:
            # Before the tests are imported, some of which make agents then.
            self._make_durable()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.wanted is None:
            return
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid not in self.wanted])
        items[:] = [one for one in items if one.nodeid in self.wanted]
        for one in items:
            if isinstance(one, pytest.Function) and inspect.iscoroutinefunction(one.obj):
                one.obj = self._in_a_run(one.obj)

    def _in_a_run(self, test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def call(*args: Any, **named: Any) -> None:
            self.perform(lambda: test(*args, **named))

        return call

    def perform(self, make: Callable[[], Any]) -> Any:
        """Perform a coroutine as a run, and return its value."""
        performed = self.host.perform(make)
        self.turns += performed.events["model.call"]
        if performed.raised is not None:
            raise performed.raised
        return performed.value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
        report = yield
        if report.when == "setup":
            self.turns = 0
        if report.when == "call" or report.outcome == "failed":
            self._note(item.nodeid, report, call)
        return report

    def _note(self, id: str, report: pytest.TestReport, call: pytest.CallInfo[Any]) -> None:
        failure = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}"[:600]
        noted = {"id": id, "passed": report.outcome == "passed", "failure": failure, "turns": self.turns}
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(noted) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[Any]:
        if self.wanted is None:
            return (yield)
        from tests.support.hosted_calls import Host

        with tempfile.TemporaryDirectory() as folder, Host(Path(folder) / "state") as self.host:
            return (yield)

    def _make_durable(self) -> None:
        """Give each agent of the tests the argument that makes it durable."""
        from pydantic_ai import agent as agents

        from callboard.adapters.pydantic_ai import Durable
        from callboard.languages.python.loop import current_loop

        sdk: Any = agents
        make, run_sync = sdk.Agent.__init__, sdk.AbstractAgent.run_sync

        @functools.wraps(make)
        def init(agent: Any, *args: Any, capabilities: Any = None, **named: Any) -> None:
            make(agent, *args, capabilities=[*(capabilities or ()), Durable()], **named)

        @functools.wraps(run_sync)
        def run(agent: Any, *args: Any, **named: Any) -> Any:
            if current_loop() is not None:
                return run_sync(agent, *args, **named)
            return self.perform(lambda: agent.run(*args, **named))

        sdk.Agent.__init__ = init
        sdk.AbstractAgent.run_sync = run


def pytest_configure(config: pytest.Config) -> None:
    """Begin to note results."""
    if RESULTS in os.environ:
        plain = os.environ.get(DURABLE)
        config.pluginmanager.register(Tested(Path(os.environ[RESULTS]), Path(plain) if plain else None))


if __name__ == "__main__":
    sys.exit(main())
