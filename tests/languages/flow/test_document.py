"""Problems in flows and their steps, found without running them."""

import re
from typing import Any

import pytest

from callboard.languages.flow.name_scopes import FLOW_LEVELS_MAX
from callboard.languages.flow.specified_providers import FINALLY, MOCK, RETRY
from callboard.languages.flow.structure import FLOW_SCHEMA
from callboard.languages.json_text import read_json
from tests.support.flow_documents import Json, called, caught, codes_of, flow, inner, one, problems_of, wrapped
from tests.support.places import ROOT

# -- documents and flows -----------------------------------------------------------------------------------------------


def test_the_smallest_flow_is_valid() -> None:
    assert problems_of(flow()) == []


@pytest.mark.parametrize("document", [None, 3, "x", [], True])
def test_a_document_that_is_not_an_object_is_refused(document: Any) -> None:
    assert codes_of(document) == [("SCHEMA", "")]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, [("SCHEMA", "$schema"), ("SCHEMA", "entrypoint"), ("SCHEMA", "steps")]),
        ({**flow(), "$schema": "https://mwl.dev/v0.2/flow/schema.json"}, [("VERSION", "$schema")]),
        ({**flow(), "$schema": None}, [("VERSION", "$schema")]),
        (flow(stpes={}), [("SCHEMA", "stpes")]),
        (flow({}), [("SCHEMA", "steps")]),
        ({**flow(), "steps": []}, [("SCHEMA", "steps")]),
        (flow({"a": 3}), [("SCHEMA", "steps.a")]),
        (flow(entrypoint=3), [("SCHEMA", "entrypoint")]),
        (flow(entrypoint="{{ 'end' }}"), [("STRUCTURAL_EXPRESSION", "entrypoint")]),
        (flow(entrypoint="edn"), [("UNKNOWN_STEP", "entrypoint")]),
        (flow(comment=["x"]), [("SCHEMA", "comment")]),
        (flow(comment="{{ not looked at"), []),
        (flow(flows=[]), [("SCHEMA", "flows")]),
        (flow(flows={"F": 3}), [("SCHEMA", "flows.F")]),
        (flow(flows={"F": flow()}), [("SCHEMA", "flows.F.$schema")]),
        (flow(flows={"F": {}}), [("SCHEMA", "flows.F.entrypoint"), ("SCHEMA", "flows.F.steps")]),
        (flow(middleware={}), [("SCHEMA", "middleware")]),
        (flow(parameters=True), [("SCHEMA", "parameters")]),
        (flow(parameters={}), [("PARAMETERS", "parameters.type")]),
        (flow(parameters={"type": "array"}), [("PARAMETERS", "parameters.type")]),
        (
            flow(parameters={"type": "object", "properties": {"a": {"type": "text"}}}),
            [("PARAMETERS", "parameters.properties.a.type")],
        ),
        (
            flow(parameters={"type": "object", "properties": {"a": {"default": "{{ now() }}"}}}),
            [("STRUCTURAL_EXPRESSION", "parameters.properties.a.default")],
        ),
        (flow(parameters={"type": "object", "description": "{{ as you like }}"}), []),
    ],
)
def test_problems_of_flows(document: Any, expected: list[tuple[str, str]]) -> None:
    assert codes_of(document) == expected


def test_all_problems_are_listed_in_the_order_of_the_text() -> None:
    document = {
        "$schema": FLOW_SCHEMA,
        "entrypoint": "strat",
        "steps": {
            "start": {"action": "Call", "cal": {}, "next": "wait"},
            "wait": {"action": "Sleep", "next": "don"},
            "odd": {"action": "call"},
            "done": {"action": "Raise", "result": {"type": "success"}},
        },
    }
    reported = problems_of(document)
    assert [(one.code, one.where, one.message, one.line) for one in reported] == [
        ("UNKNOWN_STEP", "entrypoint", "entrypoint 'strat' does not exist, did you mean 'start'?", 3),
        ("SCHEMA", "steps.start.call", "is required; is 'cal' meant?", 7),
        ("SCHEMA", "steps.start.cal", "unknown field 'cal', did you mean 'call'?", 7),
        ("SLEEP_FORM", "steps.wait", "has neither for nor until", 10),
        ("UNKNOWN_STEP", "steps.wait.next", "step 'don' does not exist, did you mean 'done'?", 12),
        ("SCHEMA", "steps.odd.action", "there is no action 'call', did you mean 'Call'?", 15),
        ("SCHEMA", "steps.done.result.code", "is required", 19),
        ("SUCCESS_TYPE", "steps.done.result.type", "a success is not a failure", 20),
    ]
    assert reported[2].expected == "one of action, comment, call, input, middleware, output, assign, catch, next"


