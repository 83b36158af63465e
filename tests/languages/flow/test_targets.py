"""Problems in the calls and the middleware of flows."""

from typing import Any

import pytest

from callboard.languages.flow.specified_providers import FINALLY, LOOP, MOCK, RETRY, TIMEOUT
from tests.support.flow_documents import OWN_MIDDLEWARE, Json, called, codes_of, flow, inner, problems_of, wrapped


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"provider": MOCK, "input": None, "with": "{{ {} }}", "comment": "c"}, []),
        ({"provider": MOCK, "onSuccess": {"value": 1, "assign": {"x": 1}}, "onFailure": {"assign": {}}}, []),
        ({"flow": inner()}, []),
        ({}, [("CALL_TARGET", "")]),
        ({"provider": MOCK, "flow": inner()}, [("CALL_TARGET", "")]),
        ([], [("SCHEMA", "")]),
        ({"provider": MOCK, "with": []}, [("SCHEMA", ".with")]),
        ({"provider": MOCK, "with": "text"}, [("SCHEMA", ".with")]),
        ({"provider": MOCK, "onSuccess": []}, [("SCHEMA", ".onSuccess")]),
        ({"provider": MOCK, "onFailure": {"value": 1}}, [("SCHEMA", ".onFailure.value")]),
        ({"provider": MOCK, "onAlways": {}}, [("SCHEMA", ".onAlways")]),
        ({"provider": None}, [("SCHEMA", ".provider")]),
        ({"provider": "{{ vars.uri }}"}, [("STRUCTURAL_EXPRESSION", ".provider")]),
        ({"flow": "{{ vars.name }}"}, [("STRUCTURAL_EXPRESSION", ".flow")]),
        ({"flow": None}, [("SCHEMA", ".flow")]),
        ({"flow": "Missing"}, [("UNKNOWN_FLOW", ".flow")]),
        ({"provider": "http"}, [("PROVIDER_URI", ".provider")]),
        ({"provider": "https://example.com/fetch"}, [("PROVIDER_URI", ".provider")]),
        ({"provider": "mwl:provider.call/acme/x y"}, [("PROVIDER_URI", ".provider")]),
        ({"provider": "mwl:provider.call/acme/x\n"}, [("PROVIDER_URI", ".provider")]),
        ({"provider": RETRY}, [("PROVIDER_TYPE", ".provider")]),
        ({"provider": "mwl:provider.call/mwl/mock/v2"}, [("UNKNOWN_PROVIDER", ".provider")]),
        ({"provider": "mwl:provider.call/callboard/nothing/v1"}, [("UNKNOWN_PROVIDER", ".provider")]),
        ({"provider": "mwl:provider.call/example/http/v1"}, [("EXAMPLE_PROVIDER?", ".provider")]),
        ({"provider": "mwl:provider.call/elsewhere/x/y/z", "with": {"any": 1}}, []),
    ],
)
def test_problems_of_calls(call: Any, expected: list[tuple[str, str]]) -> None:
    assert codes_of(called(call)) == [(code, f"steps.a.call{where}") for code, where in expected]


def test_a_misspelt_provider_is_refused_with_a_suggestion() -> None:
    [problem] = problems_of(called({"provider": "mwl:provider.call/mwl/mok/v1"}))
    assert f"did you mean {MOCK!r}?" in problem.message


