"""How long the tests of each folder take, and whether that is within the budgets of `tests/README.md`.

A run of all tests keeps their seconds in the cache of pytest: `python -m tests.maintenance.seconds` compares them with
the budgets, and rewrites the list of the longest tests. ``CHECK_SECONDS=1`` fails a run that exceeds a budget.
"""

import os
import re
from collections import defaultdict
from collections.abc import Mapping

import pytest

from tests.support.places import TESTS

BUDGETS = TESTS / "README.md"

KEPT = "callboard/seconds"
"""Where the cache has the seconds by the ids of the tests, if all tests were performed."""

EXCESS = 1.5
"""How many times its budget a folder takes at most."""

SLACK_S = 10.0
"""The seconds that a folder may take more: the seconds of few tests vary."""


def read_budgets() -> dict[str, float]:
    """Return the seconds of each folder, in the order of the table; a folder is one below ``tests``."""
    rows = re.findall(r"^\| `([^`]+)` \| +(\d+) \|", BUDGETS.read_text(encoding="utf-8"), re.MULTILINE)
    return {folder: float(seconds) for folder, seconds in rows}


def folder_of(nodeid: str, folders: Mapping[str, float]) -> str | None:
    """Return the longest of the folders that has a test, or None."""
    path = nodeid.removeprefix("tests/")
    return max((folder for folder in folders if path.startswith(f"{folder}/")), key=len, default=None)


def sum_up(seconds: Mapping[str, float], budgets: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each folder of the budgets."""
    sums: defaultdict[str, float] = defaultdict(float)
    for nodeid, took in seconds.items():
        if (folder := folder_of(nodeid, budgets)) is not None:
            sums[folder] += took
    return sums


def exceeded(sums: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Return a sentence for each folder that exceeds its budget by half.

    Budgets are shares of a run: on a slow machine all folders take longer, and none exceeds its budget by that.
    """
    pace = max(1.0, sum(sums.values()) / sum(budgets.values()))
    found: list[str] = []
    for folder, budget in budgets.items():
        took, most = sums.get(folder, 0.0), budget * pace * EXCESS + SLACK_S
        if took > most:
            found.append(
                f"tests/{folder} took {took:.0f} s and may take {most:.0f} s on this machine: make its tests cheaper,"
                f" or raise its budget of {budget:.0f} s in tests/README.md and give the reason"
            )
    return found


class _Seconds:
    """The seconds of each test of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # Those who named a folder, or a part of the tests, do not measure the suite.
        options = session.config.option
        named = session.config.args_source == pytest.Config.ArgsSource.ARGS
        self._whole = not (named or options.keyword or options.markexpr or options.collectonly or options.maxfail)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._whole and self._config.pluginmanager.hasplugin("cacheprovider"):
            self._config.cache.set(KEPT, {nodeid: round(took, 2) for nodeid, took in self._seconds.items()})
        if self._checks and session.exitstatus == pytest.ExitCode.OK and self._excess():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._whole or not self._config.option.durations:
            return
        budgets = read_budgets()
        terminalreporter.section("seconds and budget of each folder")
        for folder, took in sorted(sum_up(self._seconds, budgets).items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{took:7.1f} {budgets[folder]:5.0f}  tests/{folder}")
        for sentence in self._excess() if self._checks else []:
            terminalreporter.write_line(sentence, red=True)

    @property
    def _checks(self) -> bool:
        return self._whole and os.environ.get("CHECK_SECONDS") == "1"

    def _excess(self) -> list[str]:
        budgets = read_budgets()
        return exceeded(sum_up(self._seconds, budgets), budgets)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Seconds(config), "seconds")
