"""Rows of the specification's index of requirements (page *Conformance*) that no other module of this folder tests.

The name of a test begins with the page of its row.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.languages.flow import result
from callboard.languages.flow.authoring import CLAIM
from callboard.languages.flow.language import LANGUAGE
from callboard.languages.flow.specified_providers import MOCK, SPECIFIED
from callboard.languages.plan import Definition
from tests.support.flow_cases import EXHAUSTED, INVALID, bad, ok, one_step, parameters, shaper
from tests.support.flows import (
    LOOP,
    SCHEMA,
    call,
    caught,
    cleanup,
    entry,
    failing,
    flow,
    mock,
    perform,
    retry,
    returned,
    subflow,
    timeout,
)

"""Rows of the index, by page, with the test that holds them."""


def list_problems(definition: dict[str, Any] | str) -> list[tuple[str, str]]:
    """Return severity and code of each problem of a definition."""
    found = LANGUAGE.parse(definition if isinstance(definition, str) else json.dumps(definition))
    return [(one.severity, one.code) for one in (found.warnings if isinstance(found, Definition) else found)]


def errors(definition: dict[str, Any] | str) -> list[str]:
    return [code for severity, code in list_problems(definition) if severity == "error"]


# -- the data model, the definition format -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "01", "+1", "1."])
def test_data_model_a_number_is_a_finite_one_of_rfc_8259(number: str) -> None:
    document = json.dumps(flow({"r": returned("number")}))
    assert errors(document.replace('"number"', number)) == ["PARSE"]


def test_data_model_the_order_of_keys_does_not_matter() -> None:
    block = {"a": "{{ vars.b }}", "b": "{{ vars.a }}", "c": "{{ vars.a + vars.b }}"}
    steps = {"p": {"action": "Pass", "assign": block, "next": "r"}, "r": returned("{{ vars }}")}
    forward = flow(steps, **parameters(a=1, b=2, c=3))
    assert perform(_reverse_keys(forward)).value == perform(forward).value == {"a": 2, "b": 1, "c": 3}


def _reverse_keys(value: Any) -> Any:
    """The same value with the keys of its objects the other way round."""
    if isinstance(value, dict):
        return {name: _reverse_keys(value[name]) for name in reversed(value)}
    return [_reverse_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", "b"]),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"type": "object", "allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 2], [1, 1]),
        ({"$ref": "#/$defs/short", "minLength": 1}, "ab", "abc"),
    ],
    ids=str,
)
def test_definition_format_parameters_are_json_schema_2020_12(schema: Any, fits: Any, fails: Any) -> None:
    """The keywords are absent from other drafts, or have another meaning there."""
    declared = {"type": "object", "properties": {"x": schema}, "$defs": {"short": {"maxLength": 2}}}
    definition = flow({"r": returned("{{ vars.x }}")}, parameters=declared)
    assert perform(definition, arguments={"x": fits}).value == fits
    assert perform(definition, arguments={"x": fails}).result["code"] == INVALID


COMMENTED = "{{ neither ((( CEL nor a meaningful comment"


def _commented(comment: dict[str, str]) -> dict[str, Any]:
    """A flow with a comment on every structure that may have one."""
    wrapped = [
        {**retry(2), **comment},
        {**cleanup({**mock(), **comment}, middleware=[{**shaper(), **comment}]), **comment},
    ]
    steps = {
        "m": {
            "action": "Match",
            "cases": [{"when": "{{ false }}", "next": "s", **comment}],
            "default": {"next": "c", **comment},
            **comment,
        },
        "c": call({**mock(), **comment}, "g", middleware=wrapped, catch=[caught("done", **comment)], **comment),
        "g": {
            "action": "Gather",
            "over": [1],
            "call": {"flow": subflow({"r": returned()}, **comment), **comment},
            "next": "p",
            **comment,
        },
        "p": {"action": "Pass", "next": "s", **comment},
        "s": {"action": "Sleep", "for": "PT0S", "next": "done", **comment},
        "done": returned(**comment),
        "r": {"action": "Raise", **comment},
    }
    return flow(
        steps, flows={"F": subflow({"r": returned()}, **comment)}, middleware=[{**shaper(), **comment}], **comment
    )


def test_definition_format_comments_are_kept_and_ignored() -> None:
    plain, commented = _commented({}), _commented({"comment": COMMENTED})
    assert list_problems(plain) == list_problems(commented)
    assert perform(plain).value == perform(commented).value == [1]
    definition = LANGUAGE.parse(json.dumps(commented))
    assert isinstance(definition, Definition)
    assert json.loads(definition.source) == json.loads(definition.canonical) == commented
    assert definition.source.count(json.dumps(COMMENTED)) == 20


# -- expressions -------------------------------------------------------------------------------------------------------

WRITTEN = "{{ 'x' }}"
IDENTIFIERS: dict[str, dict[str, Any]] = {
    "action": flow({"r": {"action": WRITTEN}}),
    "next": flow({"p": {"action": "Pass", "next": WRITTEN}}),
    "entrypoint": {**flow({"r": returned()}), "entrypoint": WRITTEN},
    "provider": one_step(call({"provider": WRITTEN})),
    "flow": one_step(call({"flow": WRITTEN})),
    "a middleware's provider": one_step(call(mock(), middleware=[{"provider": WRITTEN}])),
    "a clause's next": one_step(call(mock(), catch=[caught(WRITTEN)])),
    "codes": one_step(call(mock(), catch=[caught("done", WRITTEN)])),
    "types": one_step(call(mock(), catch=[{"match": {"types": [WRITTEN]}, "next": "done"}])),
    "retryable": one_step(call(mock(), catch=[{"match": {"retryable": WRITTEN}, "next": "done"}])),
    "concurrency": one_step({"action": "Gather", "calls": [mock()], "concurrency": WRITTEN, "next": "done"}),
    "wait": one_step(
        {"action": "Gather", "calls": [mock()], "completion": {"successes": 1, "wait": WRITTEN}, "next": "done"}
    ),
    "steps": {**flow({"r": returned()}), "steps": WRITTEN},
    "parameters": flow({"r": returned()}, parameters=WRITTEN),
    "middleware": flow({"r": returned()}, middleware=WRITTEN),
    "cases": flow({"m": {"action": "Match", "cases": WRITTEN, "default": {"next": "r"}}, "r": returned()}),
    "$schema": {**flow({"r": returned()}), "$schema": WRITTEN},
}


@pytest.mark.parametrize("field", IDENTIFIERS)
def test_expressions_are_refused_in_structural_fields(field: str) -> None:
    assert set(errors(IDENTIFIERS[field])) & {"STRUCTURAL_EXPRESSION", "VERSION"}


# -- the Call interface and Results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_call_interface_a_retryable_that_is_absent_and_one_that_is_null_are_alike(wanted: bool) -> None:
    for envelope in ({"code": "X"}, {"code": "X", "retryable": None}):
        policy = {"match": {"retryable": wanted}, "attempts": 2}
        retried = entry("mwl:provider.middleware/mwl/retry/v1", onEntry={"with": {"policies": [policy]}})
        clause = {"match": {"retryable": wanted}, "next": "done"}
        done = perform(one_step(call(mock(failure=envelope), middleware=[retried], catch=[clause])))
        assert done.chain == ["X"], "neither the policy nor the clause matches"
        assert len(done.keys("effect.call")) == 1


ENUMERATED = {
    "System.Cancelled",
    "System.GatherDispatchCancelled",
    "System.GatherDispatchSkipped",
    "System.GatherCompletionUnmet",
    "System.ExpressionEvaluationError",
    "System.ParameterValidationFailed",
    "System.UnrepresentableValue",
    "System.EmptyRaise",
    "System.FailureChainTruncated",
}


def test_call_interface_the_engine_uses_exactly_the_codes_of_the_specification() -> None:
    sources = [path.read_text() for path in Path(result.__file__).parent.rglob("*.py")]
    minted = {code for source in sources for code in re.findall(r'"(System\.[A-Za-z]+)"', source)}
    assert minted == ENUMERATED


def test_call_interface_a_custom_type_should_be_in_pascal_case() -> None:
    def raising(type: str) -> list[tuple[str, str]]:
        return list_problems(flow({"r": {"action": "Raise", "result": {"type": type, "code": "X"}}}))

    assert raising("Mine") == []
    assert raising("mine") == [("warning", "RESERVED_TYPE")]


# -- steps, middleware -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["A", "a.b.C", "A.*", "*", "Provider.Call.Nobody.*", "ä.ö.*", "with-dash.and_low", ""]
)
def test_step_mechanics_any_pattern_is_accepted(pattern: str) -> None:
    assert errors(one_step(call(mock(), catch=[caught("done", pattern)]))) == []


def test_middleware_mechanics_contracts_describe_their_phases() -> None:
    acting = {uri.split("/")[2]: set(one.phases) for uri, one in SPECIFIED.items() if uri != MOCK}
    assert acting == {
        "retry": {"onEntry", "onFailure"},
        "timeout": {"onEntry"},
        "loop": {"onEntry", "onSuccess"},
        "finally": {"onAlways"},
    }
    assert all(phase.description for one in SPECIFIED.values() for phase in one.phases.values())
    timeouts = next(one for uri, one in SPECIFIED.items() if "timeout" in uri)
    assert "by then counts" in timeouts.phases["onEntry"].description


# -- the execution model -----------------------------------------------------------------------------------------------

READ = "{{ string(wallTime()) }}"


def _count_reads(definition: dict[str, Any]) -> int:
    """Count how often expressions read the clock: each reading is an event."""
    done = perform(definition)
    assert done.result["type"] == "success", done.result
    return len(done.keys("clock.read"))


def test_execution_model_each_field_is_evaluated_once_per_execution_of_its_construct() -> None:
    step: dict[str, Any] = {"input": READ, "output": READ, "assign": {"a": READ}}
    target = {**mock(value=READ), "input": READ, "onSuccess": {"value": READ, "assign": {"b": READ}}}
    assert _count_reads(one_step(call(target, **step), then=READ)) == 3 + 4 + 1
    phases = {"onSuccess": {"value": READ, "assign": {"c": READ}}, "onAlways": {"assign": {"d": READ}}}
    one = shaper({"output": READ, "assign": {"e": READ}}, **phases)
    assert _count_reads(one_step(call(mock(), middleware=[one]))) == 2 + 2 + 1
    fan = {
        "action": "Gather",
        "over": [READ, READ],
        "call": target,
        "completion": {"successes": "{{ size(string(wallTime())) > 0 ? 2 : 0 }}"},
        "next": "done",
    }
    assert _count_reads(one_step({**fan, "output": READ, "assign": {"f": READ}})) == 2 + 2 * 4 + 1 + 2
    case = {"when": "{{ size(string(wallTime())) > 0 }}", "output": READ, "assign": {"g": READ}, "next": "done"}
    unread = {"when": "{{ size(string(wallTime())) > 0 }}", "next": "done"}
    assert (
        _count_reads(one_step({"action": "Match", "input": READ, "cases": [case, unread], "default": {"next": "done"}}))
        == 4
    )
    clause = caught("done", output=READ, assign={"h": READ})
    failed = {**failing("X"), "onFailure": {"assign": {"i": READ}}}
    assert _count_reads(one_step(call(failed, output=READ, catch=[clause]))) == 3


def test_execution_model_a_loop_evaluates_inner_fields_in_every_run_and_outer_ones_once() -> None:
    again = entry(LOOP, onSuccess={"when": "{{ middleware.metadata.iteration < 3.0 }}"}, onEntry={"output": READ})
    inner = shaper({"output": READ})
    assert _count_reads(one_step(call(mock(), middleware=[again, inner], input=READ))) == 1 + 1 + 3


# -- the execution context ---------------------------------------------------------------------------------------------


def test_execution_context_every_root_has_exactly_the_members_of_the_specification() -> None:
    keys = "call.result, call.metadata, provider, middleware, frame, step, execution"
    parts = [part for part in keys.split(", ") if part != "middleware"]
    target = {
        **mock(metadata={"m": 1}),
        "onSuccess": {"value": "{{ {" + ", ".join(f"'{part}': {part}" for part in parts) + "} }}"},
    }
    value: Any = perform(one_step(call(target))).value
    members = {part: set(value[part]) for part in parts}
    assert members == {
        "call.result": {"type", "value"},
        "call.metadata": {"enteredAt", "exitedAt", "dispatchedAt", "acceptedAt"},
        "provider": {"input", "result", "metadata"},
        "frame": {"input", "metadata"},
        "step": {"name", "id", "action", "input", "metadata"},
        "execution": {"id", "metadata", "platform"},
    }
    seen = shaper({"output": "{{ middleware }}"}, onSuccess={"value": "{{ [middleware.result.value, middleware] }}"})
    descended, ascended = perform(one_step(call(mock(), middleware=[seen]))).value
    assert set(descended) == {"input", "metadata"}
    assert set(descended["metadata"]) == {"enteredAt"}
    assert set(ascended) == {"input", "result", "metadata"}
    assert set(ascended["metadata"]) == {"enteredAt", "attempt"}
    fan = {"action": "Gather", "over": [1], "call": {**mock(), "onSuccess": {"value": "{{ call }}"}}, "next": "done"}
    [dispatched] = perform(one_step({**fan, "output": "{{ step.results.map(r, r.value) }}"})).value
    assert set(dispatched) == {"input", "index", "result", "metadata"}
    matched = {"action": "Match", "cases": [], "default": {"output": "{{ [match, step] }}", "next": "done"}}
    match, step = perform(one_step(matched)).value
    assert set(match) == {"input", "metadata"}
    assert set(match["metadata"]) == set(step["metadata"]) == {"enteredAt", "exitedAt"}


# -- step actions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["{{ true }}", "{{ false }}", "{{ 1 == 1 }}", "{{ vars.x && !vars.x }}"])
def test_step_actions_no_apparent_tautology_is_refused(when: str) -> None:
    case = {"when": when, "next": "r"}
    assert (
        errors(flow({"m": {"action": "Match", "cases": [case, case], "default": {"next": "r"}}, "r": returned()})) == []
    )


@pytest.mark.parametrize(
    "code", ["System.Cancelled", "Provider.Call.Http.Throttled", "", "a b c", "{{ 'System.' + 'X' }}"]
)
def test_step_actions_no_code_is_refused(code: str) -> None:
    assert errors(flow({"r": {"action": "Raise", "result": {"code": code}}})) == []


def test_step_actions_a_large_fan_out_counts_every_failure() -> None:
    """The list of failures is cut at a bound, their count is not, and no dispatch is left out."""
    done = perform(
        one_step({"action": "Gather", "over": "{{ lists.range(1200) }}", "call": failing("X"), "next": "done"})
    )
    details = done.result["details"]
    assert details["failureCount"] == 1200
    assert [one["index"] for one in details["failures"]] == list(range(1000))
    assert len(done.keys("effect.call")) == 1200


# -- providers, the claim ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "known"),
    [
        (MOCK, True),
        ("mwl:provider.call/acme/a/b/c.d_e-f/v1", True),
        ("mwl:provider.call/acme/http", True),
        ("MWL:provider.call/acme/http", False),
        ("mwl:provider.call/acme", False),
        ("mwl:provider.call/acme/", False),
        ("mwl:provider.call//http", False),
        ("mwl://provider.call/acme/http", False),
        ("mwl:/provider.call/acme/http", False),
        ("mwl:provider.call/acme/http?v=1", False),
        ("mwl:provider.call/acme/http#v1", False),
        ("mwl:provider.call/acme/./http", False),
        ("mwl:provider.call/../http/v1", False),
        ("mwl:provider.call/acme/ht%74p", False),
        ("mwl:provider.other/acme/http", False),
        ("https://example.com/http", False),
        (f"{MOCK} ", False),
    ],
)
def test_providers_the_syntax_of_their_uris(uri: str, known: bool) -> None:
    found = errors(one_step(call({"provider": uri})))
    assert found == ([] if known else ["PROVIDER_URI"])


def test_providers_the_five_of_the_specification_run() -> None:
    once = entry(LOOP, onSuccess={"when": "{{ false }}"})
    stack = [cleanup(mock()), retry(2), timeout("PT5S"), once]
    assert perform(one_step(call(mock(value=1), middleware=stack), middleware=stack)).result == ok(1)
    failed = perform(one_step(call(failing("X"), middleware=stack)))
    assert failed.result == bad(
        EXHAUSTED, message="gave up after 2 attempts", details={"attempts": 2, "policy": 0}, previous=bad("X")
    )


def test_conformance_a_claim_has_the_core_and_the_base_of_its_extensions() -> None:
    base = "https://mwl.dev/v0.1/conformance/"
    assert f"{base}core" in CLAIM
    assert len(set(CLAIM)) == len(CLAIM)
    cel = f"{base}expressions/cel"
    extensions = {uri for uri in CLAIM if uri.startswith(f"{cel}/")}
    assert extensions == {f"{cel}/{name}" for name in ("strings", "lists", "sets", "encoders", "math")}
    assert cel in CLAIM


def test_the_log_has_the_version_of_the_definition() -> None:
    assert errors({**flow({"r": returned()}), "$schema": SCHEMA.replace("v0.1", "v0.2")}) == ["VERSION"]
    done = perform(flow({"r": returned(1)}))
    accepted = next(ev.payload_of(event) for event in done.events if event.type == ev.RunAccepted.type)
    assert isinstance(accepted, ev.RunAccepted)
    assert json.loads(accepted.definition.source or "")["$schema"] == SCHEMA
