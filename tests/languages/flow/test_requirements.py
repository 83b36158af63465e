"""The specification's index of requirements (page *Conformance*), row by row, and what holds each one.

`HELD` lists the rows that tests elsewhere hold already; the tests below hold the rest. Rows that bind the authors of
definitions are listed where an implementation has to refuse what violates them, rows that bind tooling where a
validator is one.
"""

import ast
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
from callboard.languages.language import Definition
from tests.support.flow_cases import EXHAUSTED, INVALID, bad, ok, parameters, shown
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
from tests.support.places import TESTS

HELD: dict[str, str] = {
    # The data model, the definition format
    "data-model: the temporal formats are accepted, durations": "flow/test_temporal::test_a_duration_is_read",
    "data-model: the temporal formats are accepted, timestamps": (
        "flow/test_temporal::test_an_instant_is_read_and_written_in_utc"
    ),
    "data-model: zero and negative durations are not refused": (
        "flow/test_steps::test_a_moment_that_has_passed_completes_a_sleep_at_once"
    ),
    "definition-format: duplicate member names are refused": (
        "flow/test_document::test_duplicate_members_are_refused_by_the_reader"
    ),
    "definition-format: the meta-schema": (
        "flow/test_published::test_mutated_definitions_are_judged_as_the_published_schema_does"
    ),
    # Expressions
    "expressions: what cannot be read is refused, never a literal": (
        "flow/test_expressions::test_an_expression_that_is_no_cel_is_an_error_that_says_where"
    ),
    "expressions: an evaluation error is matched like any": (
        "flow/test_steps::test_a_fault_in_a_steps_own_fields_is_its_failure_and_can_be_caught"
    ),
    "expressions: core CEL, values": "cel/test_core::test_values",
    "expressions: core CEL, against another implementation": "cel/test_oracle::test_numbers_of_all_kinds_compute_alike",
    "expressions: the MWL functions": "flow/test_cases_expressions::test_values",
    "expressions: the recommended extensions": "cel/test_profiles::test_true_is",
    "expressions: a predicate is a boolean": "flow/test_context::test_a_predicate_must_be_a_boolean",
    # The Call interface and Results
    "call-interface: exactly one target": "flow/test_targets::test_calls",
    "call-interface: an extension type": "flow/test_cases_failures::test_failures",
    "call-interface: previous may be overridden, and severed": (
        "flow/test_middleware::test_writing_only_previous_builds_a_successor_too_and_null_severs"
    ),
    "call-interface: faults in the failure arm": (
        "flow/test_steps::test_a_fault_in_the_failure_arm_chains_the_targets_failure"
    ),
    "call-interface: when the arms run": (
        "flow/test_unwind::test_neither_arms_nor_catch_nor_failure_phases_take_part_in_an_unwind"
    ),
    # The Flow object and validation
    "flow-object: entrypoint names a step; next does": "flow/test_document::test_flows",
    "flow-object: parameters describe an object": "flow/test_validation::test_what_keeps_a_value_from_being_a_schema",
    "flow-object: steps resolve within their map": (
        "flow/test_document::test_a_step_of_another_flow_is_no_step_of_this_one"
    ),
    "flow-object: flows resolve outward": (
        "flow/test_document::test_flow_names_are_sought_outward_from_where_they_stand"
    ),
    "flow-object: no flow reaches itself": "flow/test_document::test_no_flow_reaches_itself",
    "flow-object: a warning where a flow hides another": "flow/test_document::test_a_flow_that_hides_another_is_told",
    "flow-object: formats are asserted": "flow/test_validation::test_formats_are_asserted",
    "flow-object: details of a failed validation": "flow/test_validation::test_a_violation_says_where_and_what",
    # Steps
    "step-mechanics: every step has a way out": "flow/test_document::test_steps",
    "step-mechanics: a matcher has a member": "flow/test_document::test_failure_matchers",
    "step-mechanics: a warning of unreachable clauses": (
        "flow/test_document::test_the_first_clause_wins_so_a_later_one_may_never"
    ),
    # Middleware
    "middleware-mechanics: a constructed failure is none of success": (
        "flow/test_middleware::test_an_envelope_field_of_the_wrong_type_fails_validation"
    ),
    "middleware-mechanics: acceptance of a racing action": (
        "flow/test_unwind::test_a_result_that_has_risen_in_time_is_accepted"
    ),
    # The execution model
    "execution-model: now() is the entry instant": (
        "flow/test_context::test_now_is_pinned_to_the_construct_and_advances_with_each_attempt"
    ),
    "execution-model: an imposed cancellation chains its cause": (
        "flow/test_unwind::test_a_cleanup_below_the_timeout_sees_the_cancellation_with_its_cause"
    ),
    "execution-model: the owner converts its bare cancellation": (
        "flow/test_unwind::test_a_timeout_surfaces_as_its_own_failure_without_a_trace_of_the_cancellation"
    ),
    "execution-model: no conversion of what a clean-up superseded": (
        "flow/test_unwind::test_a_cleanup_that_fails_on_the_way_out_is_not_converted_away"
    ),
    "execution-model: an external cancellation": (
        "flow/test_unwind::test_an_external_cancellation_is_the_root_frames_result_without_a_previous"
    ),
    "execution-model: observable, frames are immutable under a fan-out": (
        "flow/test_steps::test_dispatches_read_the_variables_as_they_were_when_the_action_began"
    ),
    "execution-model: observable, deferred arms": (
        "flow/test_steps::test_arms_run_in_dispatch_order_whatever_order_the_work_ends_in_even_one_at_a_time"
    ),
    "execution-model: observable, two-stage determination": "flow/test_cases_gather::test_gathers",
    "execution-model: observable, the Retry restore": (
        "flow/test_middleware::test_variables_are_restored_and_only_the_gaps_assignments_cross"
    ),
    "execution-model: observable, the unwind's acceptance": (
        "flow/test_unwind::test_a_result_that_has_risen_in_time_is_accepted"
    ),
    # The execution context
    "execution-context: execution has the members of the specification": (
        "flow/test_context::test_execution_is_the_same_in_every_frame_and_has_the_members_of_the_specification"
    ),
    "execution-context: step has the members of the specification": (
        "flow/test_context::test_step_has_the_members_of_the_specification_and_an_id_of_its_own"
    ),
    "execution-context: a chain that is cut says so": "flow/test_context::test_a_long_chain_is_cut_and_says_so",
    # Step actions
    "step-actions: a Gather has one of its forms, calls, a cap": "flow/test_document::test_gathers",
    "step-actions: over that is no array": (
        "flow/test_steps::test_a_gather_that_fails_from_its_own_machinery_can_be_caught"
    ),
    "step-actions: one of for and until": "flow/test_document::test_steps",
    # Providers
    "providers: the scheme's syntax": "flow/test_targets::test_calls",
    "providers: documents, their namespaces and members": "flow/test_provider_document::test_provider_documents",
    "providers: documents as published": (
        "flow/test_provider_document::test_the_published_provider_documents_are_valid_and_their_counter_examples_are_not"
    ),
    "providers: nothing beyond the metadata schema": "flow/test_providers_own::test_a_call_provider_of_ones_own",
    "providers: a middleware contributes what it declares": (
        "flow/test_providers_own::test_a_control_lets_pass_and_contributes_what_it_declares"
    ),
    "providers: the five of the specification": (
        "flow/test_validation::test_there_are_five_specified_contracts_and_each_goes_by_its_uri"
    ),
    "providers: structural parameters": (
        "flow/test_targets::test_the_cleanup_of_a_finally_is_looked_at_as_a_call_and_a_stack"
    ),
    "providers: a Loop has a continuation": "flow/test_targets::test_middleware_entries",
}
"""Rows of the index, by page, with the test that holds them."""