def with_cleanup(**arguments: Any) -> Json:
    return wrapped({"provider": FINALLY, "onAlways": {"with": arguments}})


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"provider": RETRY, "onEntry": {"when": False}}, []),
        ({}, [("SCHEMA", ".provider")]),
        ("x", [("SCHEMA", "")]),
        ({"provider": MOCK}, [("PROVIDER_TYPE", ".provider")]),
        ({"provider": "mwl:provider.middleware/mwl/retyr/v1"}, [("UNKNOWN_PROVIDER", ".provider")]),
        ({"provider": OWN_MIDDLEWARE}, [("ATTACHMENT", "")]),
        ({"provider": "mwl:provider.middleware/elsewhere/x", "onEntry": {"with": {"a": 1}}}, []),
        ({"provider": TIMEOUT, "onEntry": {"with": {"duration": "PT1S"}, "value": 1}}, [("SCHEMA", ".onEntry.value")]),
        ({"provider": TIMEOUT, "onEntry": {"with": {"duration": "soon"}}}, [("ARGUMENTS?", ".onEntry.with")]),
        (
            {"provider": TIMEOUT, "onEntry": {"with": {"duration": "{{ vars.d }}"}}},
            [("UNKNOWN_VARIABLE?", ".onEntry.with.duration")],
        ),
        ({"provider": TIMEOUT, "onEntry": {"with": "{{ frame.input }}"}}, []),
        (
            {"provider": TIMEOUT, "onEntry": {"when": "yes", "with": {"duration": "PT1S"}}},
            [("SCHEMA", ".onEntry.when")],
        ),
        ({"provider": TIMEOUT}, [("ARGUMENTS?", "")]),
        (
            {"provider": TIMEOUT, "onEntry": {"with": {"duration": "PT1S"}}, "onAlways": {"with": {"x": 1}}},
            [("ARGUMENTS?", ".onAlways.with")],
        ),
        (
            {"provider": RETRY, "onEntry": {"when": False}, "onFailure": {"type": "success"}},
            [("SUCCESS_TYPE", ".onFailure.type")],
        ),
        (
            {"provider": RETRY, "onEntry": {"when": False}, "onFailure": {"code": "System.X"}},
            [("RESERVED_CODE?", ".onFailure.code")],
        ),
        (
            {"provider": RETRY, "onEntry": {"when": False}, "onSuccess": {"output": 1}},
            [("SCHEMA", ".onSuccess.output")],
        ),
        ({"provider": RETRY, "onEntry": {"when": False}, "onAlways": {"code": "A"}}, [("SCHEMA", ".onAlways.code")]),
        ({"provider": LOOP, "onSuccess": {"when": "{{ false }}"}}, []),
        ({"provider": LOOP}, [("LOOP_WITHOUT_END", ".onSuccess.when")]),
        ({"provider": LOOP, "onSuccess": {"value": 1}}, [("LOOP_WITHOUT_END", ".onSuccess.when")]),
        ({"provider": LOOP, "onSuccess": {"when": True}}, [("LOOP_WITHOUT_END?", ".onSuccess.when")]),
        (
            {"provider": LOOP, "onEntry": {"with": {"x": 1}}, "onSuccess": {"when": False}},
            [("ARGUMENTS?", ".onEntry.with")],
        ),
        ({"provider": FINALLY}, [("SCHEMA", ".onAlways.with")]),
        (
            {"provider": FINALLY, "onAlways": {"with": "{{ vars.call }}"}},
            [("SCHEMA", ".onAlways.with"), ("STRUCTURAL_EXPRESSION", ".onAlways.with")],
        ),
    ],
)
def test_problems_of_middleware_entries(entry: Any, expected: list[tuple[str, str]]) -> None:
    assert sorted(codes_of(wrapped(entry))) == [(code, f"steps.a.middleware[0]{where}") for code, where in expected]


def test_a_middleware_may_be_attached_as_its_contract_allows() -> None:
    entry = {"provider": OWN_MIDDLEWARE, "onEntry": {"with": {"plan": {"any": "{{ not evaluated here"}}}}
    assert codes_of(flow(middleware=[entry])) == []


HTTP = "mwl:provider.call/callboard/http/v1"


