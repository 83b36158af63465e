"""Near misses of workflows: texts with placeholders that nothing fills in, and edges that were meant as a chain."""

import itertools
import json
from typing import Any

import pytest

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.languages.plan import Definition, Plan
from callboard.languages.skills.skill_files import read_skill_file
from callboard.languages.workflow.language import LANGUAGE
from tests.docs.test_schemas import validator
from tests.support.workflows import document


def server(**mcp: Any) -> dict[str, Any]:
    """Return a workflow with an MCP server in the format of other programs."""
    desk = {"desk": {"mcp": {"command": "npx", **mcp}}}
    return document({"a": {"skills": ["desk"]}}, skills=desk)


def find_warnings(written: dict[str, Any]) -> list[Problem]:
    found = LANGUAGE.parse(json.dumps(written))
    assert isinstance(found, Definition), found
    return list(found.warnings)


@pytest.mark.parametrize(
    ("mcp", "where", "expected"),
    [
        ({"env": {"TOKEN": "${GITHUB_TOKEN}"}}, "env.TOKEN", "set TOKEN there to what GITHUB_TOKEN has"),
        ({"env": {"TOKEN": "${TOKEN}"}}, "env.TOKEN", "TOKEN with a description of it"),
        ({"env": {"TOKEN": "$TOKEN"}}, "env.TOKEN", "TOKEN with a description of it"),
        ({"env": {"TOKEN": "ghp_0123456789abcdefABCDEF"}}, "env.TOKEN", "the value where the worker runs"),
        ({"env": {"PORT": "8080"}}, "env.PORT", "the value where the worker runs"),
        ({"headers": {"A": "Bearer ${{ secrets.TOKEN }}"}}, "headers.A", "${TOKEN}"),
        ({"headers": {"A": "${env:TOKEN}"}}, "headers.A", "${TOKEN}"),
        ({"headers": {"A": "Bearer $TOKEN"}}, "headers.A", "${TOKEN}"),
        ({"args": ["-y", "--token=${TOKEN}"]}, "args[1]", "TOKEN in `env`"),
        ({"url": "https://${HOST}/mcp"}, "url", "a header"),
    ],
)
def test_a_placeholder_in_a_server_is_warned_of(mcp: dict[str, Any], where: str, expected: str) -> None:
    [warning] = find_warnings(server(**mcp))
    assert (warning.code, warning.where, warning.line) == ("UNFILLED_VARIABLE", f"skills.desk.mcp.{where}", 1)
    assert expected in str(warning.expected)
    secret = "0123456789abcdefABCDEF"
    assert secret not in warning.message
    front = json.dumps({"name": "desk", "mcp": {"command": "npx", **mcp}})
    skill, [of_file] = read_skill_file(f"---\n{front}\n---\n", "desk/SKILL.md")
    assert skill is not None
    assert (of_file.code, f"mcp.{where}: " in of_file.message) == ("UNFILLED_VARIABLE", True)


def test_a_placeholder_in_a_server_of_a_start_is_warned_of() -> None:
    mcp = {"command": "npx", "env": {"TOKEN": "${GITHUB_TOKEN}"}}
    skill = {"id": "desk", "name": "Desk", "description": "d", "category": "general", "mcp": mcp}
    found = LANGUAGE.parse(json.dumps(document({"a": {"skills": ["desk"]}})))
    assert isinstance(found, Definition)
    plan = LANGUAGE.admit(found, StartRun(DefinitionSource("workflow"), options={"skills": [skill]}))
    assert isinstance(plan, Plan)
    [warning] = [one for one in plan.warnings if one.code == "UNFILLED_VARIABLE"]
    assert warning.where == "options.skills[0].mcp.env.TOKEN"


@pytest.mark.parametrize(
    ("field", "value", "where", "code", "expected"),
    [
        ("instruction", "Use ${{ secrets.X }}.", "instruction", "UNFILLED_VARIABLE", "of a skill for a secret"),
        ("instruction", {"inline": "Greet {{ input.who }}."}, "instruction.inline", "UNFILLED_TEMPLATE", "input.who"),
        ("instruction", "Greet {{who}}.", "instruction", "UNFILLED_TEMPLATE", "input.who"),
        ("rules", ["Mind {{ a.found }}."], "rules[0]", "UNFILLED_TEMPLATE", "a.found"),
    ],
)
def test_a_placeholder_in_a_text_is_warned_of(field: str, value: Any, where: str, code: str, expected: str) -> None:
    written = document({"a": {field: value}}, inputs={"who": {"type": "string"}})
    [warning] = find_warnings(written)
    assert (warning.code, warning.where) == (code, f"nodes.a.{where}")
    assert expected in str(warning.expected)
    assert warning.column


@pytest.mark.parametrize(
    "written",
    [
        server(env={"TOKEN": "The token of the desk, 20 characters"}, headers={"A": "Bearer ${TOKEN}"}, args=["-y"]),
        document({"a": {"instruction": "Put `${{ secrets.X }}` in:\n```yaml\nenv: {{ input.who }}\n```"}}),
        document({"a": {"instruction": "Keep {{ mustache }} and ${HOME} as they are."}}),
    ],
)
def test_a_literal_placeholder_is_not_warned_of(written: dict[str, Any]) -> None:
    assert find_warnings(written) == []
    assert validator("workflow").is_valid(written)


@pytest.mark.parametrize(
    "mcp",
    [
        {"env": {"TOKEN": "${GITHUB_TOKEN}"}},
        {"headers": {"A": "${{ secrets.TOKEN }}"}},
        {"args": ["${TOKEN}"]},
        {"url": "https://${HOST}/"},
    ],
)
def test_the_schema_refuses_placeholders_of_other_programs(mcp: dict[str, Any]) -> None:
    assert not validator("workflow").is_valid(server(**mcp))


def test_the_remedy_for_several_unconditional_edges_is_a_chain() -> None:
    nodes: dict[str, dict[str, Any]] = {name: {} for name in ("fetch", "style", "tests", "post")}
    edges = [("fetch", "style"), ("fetch", "tests"), ("style", "post"), ("tests", "post")]
    found = LANGUAGE.parse(json.dumps(document(nodes, edges)))
    assert isinstance(found, list)
    [problem] = found
    assert (problem.code, problem.where) == ("AMBIGUOUS_EDGES", "edges[1]")
    chain = "{from: fetch, to: style}, {from: style, to: tests}, {from: tests, to: post}"
    assert str(problem.expected).endswith(f"a chain: {chain}")
    steps = ["fetch", "style", "tests", "post"]
    corrected = LANGUAGE.parse(json.dumps(document(nodes, list(itertools.pairwise(steps)))))
    assert isinstance(corrected, Definition)