@pytest.mark.parametrize("row", HELD)
def test_the_tests_that_are_listed_exist(row: str) -> None:
    module, _, name = HELD[row].partition("::")
    tree = ast.parse((TESTS / "languages" / f"{module}.py").read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in tree.body if isinstance(node, functions)}


def told(definition: dict[str, Any] | str) -> list[tuple[str, str]]:
    """What is wrong with a definition: severity and code of each problem."""
    found = LANGUAGE.parse(definition if isinstance(definition, str) else json.dumps(definition))
    return [(one.severity, one.code) for one in (found.warnings if isinstance(found, Definition) else found)]


def errors(definition: dict[str, Any] | str) -> list[str]:
    return [code for severity, code in told(definition) if severity == "error"]


# -- the data model, the definition format -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "01", "+1", "1."])
def test_data_model_a_number_is_a_finite_one_of_rfc_8259(number: str) -> None:
    document = json.dumps(flow({"r": returned("number")}))
    assert errors(document.replace('"number"', number)) == ["PARSE"]


def test_data_model_nothing_hangs_on_the_order_of_keys() -> None:
    block = {"a": "{{ vars.b }}", "b": "{{ vars.a }}", "c": "{{ vars.a + vars.b }}"}
    steps = {"p": {"action": "Pass", "assign": block, "next": "r"}, "r": returned("{{ vars }}")}
    forward = flow(steps, **parameters(a=1, b=2, c=3))
    assert perform(_turned(forward)).value == perform(forward).value == {"a": 2, "b": 1, "c": 3}