def test_duplicate_members_are_refused_by_the_reader() -> None:
    read = read_json('{"steps": {"a": {}, "a": {}}}')
    assert isinstance(read, list)
    assert [(one.code, one.where) for one in read] == [("PARSE", "steps.a")]


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({}, [("SCHEMA", "steps.a.action")]),
        ({"action": 3}, [("SCHEMA", "steps.a.action")]),
        ({"action": "{{ 'Pass' }}"}, [("STRUCTURAL_EXPRESSION", "steps.a.action")]),
        ({"action": "Pass", "next": "{{ 'end' }}"}, [("STRUCTURAL_EXPRESSION", "steps.a.next")]),
        ({"action": "Pass"}, [("SCHEMA", "steps.a.next")]),
        ({"action": "Pass", "next": "end", "assign": []}, [("SCHEMA", "steps.a.assign")]),
        ({"action": "Pass", "next": "end", "assign": "{{ {} }}"}, [("SCHEMA", "steps.a.assign")]),
        ({"action": "Pass", "next": "end", "catch": []}, [("SCHEMA", "steps.a.catch")]),
        ({"action": "Sleep", "for": "PT1S", "until": "{{ frame.input }}", "next": "end"}, [("SLEEP_FORM", "steps.a")]),
        ({"action": "Sleep", "for": 3, "next": "end"}, [("SCHEMA", "steps.a.for")]),
        ({"action": "Sleep", "for": "soon", "next": "end"}, [("TEMPORAL?", "steps.a.for")]),
        ({"action": "Sleep", "until": "2030-01-01", "next": "end"}, [("TEMPORAL?", "steps.a.until")]),
        ({"action": "Sleep", "for": "-PT1S", "next": "end"}, []),
        ({"action": "Return", "next": "end"}, [("SCHEMA", "steps.a.next")]),
        ({"action": "Return", "output": 1}, [("SCHEMA", "steps.a.output")]),
        ({"action": "Return", "comment": "x", "value": {"a": [None]}}, []),
        ({"action": "Raise"}, []),
        ({"action": "Raise", "result": "{{ failure }}"}, [("STRUCTURAL_EXPRESSION", "steps.a.result")]),
        ({"action": "Raise", "result": {"code": 3}}, [("SCHEMA", "steps.a.result.code")]),
        ({"action": "Raise", "result": {"code": "A", "retryable": "yes"}}, [("SCHEMA", "steps.a.result.retryable")]),
        ({"action": "Raise", "result": {"code": "A", "retryable": None, "previous": None}}, []),
        ({"action": "Raise", "result": {"code": "A", "previous": []}}, [("SCHEMA", "steps.a.result.previous")]),
        ({"action": "Raise", "result": {"code": "A", "type": "{{ 'success' }}"}}, []),
        ({"action": "Raise", "result": {"code": "A", "type": "Outage"}}, []),
        ({"action": "Raise", "result": {"code": "A", "type": "outage"}}, [("RESERVED_TYPE?", "steps.a.result.type")]),
        ({"action": "Raise", "result": {"code": "System.Mine"}}, [("RESERVED_CODE?", "steps.a.result.code")]),
        ({"action": "Raise", "result": {"code": "Provider.Call.X"}}, [("RESERVED_CODE?", "steps.a.result.code")]),
    ],
)
def test_problems_of_steps(step: Json, expected: list[tuple[str, str]]) -> None:
    reached = "end" in step.values() and step.get("action") != "Return"
    steps = {"a": step, "end": {"action": "Return"}} if reached else {"a": step}
    assert codes_of(flow(steps)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"over": "{{ [1] }}", "call": {"provider": MOCK}}, []),
        ({"over": [1], "call": {"provider": MOCK}, "concurrency": None, "completion": {"successes": 1.0}}, []),
        (
            {"calls": [{"provider": MOCK}], "concurrency": 2.0, "completion": {"successes": "{{ 1 }}", "wait": False}},
            [],
        ),
        ({}, [("GATHER_FORM", "")]),
        ({"over": []}, [("GATHER_FORM", "")]),
        ({"call": {"provider": MOCK}}, [("GATHER_FORM", "")]),
        ({"calls": [{"provider": MOCK}], "over": []}, [("GATHER_FORM", "")]),
        ({"calls": [{"provider": MOCK}], "over": [], "call": {"provider": MOCK}}, [("GATHER_FORM", "")]),
        ({"calls": []}, [("SCHEMA", ".calls")]),
        ({"calls": {}}, [("SCHEMA", ".calls")]),
        ({"calls": "{{ [] }}"}, [("STRUCTURAL_EXPRESSION", ".calls")]),
        ({"over": {"a": 1}, "call": {"provider": MOCK}}, [("SCHEMA", ".over")]),
        ({"over": "features", "call": {"provider": MOCK}}, [("SCHEMA", ".over")]),
        ({"over": "{{ a }} and {{ b }}", "call": {"provider": MOCK}}, [("SCHEMA", ".over")]),
        ({"calls": [{"provider": MOCK}], "concurrency": 0}, [("SCHEMA", ".concurrency")]),
        ({"calls": [{"provider": MOCK}], "concurrency": 1.5}, [("SCHEMA", ".concurrency")]),
        ({"calls": [{"provider": MOCK}], "concurrency": True}, [("SCHEMA", ".concurrency")]),
        ({"calls": [{"provider": MOCK}], "concurrency": "{{ 3 }}"}, [("STRUCTURAL_EXPRESSION", ".concurrency")]),
        ({"calls": [{"provider": MOCK}], "completion": {}}, [("SCHEMA", ".completion.successes")]),
        ({"calls": [{"provider": MOCK}], "completion": {"successes": 1.5}}, [("SCHEMA", ".completion.successes")]),
        ({"calls": [{"provider": MOCK}], "completion": {"successes": "1"}}, [("SCHEMA", ".completion.successes")]),
        ({"calls": [{"provider": MOCK}], "completion": {"successes": 2}}, [("COMPLETION?", ".completion.successes")]),
        (
            {"calls": [{"provider": MOCK}], "completion": {"successes": 1, "wait": "{{ true }}"}},
            [("STRUCTURAL_EXPRESSION", ".completion.wait")],
        ),
        ({"calls": [{"provider": MOCK}], "middleware": [{}]}, [("SCHEMA", ".middleware")]),
        ({"calls": [{"provider": MOCK}], "input": 1}, [("SCHEMA", ".input")]),
    ],
)
def test_problems_of_gathers(fields: Json, expected: list[tuple[str, str]]) -> None:
    step = {"action": "Gather", **fields, "next": "end"}
    assert codes_of(one(step)) == [(code, f"steps.a{where}") for code, where in expected]


