"""Skipped tests, and how to install their requirements: pytest prints them at its end, and fails in CI.

The reason of a skip names the target of ``make`` that installs what the test needs. Where ``CI`` is true, such a skip
fails the run, unless ``UNAVAILABLE`` names the target: the machine could not get it. So does any reason that `EXCUSES`
does not list.
"""

import os
import re
from collections import Counter

import pytest

INSTALLED = re.compile(r"`make (\w+)`")

EXCUSES = re.compile(
    "|".join(
        (
            # Of the operating system.
            r"on Linux only",
            r"only Linux has",
            r"only root can mount",
            r"no small disk can be mounted here",
            r"no /dev/shm here",
            r"there is no device that is always full",
            r"no filter of system calls is known here",
            # Packages that no target of `make` installs.
            r"the program openssl",
            r"there is no PostgreSQL",
            r"PostgreSQL has (no|the) extension `vector`",
            r"there is no prometheus",
            r"CPython's tests are not installed",
            # Of a library's version.
            r"interrupts of this version of LangGraph have no schema",
        )
    )
)
"""Reasons for which a test may be skipped in CI."""


class _Skips:
    """Counts the reasons of skips in the process of pytest that reports."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._faults() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        missing = sorted(reason for reason in self._reasons if INSTALLED.search(reason))
        if missing:
            terminalreporter.section("tests skipped for want of what can be installed")
        for reason in missing:
            terminalreporter.write_line(f"{self._reasons[reason]} skipped: {reason}")
        for reason in self._faults():
            terminalreporter.write_line(f"CI may not skip a test because: {reason}", red=True)

    def _faults(self) -> list[str]:
        if os.environ.get("CI") != "true":
            return []
        return sorted(reason for reason in self._reasons if not _is_excused(reason))


def _is_excused(reason: str) -> bool:
    unavailable = os.environ.get("UNAVAILABLE", "").split()
    return bool(EXCUSES.search(reason)) or any(target in unavailable for target in INSTALLED.findall(reason))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Skips())
