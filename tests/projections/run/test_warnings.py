"""Warnings of a run about missing skills and variables: their remedies, and the refusal of strict starts."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.events import Environment, Event, Problem, Warned
from callboard.projections.lists.runs import RunRow, Runs
from callboard.projections.projection import fold
from callboard.projections.results.workflow import execution_event
from callboard.projections.run.run_result import Results
from callboard.projections.run.warnings import MORE, WARNINGS_MAX, WarnedFold
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.interpreter.replay import read_admission
from callboard.runtime.settings.config import load
from callboard.service.operations.narration import narrate
from callboard.service.operations.replays import replay_events
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.tree_text import tree_text
from callboard.surfaces.cli.views import WARNINGS_SHOWN_MAX, warning_lines
from callboard.surfaces.mcp.run_reports import run_of
from tests.support.event_logs import known_payload
from tests.support.flows import call, caught, flow, returned
from tests.support.workdir import Workdir, plain
from tests.support.workflows import LOOK, document, run, run_elsewhere, scripted_skill

CHILD = "mwl:provider.call/callboard/definition/v1"
NEEDY = scripted_skill("needy", "look", config={"KEY": {"description": "d", "required": True, "env": "NEEDY_KEY"}})
LACKING = document({"a": {"skills": ["gone", "needy"]}, "b": {"skills": ["needy"]}}, [("a", "b")], id="lacking")
OPTIONS = {"skills": [NEEDY]}
CODES = ["UNKNOWN_SKILL", "SKILL_UNAVAILABLE"]


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncGenerator[Connection]:
    config = load({"data_dir": tmp_path / "data", "sync": "1s"}, env={}, cwd=tmp_path)
    async with open_connection(config) as opened, open_worker(opened, {"EMPTY": ""}):
        yield opened


async def start_definition(connection: Connection, definition: dict[str, Any], **message: Any) -> Verdict:
    whole = {"definition": {"source": json.dumps(definition)}, "model": "scripted", **message}
    return await connection.client.start({"script": {"default": {"text": "ok"}}, **whole})


async def events_to_end(connection: Connection, verdict: Verdict) -> list[Event]:
    assert verdict.run_id, [str(problem) for problem in verdict.problems]
    async with connection.client.follow(verdict.run_id, event_type=ev.RunEnd.type) as ends:
        await anext(aiter(ends))
    return await connection.client.events(verdict.run_id)


def end_of(events: list[Event]) -> ev.RunEnd:
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    return end


def row_of(events: list[Event]) -> RunRow:
    return fold(Runs(), events)[0]


# -- missing skills and variables --------------------------------------------------------------------------------------


async def test_an_unavailable_and_an_unknown_skill_are_warnings_of_the_run(connection: Connection) -> None:
    verdict = await start_definition(connection, LACKING, options=OPTIONS)
    assert [warning.code for warning in verdict.warnings] == CODES
    unknown, unavailable = (warning.message for warning in verdict.warnings)
    assert "'gone' is not defined" in unknown
    assert "skills.yaml" in unknown
    assert "NEEDY_KEY is not set where the worker runs; set it there, or give --set KEY=…" in unavailable
    events = await events_to_end(connection, verdict)
    first = ev.payload_of(events[0])
    assert isinstance(first, ev.RunAccepted)
    assert first.warnings == verdict.warnings
    expected = [
        Warned(CODES[0], unknown, "a", where="nodes.a.skills[0]"),
        Warned(CODES[1], unavailable, "a", times=2, where="nodes.a.skills[1]"),
    ]
    assert end_of(events).warnings == expected
    assert fold(Results(), events).warnings == expected
    assert row_of(events).warnings == row_of(events[:-1]).warnings == CODES
    assert [warning.code for warning in run_of(events).warnings] == CODES
    assert replay_events_to_the_end(events)


def replay_events_to_the_end(events: list[Event]) -> bool:
    from callboard.bus.subjects import RunRef

    admission = read_admission(events[0], Definitions().language)
    return replay_events(RunRef("default", events[0].run), events, admission, {}).unwritten == []


@pytest.mark.parametrize("variable", ["UNSET", "EMPTY"])
async def test_unset_variables_of_a_server_are_a_warning(connection: Connection, variable: str) -> None:
    server = {"command": "true", "env": {variable: "the key", "OTHER": "another"}}
    raw = document({"a": {"skills": ["desk"]}}, skills={"desk": {"mcp": server}})
    [warning] = (await start_definition(connection, raw)).warnings
    assert f"{variable}, OTHER are not set where the worker runs; set them there" in warning.message
    assert "--set" not in warning.message


async def test_a_skill_that_no_node_lists_is_not_a_warning(connection: Connection) -> None:
    verdict = await start_definition(connection, document({"a": {}}), options={**OPTIONS, "strict": True})
    assert (verdict.status, verdict.warnings) == ("accepted", [])


async def test_unset_variables_of_tools_of_a_flow_are_a_warning(connection: Connection) -> None:
    source = {
        "type": "mcp",
        "name": "desk",
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": "${DESK_KEY}"},
    }
    asked = {"provider": "mwl:provider.call/callboard/tool/v1", "with": {"source": source, "tool": "look"}}
    borrowing = flow({"look": call(asked, catch=[caught("done")]), "done": returned(1)})
    verdict = await start_definition(connection, borrowing)
    [warning] = verdict.warnings
    assert warning.code == "VARIABLE_UNSET"
    assert "DESK_KEY is not set where the worker runs" in warning.message
    refused = await start_definition(connection, borrowing, options={"strict": True})
    assert [(problem.code, problem.severity) for problem in refused.problems] == [("VARIABLE_UNSET", "error")]


# -- strictness --------------------------------------------------------------------------------------------------------


async def test_a_strict_start_is_refused_with_all_warnings(connection: Connection) -> None:
    verdict = await start_definition(connection, LACKING, options={**OPTIONS, "strict": True}, run_id="r1")
    assert verdict.status == "rejected"
    assert [(problem.code, problem.severity) for problem in verdict.problems] == [(code, "error") for code in CODES]
    again = await start_definition(connection, LACKING, options={**OPTIONS, "strict": False}, run_id="r1")
    assert (again.status, again.duplicate) == ("accepted", False)


@pytest.mark.parametrize("definition", [document({"a": {}}), flow({"done": returned(1)})])
async def test_every_language_accepts_and_checks_the_option_strict(
    connection: Connection, definition: dict[str, Any]
) -> None:
    strict = await start_definition(connection, definition, options={"strict": True})
    assert end_of(await events_to_end(connection, strict)).status == "completed"
    odd = await start_definition(connection, definition, options={"strict": "yes"})
    assert [(problem.code, problem.where) for problem in odd.problems] == [("start.strict", "options.strict")]


def test_a_strict_run_fails_on_a_worker_without_its_variables() -> None:
    raw = document({"a": {"skills": ["needy"]}})
    strict = run(raw, options={**OPTIONS, "strict": True}, env={"NEEDY_KEY": "k"})
    assert strict.end.status == "completed"
    lacking = Environment(skills={"needy": False}, lacking={"needy": ["NEEDY_KEY"]})
    ran = run_elsewhere(strict, lacking)
    assert ran.end.status == "failed"
    assert ran.end.error is not None
    assert (ran.end.error.code, "NEEDY_KEY" in ran.end.error.message) == ("workflow.strict", True)
    assert ran.of(ev.NodeEnter) == []


# -- child runs --------------------------------------------------------------------------------------------------------


def parent(**more: Any) -> dict[str, Any]:
    child = {"source": json.dumps(document({"a": {"skills": ["gone"]}}, id="child")), "language": "workflow", **more}
    asked = {"provider": CHILD, "with": child}
    return flow({"hand": call(asked, catch=[caught("sorry")]), "done": returned(1), "sorry": returned(0)})


async def test_warnings_of_a_child_run_are_warnings_of_its_parent(connection: Connection) -> None:
    events = await events_to_end(connection, await start_definition(connection, parent()))
    end = end_of(events)
    assert end.output == 1
    [warned] = end.warnings
    assert (warned.code, warned.path) == ("UNKNOWN_SKILL", "main/hand:call")
    child = await connection.client.events(warned.run)
    assert [one.code for one in end_of(child).warnings] == ["UNKNOWN_SKILL"]
    assert fold(Results(), events).warnings == end.warnings
    assert row_of(events).warnings == ["UNKNOWN_SKILL"]
    lines = [narrate(event, known_payload(event)) for event in events]
    assert "child run completed  ! UNKNOWN_SKILL" in lines
    assert lines[-1] == "■ completed  ! UNKNOWN_SKILL"
    assert f"! UNKNOWN_SKILL  run {warned.run}: the skill 'gone' is not defined" in tree_text(fold(TraceFold(), events))
    assert replay_events_to_the_end(events)


async def test_a_child_run_inherits_strict_unless_it_sets_it(connection: Connection) -> None:
    strict = await events_to_end(connection, await start_definition(connection, parent(), options={"strict": True}))
    [refused] = [each for event in strict if isinstance(each := ev.payload_of(event), ev.ChildEnd)]
    assert refused.error is not None
    assert (end_of(strict).output, refused.error.code) == (0, "child.refused")
    assert "UNKNOWN_SKILL" in refused.error.message
    loose = await events_to_end(
        connection, await start_definition(connection, parent(options={"strict": False}), options={"strict": True})
    )
    assert end_of(loose).output == 1


# -- tools that a node lacks -------------------------------------------------------------------------------------------

UNKNOWN_TOOL_CALL: dict[str, Any] = {
    "turns": {"a": [{"tool_calls": [{"tool": "nosuch", "input": {"q": 1}}]}, {"text": "well"}]},
    "tools": {},
}


async def test_a_call_of_a_tool_that_the_node_lacks_is_a_warning(connection: Connection) -> None:
    raw = document({"a": {"skills": ["s"]}})
    events = await events_to_end(
        connection,
        await start_definition(
            connection, raw, script=UNKNOWN_TOOL_CALL, options={"skills": [scripted_skill("s", "look")]}
        ),
    )
    lines = [narrate(event, known_payload(event)) for event in events]
    place = lines.index("wants nosuch")
    assert lines[place + 1] == "! UNKNOWN_TOOL: the model wants 'nosuch', which the node does not have; it has: look"
    assert not [event for event in events if event.type == ev.ToolCall.type]
    tree = tree_text(fold(TraceFold(), events))
    assert "! UNKNOWN_TOOL  the model wants 'nosuch'" in tree
    shapes = [shape for event in events if (shape := execution_event(event))]
    assert [shape["type"] for shape in shapes].count("node:warning") == 1
    assert end_of(events).results["a"]["toolCalls"] == [{"tool": "nosuch", "input": {"q": 1}}]  # type: ignore[index,call-overload]
    assert [warned.code for warned in end_of(events).warnings] == ["UNKNOWN_TOOL"]
    assert replay_events_to_the_end(events)


def test_invalid_input_of_a_tool_is_a_warning() -> None:
    schema = {"type": "object", "required": ["q"]}
    tool = {"name": "look", "description": "Look.", "input_schema": schema, "python": LOOK}
    script = {"turns": {"a": [{"tool_calls": [{"tool": "look", "input": {}}]}, {"text": "well"}]}}
    ran = run(document({"a": {"skills": ["s"]}}), script, options={"skills": [scripted_skill("s", tools=[tool])]})
    assert ran.warnings() == ["INVALID_TOOL_INPUT"]


# -- how they are shown ------------------------------------------------------------------------------------------------


def test_equal_warnings_are_listed_once_and_further_ones_counted() -> None:
    found = WarnedFold()
    found.add_admission(
        [Problem("A", "once", "here", severity="warning"), Problem("A", "once", "there", severity="warning")]
    )
    for path in ("x", "y"):
        found.apply(path, ev.NodeWarning("n", "A", "once"))
    for number in range(WARNINGS_MAX + 2):
        found.apply("z", ev.NodeWarning("n", "B", f"{number}"))
    lines = found.view()
    assert lines[:2] == [Warned("A", "once", "x", times=2, where="here"), Warned("A", "once", where="there")]
    assert (len(lines), lines[-1]) == (WARNINGS_MAX + 1, Warned(MORE, "and 4 more"))


def test_a_summary_lists_the_first_warnings() -> None:
    result = Results().view()
    warned = [Warned("A", f"odd\n{number}", "n", times=number + 1) for number in range(WARNINGS_SHOWN_MAX + 2)]
    lines = [plain(line) for line in warning_lines(type(result)(status="completed", warnings=warned))]
    assert lines[:2] == ["  ! A: odd 0  (at n)", "  ! A: odd 1  (at n)  2×"]
    assert lines[-1] == "  … and 2 more, which the trace shows"


def test_the_commands_show_the_warnings(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("skills.json", [NEEDY])
    file, script = workdir.write("w.json", LACKING), workdir.write("script.json", {"default": {"text": "ok"}})
    done = workdir.run("run", file, "--script", script, "--run-id", "r1")
    assert done.exit_code == exits.OK, done.output
    for text in (done.stdout, workdir.run("show", "r1").stdout):
        warnings = text[text.index("Warnings:") :].splitlines()[1:3]
        assert warnings[0].startswith("  ! UNKNOWN_SKILL: the skill 'gone' is not defined")
        assert "NEEDY_KEY is not set" in warnings[1]
    assert "! UNKNOWN_SKILL, SKILL_UNAVAILABLE" in workdir.run("runs").stdout
    assert [one["code"] for one in workdir.run_json("show", "r1")["warnings"]] == CODES
    assert "! UNKNOWN_SKILL" in workdir.run("trace", "r1").stdout
    refused = workdir.run("run", file, "--script", script, "--strict")
    assert refused.exit_code == exits.FAILED
    assert all(f"error {code}" in refused.stderr for code in CODES), refused.stderr
    assert [row["run"] for row in workdir.run_json("runs")] == ["r1"]