def matching(*cases: Any, **fields: Any) -> Json:
    return one({"action": "Match", "cases": list(cases), "default": {"next": "end"}, **fields})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (matching(), []),
        (matching({"when": "{{ match.input }}", "next": "end", "comment": "c", "output": 1, "assign": {}}), []),
        (matching({"next": "end"}), [("SCHEMA", "steps.a.cases[0].when")]),
        (matching({"when": True, "next": "end"}), [("SCHEMA", "steps.a.cases[0].when")]),
        (matching({"when": "yes", "next": "end"}), [("SCHEMA", "steps.a.cases[0].when")]),
        (matching({"when": "{{ true }}"}), [("SCHEMA", "steps.a.cases[0].next")]),
        (matching({"when": "{{ true }}", "next": "edn"}), [("UNKNOWN_STEP", "steps.a.cases[0].next")]),
        (matching(default={"next": "end", "when": "{{ true }}"}), [("SCHEMA", "steps.a.default.when")]),
        (matching(default=[]), [("SCHEMA", "steps.a.default")]),
        (
            one({"action": "Match", "next": "end"}),
            [("SCHEMA", f"steps.a.{name}") for name in ("cases", "default", "next")],
        ),
        (matching(3, "x"), [("SCHEMA", "steps.a.cases[0]"), ("SCHEMA", "steps.a.cases[1]")]),
        (
            matching({"when": "{{ true }}", "next": "end"}, {"when": "{{ false }}", "next": "end"}),
            [("UNREACHABLE_CLAUSE?", "steps.a.cases[1]")],
        ),
    ],
)
def test_problems_of_matches(document: Json, expected: list[tuple[str, str]]) -> None:
    steps = {code for code, _ in codes_of(document)}
    assert sorted(item for item in codes_of(document) if item[0] != "UNREACHABLE_STEP?") == sorted(expected), steps


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ({"codes": ["*"]}, []),
        ({"codes": ["A.*", "B"], "types": ["error", "Outage"], "retryable": False}, []),
        ({}, [("SCHEMA", "")]),
        ([], [("SCHEMA", "")]),
        ({"codes": []}, [("SCHEMA", ".codes")]),
        ({"codes": "*"}, [("SCHEMA", ".codes")]),
        ({"codes": [3]}, [("SCHEMA", ".codes[0]")]),
        ({"codes": ["{{ vars.code }}"]}, [("STRUCTURAL_EXPRESSION", ".codes[0]")]),
        ({"types": []}, [("SCHEMA", ".types")]),
        ({"types": ["success"]}, [("SUCCESS_TYPE", ".types[0]")]),
        ({"types": ["{{ vars.type }}"]}, [("STRUCTURAL_EXPRESSION", ".types[0]")]),
        ({"retryable": None}, [("SCHEMA", ".retryable")]),
        ({"retryable": "{{ true }}"}, [("STRUCTURAL_EXPRESSION", ".retryable")]),
        ({"code": ["*"]}, [("SCHEMA", ".code")]),
        ("{{ vars.matcher }}", [("STRUCTURAL_EXPRESSION", "")]),
    ],
)
def test_problems_of_failure_matchers(matcher: Any, expected: list[tuple[str, str]]) -> None:
    document = caught({"match": matcher, "next": "end"})
    assert codes_of(document) == [(code, f"steps.a.catch[0].match{where}") for code, where in expected]


