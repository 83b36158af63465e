"""Warnings of literals that look like expressions or variables, with their places and corrections."""

import json
from typing import Any

import pytest

from callboard.bus.events import Problem
from callboard.languages.flow.language import LANGUAGE
from callboard.languages.plan import Definition
from tests.docs.test_schemas import validator
from tests.support.flow_documents import flow

HTTP, TOOL = "mwl:provider.call/callboard/http/v1", "mwl:provider.call/callboard/tool/v1"
SHELL, MODEL = "mwl:provider.call/callboard/process/v1", "mwl:provider.call/callboard/model/v1"
CHILD = "mwl:provider.call/callboard/definition/v1"
PARAMETERS = {"type": "object", "properties": {"who": {"type": "string"}}}


def returned(value: Any) -> dict[str, Any]:
    return flow({"a": {"action": "Return", "value": value}}, parameters=PARAMETERS)


def flow_with_call(provider: str, arguments: Any) -> dict[str, Any]:
    call = {"action": "Call", "call": {"provider": provider, "with": arguments}, "next": "b"}
    return flow({"a": call, "b": {"action": "Return"}}, parameters=PARAMETERS)


def mcp(**more: Any) -> dict[str, Any]:
    return {"tool": "look", "source": {"type": "mcp", "name": "desk", "url": "https://example.com/", **more}}


def warnings_of(document: dict[str, Any]) -> list[Problem]:
    found = LANGUAGE.parse(json.dumps(document))
    assert isinstance(found, Definition), found
    return list(found.warnings)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Hello {{ frame.input.who }}!", "{{ 'Hello ' + string(frame.input.who) + '!' }}"),
        ("It's {{vars.who}}\n", "{{ 'It\\'s ' + string(vars.who) + '\\n' }}"),
        (
            "{{ vars.who }} and {{ {'a': {'b': vars.who}} }}",
            "{{ string(vars.who) + ' and ' + string({'a': {'b': vars.who}}) }}",
        ),
        ("Dear {{ input.who }}", "{{ 'Dear ' + string(input.who) }}"),
        ("${vars.who}", "{{ vars.who }}"),
        ("Hello ${frame.input.who}!", "{{ 'Hello ' + string(frame.input.who) + '!' }}"),
    ],
)
def test_an_expression_within_a_text_is_a_warning_with_a_correction(text: str, meant: str) -> None:
    [warning] = warnings_of(returned({"deep": [text]}))
    assert (warning.code, warning.where, warning.line, warning.expected) == (
        "HALF_EXPRESSION",
        "steps.a.value.deep[0]",
        1,
        meant,
    )
    assert warning.column
    [corrected] = [LANGUAGE.parse(json.dumps(returned(warning.expected)))]
    assert isinstance(corrected, Definition)
    assert "HALF_EXPRESSION" not in [one.code for one in corrected.warnings]


def test_the_name_of_a_member_is_not_evaluated() -> None:
    [warning] = warnings_of(returned({"{{ vars.who }}": 1}))
    assert (warning.code, "only values are evaluated" in warning.message) == ("HALF_EXPRESSION", True)


@pytest.mark.parametrize(
    ("provider", "arguments", "where", "expected"),
    [
        (HTTP, {"url": "https://example.com/", "headers": {"a": "Bearer ${API_TOKEN}"}}, "headers.a", "${API_TOKEN}"),
        (HTTP, {"url": "https://example.com/", "headers": {"a": "${{ secrets.KEY }}"}}, "headers.a", '"${KEY}"'),
        (HTTP, {"url": "https://example.com/", "headers": {"a": "Bearer $KEY"}}, "headers.a", '"${KEY}"'),
        (HTTP, {"url": "https://example.com/", "json": {"k": "${API_KEY:-none}"}}, "json.k", "vars.api_key"),
        (TOOL, mcp(headers={"a": "Bearer ${env:KEY}"}), "source.headers.a", "${KEY}"),
        (TOOL, mcp(env={"TOKEN": "${GITHUB_TOKEN}"}), "source.env.TOKEN", "GITHUB_TOKEN"),
    ],
)
def test_a_variable_that_is_not_filled_in_is_a_warning(
    provider: str, arguments: Any, where: str, expected: str
) -> None:
    [warning] = warnings_of(flow_with_call(provider, arguments))
    assert (warning.code, warning.where) == ("UNFILLED_VARIABLE", f"steps.a.call.with.{where}")
    assert expected in str(warning.expected)


@pytest.mark.parametrize(
    "document",
    [
        returned("{{ 'Hello ' + vars.who }}"),
        returned("It costs $5, or ${}, {{ }} and {{ unknown }}; \\frac{{1}}{2}"),
        flow_with_call(TOOL, mcp(headers={"authorization": "Bearer ${TOKEN}"}, env={"A": "B"})),
        flow_with_call(SHELL, {"argv": ["sh", "-c", "echo ${HOME} $PATH"]}),
        flow_with_call(
            CHILD, {"language": "playbook", "source": "# T\n\n## STEP 1: A\n\nGreet {{ vars.who }} ${X}.\n"}
        ),
        flow_with_call(MODEL, {"prompt": "Explain `${{ secrets.TOKEN }}` and\n```\n${HOME}\n```"}),
    ],
)
def test_intended_text_is_not_a_warning(document: dict[str, Any]) -> None:
    assert warnings_of(document) == []
    assert validator("flow").is_valid(document)


@pytest.mark.parametrize(
    "document",
    [
        returned("Hello {{ frame.input.who }}!"),
        returned({"a": ["Bearer ${API_TOKEN}"]}),
        flow_with_call(HTTP, {"url": "https://example.com/", "headers": {"a": "${{ secrets.KEY }}"}}),
        flow_with_call(TOOL, mcp(env={"TOKEN": "${GITHUB_TOKEN}"})),
    ],
)
def test_editors_mark_near_misses_by_the_schema(document: dict[str, Any]) -> None:
    assert not validator("flow").is_valid(document)