def _turned(value: Any) -> Any:
    """The same value with the keys of its objects the other way round."""
    if isinstance(value, dict):
        return {name: _turned(value[name]) for name in reversed(value)}
    return [_turned(item) for item in value] if isinstance(value, list) else value


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
    """Keywords that other drafts do not have, or read otherwise."""
    declared = {"type": "object", "properties": {"x": schema}, "$defs": {"short": {"maxLength": 2}}}
    definition = flow({"r": returned("{{ vars.x }}")}, parameters=declared)
    assert perform(definition, arguments={"x": fits}).value == fits
    assert perform(definition, arguments={"x": fails}).result["code"] == INVALID


COMMENTED = "{{ this is ((( no CEL, and no comment that means anything"


def _commented(comment: dict[str, str]) -> dict[str, Any]:
    """A flow with a comment on every structure that may have one."""
    wrapped = [
        {**retry(2), **comment},
        {**cleanup({**mock(), **comment}, middleware=[{**shown(), **comment}]), **comment},
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
        steps, flows={"F": subflow({"r": returned()}, **comment)}, middleware=[{**shown(), **comment}], **comment
    )


def test_definition_format_comments_are_kept_and_mean_nothing() -> None:
    plain, commented = _commented({}), _commented({"comment": COMMENTED})
    assert told(plain) == told(commented)
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
    "provider": flow({"c": call({"provider": WRITTEN}), "done": returned()}),
    "flow": flow({"c": call({"flow": WRITTEN}), "done": returned()}),
    "a middleware's provider": flow({"c": call(mock(), middleware=[{"provider": WRITTEN}]), "done": returned()}),
    "a clause's next": flow({"c": call(mock(), catch=[caught(WRITTEN)]), "done": returned()}),
    "codes": flow({"c": call(mock(), catch=[caught("done", WRITTEN)]), "done": returned()}),
    "types": flow({"c": call(mock(), catch=[{"match": {"types": [WRITTEN]}, "next": "done"}]), "done": returned()}),
    "retryable": flow(
        {"c": call(mock(), catch=[{"match": {"retryable": WRITTEN}, "next": "done"}]), "done": returned()}
    ),
    "concurrency": flow(
        {"g": {"action": "Gather", "calls": [mock()], "concurrency": WRITTEN, "next": "done"}, "done": returned()}
    ),
    "wait": flow(
        {
            "g": {
                "action": "Gather",
                "calls": [mock()],
                "completion": {"successes": 1, "wait": WRITTEN},
                "next": "done",
            },
            "done": returned(),
        }
    ),
    "steps": {**flow({"r": returned()}), "steps": WRITTEN},
    "parameters": flow({"r": returned()}, parameters=WRITTEN),
    "middleware": flow({"r": returned()}, middleware=WRITTEN),
    "cases": flow({"m": {"action": "Match", "cases": WRITTEN, "default": {"next": "r"}}, "r": returned()}),
    "$schema": {**flow({"r": returned()}), "$schema": WRITTEN},
}


@pytest.mark.parametrize("field", IDENTIFIERS)
def test_expressions_none_may_stand_where_the_definition_alone_decides(field: str) -> None:
    assert set(errors(IDENTIFIERS[field])) & {"STRUCTURAL_EXPRESSION", "VERSION"}