@pytest.mark.parametrize(
    ("provider", "matches", "expected"),
    [
        (HTTP, [{"codes": ["Provider.Call.Http.*"]}], [(0, ["Refused", "InvalidRequest"])]),
        (HTTP, [{"codes": ["Provider.Call.Http.Timeout", "Provider.Call.Http.Refused"]}], [(0, ["Refused"])]),
        (HTTP, [{"codes": ["Provider.Call.Http.*"], "retryable": True}], []),
        (HTTP, [{"codes": ["Provider.Call.Http.*"], "types": ["timeout"]}], []),
        (HTTP, [{"codes": ["*"]}, {"codes": ["Provider.*"]}], []),
        (HTTP, [{"codes": ["Provider.Call.Http.Refused"]}, {"codes": ["Provider.*"]}], [(0, ["Refused"]), (1, [])]),
        (HTTP, [{"codes": ["Provider.Call.Http.Throttled", "Provider.Call.Tool.*"]}], []),
        (MOCK, [{"codes": ["Provider.Call.Http.*"]}], []),
        (HTTP, [{"codes": "{{ vars.codes }}"}], []),
        ("mwl:provider.call/callboard/process/v1", [{"codes": ["Provider.Call.Process.*"]}], [(0, ["NotAllowed"])]),
    ],
)
def test_a_retry_of_a_permanent_failure_is_a_warning(
    provider: str, matches: list[Json], expected: list[tuple[int, list[str]]]
) -> None:
    policies = [{"match": match, "attempts": 3} for match in matches]
    retry = {"provider": RETRY, "onEntry": {"with": {"policies": policies}}}
    vain = [one for one in problems_of(wrapped(retry, call={"provider": provider})) if one.code == "RETRY_IN_VAIN"]
    place = "steps.a.middleware[0].onEntry.with.policies"
    assert [one.where for one in vain] == [f"{place}[{index}].match" for index, _codes in expected]
    assert all(one.severity == "warning" for one in vain)
    for one, (_index, codes) in zip(vain, expected, strict=True):
        assert all(f".{code}" in one.message for code in codes)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"call": {"provider": MOCK}}, []),
        ({"call": {"provider": MOCK, "input": "{{ middleware.result }}"}, "middleware": []}, []),
        ({}, [("SCHEMA", ".call")]),
        ({"call": {}}, [("CALL_TARGET", ".call")]),
        ({"call": "{{ vars.call }}"}, [("STRUCTURAL_EXPRESSION", ".call")]),
        ({"call": {"flow": "Missing"}}, [("UNKNOWN_FLOW", ".call.flow")]),
        ({"call": {"flow": inner({"a": {"action": "Pass"}})}}, [("SCHEMA", ".call.flow.steps.a.next")]),
        ({"call": {"provider": MOCK, "with": {"x": 1}}}, [("ARGUMENTS?", ".call.with")]),
        (
            {"call": {"provider": MOCK}, "middleware": [{"provider": LOOP}]},
            [("LOOP_WITHOUT_END", ".middleware[0].onSuccess.when")],
        ),
        (
            {"call": {"provider": MOCK}, "middleware": [{"provider": OWN_MIDDLEWARE}]},
            [("ATTACHMENT", ".middleware[0]")],
        ),
        ({"call": {"provider": MOCK}, "middleware": {}}, [("SCHEMA", ".middleware")]),
        ({"call": {"provider": MOCK}, "also": 1}, [("SCHEMA", ".also")]),
    ],
)
def test_problems_in_the_cleanup_of_a_finally(arguments: Json, expected: list[tuple[str, str]]) -> None:
    place = "steps.a.middleware[0].onAlways.with"
    assert codes_of(with_cleanup(**arguments)) == [(code, f"{place}{where}") for code, where in expected]


def test_a_problem_in_a_nested_finally() -> None:
    broken = {"provider": FINALLY, "onAlways": {"with": {"call": {"flow": "Missing"}}}}
    document = with_cleanup(call={"provider": MOCK}, middleware=[broken])
    place = "steps.a.middleware[0].onAlways.with.middleware[0].onAlways.with.call.flow"
    assert codes_of(document) == [("UNKNOWN_FLOW", place)]


# -- arguments ---------------------------------------------------------------------------------------------------------

PARAMETERS: Json = {
    "type": "object",
    "required": ["mode"],
    "properties": {"mode": {"enum": ["a", "b"]}, "limit": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"mode": "a", "limit": 3.0}, None),
        ({"mode": "{{ vars.m }}"}, None),
        ("{{ frame.input }}", None),
        ({"mode": "c"}, '/mode: is none of ["a", "b"]'),
        ({"mode": "{{ vars.m }}", "limit": "3"}, "/limit: is a string, expected integer"),
        ({"limit": "{{ vars.m }}"}, "lacks 'mode'"),
        ({"mode": "{{ vars.m }}", "mdoe": 1}, "has 'mdoe', which nothing declares"),
        (None, "lacks 'mode'"),
    ],
)
def test_arguments_that_violate_the_parameters_are_a_warning(given_: Any, message: str | None) -> None:
    call = {"flow": "F"} if given_ is None else {"flow": "F", "with": given_}
    declared = {"type": "object", "properties": {"m": {}}}
    named = called(call, flows={"F": inner(parameters=PARAMETERS)}, parameters=declared)
    inline = called({**call, "flow": inner(parameters=PARAMETERS)}, parameters=declared)
    for document in (named, inline):
        reported = [problem for problem in problems_of(document) if problem.code == "ARGUMENTS"]
        assert [problem.message.partition("used: ")[2] for problem in reported] == ([message] if message else [])
        assert all(problem.severity == "warning" for problem in reported)


def test_a_violation_that_depends_on_an_expression_is_not_reported() -> None:
    choice: Json = {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}
    either: Json = {"anyOf": [{"required": ["b"]}, {"properties": {"a": {"const": "x"}}}]}
    for schema in (choice, either):
        declared = {"type": "object", "properties": {"a": {}, "b": {}}, **schema}
        document = called({"flow": inner(parameters=declared), "with": {"a": "{{ frame.input }}"}})
        assert codes_of(document) == []
