"""A conformance corpus: its cases and scenarios on disk, and running them through the real runtime, all at once.

The layout is that of the specification's ``tests/conformance``: a folder per case with ``case.json`` and
``definition.json``, and below ``scenarios`` a folder each with ``input.json``, ``expected-result.json`` and, where the
root flow takes any, ``arguments.json``.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import anyio
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem, RunEnd, payload_of
from callboard.bus.log.port import whole
from callboard.languages.authoring import Conformance
from callboard.lib.temporary_folders import temporary_folder
from callboard.lib.text_bytes import NotText, read_text
from callboard.runtime.client.client import NoVerdict
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config
from callboard.service.files.json_values import NotJson, json_of
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli.definition_files import choose_language

STARTS_MAX = 16
"""How many scenarios may wait for the verdict on their start at the same time."""

RESULT_WAIT_S = 60.0
"""How long a scenario may take from its start to its Result."""

Verdict = Literal["passed", "failed", "skipped", "out-of-scope"]

TEMPORAL = "temporal"
"""The mark of a case that takes real time."""


class CaseScenario(Struct, frozen=True):
    """One execution of a case's definition, and the expected Result."""

    name: str
    input: Any
    arguments: dict[str, Any]
    expected: dict[str, Any]


class Case(Struct, frozen=True):
    """A definition, the profiles it requires, and its scenarios. ``source`` is the definition's text."""

    name: str
    description: str
    profiles: tuple[str, ...]
    marks: tuple[str, ...]
    source: str
    scenarios: tuple[CaseScenario, ...]


class CorpusUnreadable(CallboardError):
    """A folder has no cases, or one of its files does not match the layout."""

    def __init__(self, message: str, where: Path) -> None:
        remedy = "Name a folder like the specification's tests/conformance, or one case of it."
        super().__init__("corpus.unreadable", message, str(where), remedy)


def read_corpus(folder: Path) -> list[Case]:
    """Read all cases of a corpus, or the one that the folder itself is, in the order of their names.

    :raises CorpusUnreadable: if none exists, or one cannot be read
    """
    found = sorted([*folder.glob("case.json"), *folder.glob("*/case.json")])
    if not found:
        raise CorpusUnreadable("there is no case.json here or one folder below", folder)
    return [_read_case(file.parent) for file in found]


def _read_case(folder: Path) -> Case:
    about = _read_object(folder / "case.json")
    scenarios = folder / "scenarios"
    # Folders that the file does not list are run too.
    named = sorted({*about.get("scenarios", {}), *(path.name for path in scenarios.glob("*") if path.is_dir())})
    if not named:
        raise CorpusUnreadable("the case has no scenarios", folder)
    return Case(
        folder.absolute().name,
        str(about.get("description", "")),
        tuple(about.get("profiles", ())),
        tuple(about.get("marks", ())),
        _read_text(folder / "definition.json"),
        tuple(_read_scenario(scenarios / name) for name in named),
    )


def _read_scenario(folder: Path) -> CaseScenario:
    arguments = folder / "arguments.json"
    expected = _read_object(folder / "expected-result.json")
    if "type" not in expected or (expected["type"] == "success" and "value" not in expected):
        raise CorpusUnreadable("this is not a Result: it has no type, or is a success without a value", folder)
    return CaseScenario(
        folder.name,
        _read_json(folder / "input.json"),
        _read_object(arguments) if arguments.exists() else {},
        expected,
    )


def _read_object(file: Path) -> dict[str, Any]:
    found = _read_json(file)
    if not isinstance(found, dict):
        raise CorpusUnreadable("this is not an object", file)
    return found


def _read_json(file: Path) -> Any:
    try:
        return json_of(_read_text(file))
    except NotJson as error:
        raise CorpusUnreadable(f"this {error}", file) from error


def _read_text(file: Path) -> str:
    try:
        return read_text(file)
    except (OSError, NotText) as error:
        raise CorpusUnreadable(f"the file cannot be read: {error}", file) from error