@pytest.mark.parametrize(
    ("first", "second", "never"),
    [
        ({"codes": ["*"]}, {"codes": ["A"]}, True),
        ({"codes": ["*"]}, {"types": ["error"]}, True),
        ({"codes": ["A.*"]}, {"codes": ["A.B", "A.C.*"]}, True),
        ({"codes": ["A.*"]}, {"codes": ["A.B", "B"]}, False),
        ({"codes": ["A.*"]}, {"codes": ["AB"]}, False),
        ({"codes": ["A"]}, {"codes": ["A.*"]}, False),
        ({"codes": ["A"]}, {"codes": ["*"]}, False),
        ({"types": ["error", "timeout"]}, {"types": ["error"], "retryable": True}, True),
        ({"types": ["error"]}, {"types": ["error", "timeout"]}, False),
        ({"types": ["error"]}, {"codes": ["A"]}, False),
        ({"retryable": True}, {"retryable": True, "codes": ["A"]}, True),
        ({"retryable": True}, {"retryable": False}, False),
        ({"codes": ["*"], "retryable": True}, {"codes": ["A"]}, False),
    ],
)
def test_an_unreachable_clause_is_a_warning(first: Json, second: Json, never: bool) -> None:
    document = caught({"match": first, "next": "end"}, {"match": second, "next": "end"})
    assert codes_of(document) == ([("UNREACHABLE_CLAUSE?", "steps.a.catch[1]")] if never else [])
    policies = [{"match": match, "attempts": 2} for match in (first, second)]
    retry = wrapped({"provider": RETRY, "onEntry": {"with": {"policies": policies}}})
    place = "steps.a.middleware[0].onEntry.with.policies[1]"
    assert codes_of(retry) == ([("UNREACHABLE_CLAUSE?", place)] if never else [])


# -- names -------------------------------------------------------------------------------------------------------------


def test_flow_names_are_looked_up_outward() -> None:
    call = {"action": "Call", "call": {"flow": "Outer"}, "next": "end"}
    nested = inner({"a": call, "end": {"action": "Return"}}, flows={"Own": inner()})
    assert codes_of(called({"flow": "Inner"}, flows={"Outer": inner(), "Inner": nested})) == []
    reported = problems_of(called({"flow": "Own"}, flows={"Outer": inner(), "Inner": nested}))
    assert [(one.code, one.where) for one in reported] == [("UNKNOWN_FLOW", "steps.a.call.flow")]
    assert "the one in flows.Inner.flows is not visible here" in reported[0].message


def test_a_step_of_another_flow_is_unknown() -> None:
    document = called({"flow": inner({"x": {"action": "Pass", "next": "end"}})})
    assert codes_of(document) == [("UNKNOWN_STEP", "steps.a.call.flow.steps.x.next")]