# -- the Call interface and Results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_call_interface_a_retryable_that_is_absent_and_one_that_is_null_are_alike(wanted: bool) -> None:
    for envelope in ({"code": "X"}, {"code": "X", "retryable": None}):
        policy = {"match": {"retryable": wanted}, "attempts": 2}
        retried = entry("mwl:provider.middleware/mwl/retry/v1", onEntry={"with": {"policies": [policy]}})
        clause = {"match": {"retryable": wanted}, "next": "done"}
        done = perform(
            flow({"c": call(mock(failure=envelope), middleware=[retried], catch=[clause]), "done": returned()})
        )
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


def test_call_interface_the_engine_mints_the_codes_of_the_specification_and_no_others() -> None:
    sources = [path.read_text() for path in Path(result.__file__).parent.rglob("*.py")]
    minted = {code for source in sources for code in re.findall(r'"(System\.[A-Za-z]+)"', source)}
    assert minted == ENUMERATED


def test_call_interface_a_type_of_ones_own_should_be_in_pascal_case() -> None:
    def raising(type: str) -> list[tuple[str, str]]:
        return told(flow({"r": {"action": "Raise", "result": {"type": type, "code": "X"}}}))

    assert raising("Mine") == []
    assert raising("mine") == [("warning", "RESERVED_TYPE")]


# -- steps, middleware -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["A", "a.b.C", "A.*", "*", "Provider.Call.Nobody.*", "ä.ö.*", "with-dash.and_low", ""]
)
def test_step_mechanics_any_pattern_is_accepted(pattern: str) -> None:
    assert errors(flow({"c": call(mock(), catch=[caught("done", pattern)]), "done": returned()})) == []


def test_middleware_mechanics_contracts_say_where_when_has_effect_and_what_a_race_accepts() -> None:
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


def _reads(definition: dict[str, Any]) -> int:
    """How often expressions have read the clock: each reading is an event."""
    done = perform(definition)
    assert done.result["type"] == "success", done.result
    return len(done.keys("clock.read"))


def test_execution_model_each_field_is_evaluated_once_per_execution_of_its_construct() -> None:
    step: dict[str, Any] = {"input": READ, "output": READ, "assign": {"a": READ}}
    target = {**mock(value=READ), "input": READ, "onSuccess": {"value": READ, "assign": {"b": READ}}}
    assert _reads(flow({"c": call(target, **step), "done": returned(READ)})) == 3 + 4 + 1
    phases = {"onSuccess": {"value": READ, "assign": {"c": READ}}, "onAlways": {"assign": {"d": READ}}}
    one = shown({"output": READ, "assign": {"e": READ}}, **phases)
    assert _reads(flow({"c": call(mock(), middleware=[one]), "done": returned()})) == 2 + 2 + 1
    fan = {
        "action": "Gather",
        "over": [READ, READ],
        "call": target,
        "completion": {"successes": "{{ size(string(wallTime())) > 0 ? 2 : 0 }}"},
        "next": "done",
    }
    assert _reads(flow({"g": {**fan, "output": READ, "assign": {"f": READ}}, "done": returned()})) == 2 + 2 * 4 + 1 + 2
    case = {"when": "{{ size(string(wallTime())) > 0 }}", "output": READ, "assign": {"g": READ}, "next": "done"}
    unread = {"when": "{{ size(string(wallTime())) > 0 }}", "next": "done"}
    assert (
        _reads(
            flow(
                {
                    "m": {"action": "Match", "input": READ, "cases": [case, unread], "default": {"next": "done"}},
                    "done": returned(),
                }
            )
        )
        == 4
    )
    clause = caught("done", output=READ, assign={"h": READ})
    failed = {**failing("X"), "onFailure": {"assign": {"i": READ}}}
    assert _reads(flow({"c": call(failed, output=READ, catch=[clause]), "done": returned()})) == 3


def test_execution_model_what_runs_again_is_evaluated_afresh_and_what_wraps_it_is_not() -> None:
    again = entry(LOOP, onSuccess={"when": "{{ middleware.metadata.iteration < 3.0 }}"}, onEntry={"output": READ})
    inner = shown({"output": READ})
    assert _reads(flow({"c": call(mock(), middleware=[again, inner], input=READ), "done": returned()})) == 1 + 1 + 3