class ScenarioOutcome(Struct, frozen=True, omit_defaults=True):
    """The outcome of a scenario: its run, and the differences between the expected and the actual Result."""

    name: str
    run: str
    differences: list[str] = []

    @property
    def passed(self) -> bool:
        return not self.differences


class CaseReport(Struct, frozen=True, omit_defaults=True):
    """The outcome of a case. ``missing`` names the profiles that put it out of scope."""

    case: str
    description: str
    verdict: Verdict
    scenarios: list[ScenarioOutcome] = []
    missing: list[str] = []


class Claim(Struct, frozen=True):
    """A language and its conformance claim."""

    language: str
    conformance: Conformance

    @property
    def profiles(self) -> Sequence[str]:
        return self.conformance.claim


def claim_of(language: str | None = None) -> Claim:
    """Return the claim of a language; without a name, of the only language that has one.

    :raises click.BadParameter: if the language has no claim, or no name is given and several languages have one
    """
    return Claim(*choose_language(lambda offered: offered.conformance, "a conformance corpus", language))


async def perform_cases(cases: Sequence[Case], claim: Claim, config: Config, kept: bool) -> dict[str, ScenarioOutcome]:
    """Run every scenario; return the outcomes by ``case/scenario``."""
    async with AsyncExitStack() as stack:
        if not kept:
            folder = stack.enter_context(temporary_folder())
            config = config.model_copy(update={"data_dir": folder, "nats_url": None})
        connection = await stack.enter_async_context(open_connection(config, "callboard conformance"))
        await stack.enter_async_context(open_worker(connection))
        return await run_cases(connection, claim, cases)


async def run_cases(
    connection: Connection, claim: Claim, cases: Sequence[Case], *, wait_s: float = RESULT_WAIT_S
) -> dict[str, ScenarioOutcome]:
    """Start every scenario at a running worker, and compare the Results; return the outcomes by ``case/scenario``."""
    batch = uuid4().hex[:8]
    found: dict[str, ScenarioOutcome] = {}
    starts = anyio.CapacityLimiter(STARTS_MAX)

    async def perform(case: Case, scenario: CaseScenario) -> None:
        name = f"{case.name}/{scenario.name}"
        run = f"{case.name}-{scenario.name}-{batch}"
        message = {
            "definition": {"language": claim.language, "source": case.source},
            "input": scenario.input,
            "arguments": scenario.arguments,
            "run_id": run,
        }
        async with starts:
            refused = await _publish_start(connection, message)
        if refused:
            wrong = [f"refused: {problem}" for problem in refused]
        else:
            result = await _await_result(connection, run, wait_s)
            wrong = (
                [f"no Result within {wait_s:g} s"]
                if result is None
                else claim.conformance.differences(scenario.expected, result)
            )
        found[name] = ScenarioOutcome(scenario.name, run, wrong)

    async with anyio.create_task_group() as tasks:
        for case in cases:
            for scenario in case.scenarios:
                tasks.start_soon(perform, case, scenario)
    return found


async def _publish_start(connection: Connection, message: dict[str, Any]) -> list[Problem]:
    """Publish a start; return the problems of a rejected one."""
    try:
        verdict = await connection.client.start(message)
    except NoVerdict:
        # The start is stored. If a worker admits it later, its Result shows the outcome.
        return []
    return verdict.problems if verdict.status == "rejected" else []


async def _await_result(connection: Connection, run: str, wait_s: float) -> dict[str, Any] | None:
    """Return the Result of a run's root frame; None if it does not end within ``wait_s``."""
    with anyio.move_on_after(wait_s):
        async with connection.client.follow(run, event_type=RunEnd.type) as feed:
            async for recorded in feed:
                end = payload_of(await whole(connection.log, recorded))
                assert isinstance(end, RunEnd)
                return end.results
    return None