def test_a_flow_that_hides_another_is_a_warning() -> None:
    document = flow(flows={"F": inner(), "G": inner(flows={"F": inner()})})
    assert codes_of(document) == [("SHADOWED_FLOW?", "flows.G.flows.F")]


def flow_that_calls(*names: str, **more: Any) -> Json:
    steps: Json = {
        f"s{index}": {"action": "Call", "call": {"flow": name}, "next": f"s{index + 1}"}
        for index, name in enumerate(names)
    }
    return inner({**steps, f"s{len(names)}": {"action": "Return"}}, **more)


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ({"A": flow_that_calls("A")}, "flows.A → flows.A"),
        ({"A": flow_that_calls("B"), "B": flow_that_calls("A")}, "flows.A → flows.B → flows.A"),
        ({"A": flow_that_calls("B", "C"), "B": flow_that_calls("C"), "C": inner()}, None),
        ({"A": flow_that_calls("B", flows={"B": flow_that_calls("A")})}, "flows.A → flows.A.flows.B → flows.A"),
        ({"A": flow_that_calls("A", flows={"A": inner()})}, None),
        (
            {
                "A": inner(
                    {
                        "s": {"action": "Gather", "calls": [{"flow": flow_that_calls("A")}], "next": "e"},
                        "e": {"action": "Return"},
                    }
                )
            },
            "flows.A → flows.A.steps.s.calls[0].flow → flows.A",
        ),
        (
            {"A": inner(middleware=[{"provider": FINALLY, "onAlways": {"with": {"call": {"flow": "A"}}}}])},
            "flows.A → flows.A",
        ),
    ],
)
def test_a_flow_that_reaches_itself_is_refused(flows: Json, message: str | None) -> None:
    errors = [problem for problem in problems_of(flow(flows=flows)) if problem.severity == "error"]
    expected = [("FLOW_CYCLE", f"the flow reaches itself: {message}")] if message else []
    assert [(problem.code, problem.message) for problem in errors] == expected


def chain_of_flows(levels: int, **more: Any) -> Json:
    """Flows that call one another, ``F1`` at level 2, below a root that calls it."""
    row = {f"F{index}": flow_that_calls(f"F{index + 1}") for index in range(1, levels - 1)}
    return flow(
        {"a": {"action": "Call", "call": {"flow": "F1"}, "next": "end"}, "end": {"action": "Return"}},
        flows={**row, f"F{levels - 1}": inner(), **more},
    )


def test_the_depth_of_flows_is_bounded() -> None:
    assert problems_of(chain_of_flows(FLOW_LEVELS_MAX)) == []
    [problem] = problems_of(chain_of_flows(FLOW_LEVELS_MAX + 5))
    assert (problem.code, problem.where) == ("FLOW_DEPTH", f"flows.F{FLOW_LEVELS_MAX - 1}.steps.s0.call.flow")
    assert problem.message == f"this is level {FLOW_LEVELS_MAX + 1} of flows that call one another"
    # The longest path to a flow counts.
    last = FLOW_LEVELS_MAX - 1
    both = chain_of_flows(
        FLOW_LEVELS_MAX,
        **{"Extra": inner(), f"F{last}": flow_that_calls("Extra"), "F1": flow_that_calls("Extra", "F2")},
    )
    assert codes_of(both) == [("FLOW_DEPTH", f"flows.F{last}.steps.s0.call.flow")]


def test_unreachable_steps_are_warnings() -> None:
    document = flow(
        {
            "a": {
                "action": "Call",
                "call": {"provider": MOCK},
                "catch": [{"match": {"codes": ["*"]}, "next": "c"}],
                "next": "b",
            },
            "b": {"action": "Pass", "next": "a"},
            "c": {"action": "Match", "cases": [{"when": "{{ true }}", "next": "b"}], "default": {"next": "d"}},
            "d": {"action": "Return"},
            "e": {"action": "Pass", "next": "f"},
            "f": {"action": "Pass", "next": "e"},
        }
    )
    assert codes_of(document) == [("UNREACHABLE_STEP?", "steps.e"), ("UNREACHABLE_STEP?", "steps.f")]


# -- the documentation -------------------------------------------------------------------------------------------------


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    root = ROOT
    source = "".join(path.read_text() for path in sorted((root / "languages" / "flow").glob("*.py")))
    raised = set(re.findall(r'\.(?:error|warn)\(\s*"([A-Z_]+)"', source)) | {"PARSE"}
    page = (root / "docs" / "languages" / "flow.md").read_text()
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)) == raised