def test_execution_model_the_reason_of_a_cancellation_is_told_in_its_message() -> None:
    nap = flow({"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()})
    done = perform(nap, commands=[("cancel", {"reason": "operator", "message": "the maintenance begins"})])
    assert done.result == {"type": "cancellation", "code": "System.Cancelled", "message": "the maintenance begins"}


# -- the execution context ---------------------------------------------------------------------------------------------


def test_execution_context_every_root_has_the_members_of_the_specification_and_no_others() -> None:
    keys = "call.result, call.metadata, provider, middleware, frame, step, execution"
    parts = [part for part in keys.split(", ") if part != "middleware"]
    target = {
        **mock(metadata={"m": 1}),
        "onSuccess": {"value": "{{ {" + ", ".join(f"'{part}': {part}" for part in parts) + "} }}"},
    }
    value: Any = perform(flow({"c": call(target), "done": returned()})).value
    members = {part: set(value[part]) for part in parts}
    assert members == {
        "call.result": {"type", "value"},
        "call.metadata": {"enteredAt", "exitedAt", "dispatchedAt", "acceptedAt"},
        "provider": {"input", "result", "metadata"},
        "frame": {"input", "metadata"},
        "step": {"name", "id", "action", "input", "metadata"},
        "execution": {"id", "metadata", "platform"},
    }
    seen = shown({"output": "{{ middleware }}"}, onSuccess={"value": "{{ [middleware.result.value, middleware] }}"})
    descended, ascended = perform(flow({"c": call(mock(), middleware=[seen]), "done": returned()})).value
    assert set(descended) == {"input", "metadata"}
    assert set(descended["metadata"]) == {"enteredAt"}
    assert set(ascended) == {"input", "result", "metadata"}
    assert set(ascended["metadata"]) == {"enteredAt", "attempt"}
    fan = {"action": "Gather", "over": [1], "call": {**mock(), "onSuccess": {"value": "{{ call }}"}}, "next": "done"}
    [dispatched] = perform(
        flow({"g": {**fan, "output": "{{ step.results.map(r, r.value) }}"}, "done": returned()})
    ).value
    assert set(dispatched) == {"input", "index", "result", "metadata"}
    matched = {"action": "Match", "cases": [], "default": {"output": "{{ [match, step] }}", "next": "done"}}
    match, step = perform(flow({"m": matched, "done": returned()})).value
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


def test_step_actions_a_large_fan_out_is_counted_whole() -> None:
    """The list of failures is cut at a bound, their count is not, and no dispatch is left out."""
    done = perform(
        flow(
            {
                "g": {"action": "Gather", "over": "{{ lists.range(1200) }}", "call": failing("X"), "next": "done"},
                "done": returned(),
            }
        )
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
    found = errors(flow({"c": call({"provider": uri}), "done": returned()}))
    assert found == ([] if known else ["PROVIDER_URI"])


def test_providers_the_five_of_the_specification_run() -> None:
    once = entry(LOOP, onSuccess={"when": "{{ false }}"})
    stack = [cleanup(mock()), retry(2), timeout("PT5S"), once]
    assert perform(
        flow({"c": call(mock(value=1), middleware=stack), "done": returned()}, middleware=stack)
    ).result == ok(1)
    failed = perform(flow({"c": call(failing("X"), middleware=stack), "done": returned()}))
    assert failed.result == bad(
        EXHAUSTED, message="gave up after 2 attempts", details={"attempts": 2, "policy": 0}, previous=bad("X")
    )


def test_conformance_a_claim_has_the_core_and_what_its_extensions_extend() -> None:
    base = "https://mwl.dev/v0.1/conformance/"
    assert f"{base}core" in CLAIM
    assert len(set(CLAIM)) == len(CLAIM)
    cel = f"{base}expressions/cel"
    extensions = {uri for uri in CLAIM if uri.startswith(f"{cel}/")}
    assert extensions == {f"{cel}/{name}" for name in ("strings", "lists", "sets", "encoders", "math")}
    assert cel in CLAIM


def test_the_run_is_told_with_the_version_it_is_written_in() -> None:
    assert errors({**flow({"r": returned()}), "$schema": SCHEMA.replace("v0.1", "v0.2")}) == ["VERSION"]
    done = perform(flow({"r": returned(1)}))
    accepted = next(ev.payload_of(event) for event in done.events if event.type == ev.RunAccepted.type)
    assert isinstance(accepted, ev.RunAccepted)
    assert json.loads(accepted.definition.source or "")["$schema"] == SCHEMA
