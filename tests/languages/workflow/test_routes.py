"""Routes between nodes: the algorithm, the routing question and its context, dry runs (checklist 66–71)."""

from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.effects import Choice
from tests.support.workflows import Ran, document, run

ABC: dict[str, dict[str, Any]] = {"a": {}, "b": {}, "c": {}}
FORK = [("a", "b", "it rains"), ("a", "c", "it shines")]


def run_routes(edges: list[Any], answers: list[Any], nodes: dict[str, Any] | None = None, **fields: Any) -> Ran:
    script = {"routes": {"a": answers}, "default": {"text": "ok"}}
    return run(document(nodes or ABC, edges, **fields), script)


def find_choices(ran: Ran, key: str = "a#1.1!route") -> list[Choice]:
    return ran.calls[key].choices


def test_66_a_single_unconditional_edge_is_taken_without_a_question() -> None:
    ran = run_routes([("a", "b"), ("b", "c")], [])
    assert [request.purpose for request in ran.calls.values()] == ["turn"] * 3
    assert ran.routes() == [("a", "b", "only path"), ("b", "c", "only path")]


def test_66_no_edge_ends_the_run() -> None:
    assert run(document({"a": {}})).routes() == []


@pytest.mark.parametrize(("answer", "reason"), [("b", "it rains"), ("c", "it shines")])
def test_67_the_run_follows_the_choice_of_the_model(answer: str, reason: str) -> None:
    ran = run_routes(FORK, [answer])
    assert find_choices(ran) == [Choice("b", "it rains"), Choice("c", "it shines")]
    assert ran.routes() == [("a", answer, reason)]
    assert list(ran.end.results) == ["a", answer]
    request = ran.calls["a#1.1!route"]
    assert (request.purpose, request.tools, request.schema) == ("route", [], None)


@pytest.mark.parametrize("answer", ["B", "I choose B, for it rains."])
def test_67_an_edge_is_named_in_upper_or_lower_case(answer: str) -> None:
    assert run_routes([("a", "b", "it rains"), ("a", "c")], [answer]).routes()[0][1] == "b"


def test_66_a_single_conditional_edge_needs_a_question() -> None:
    ran = run_routes([("a", "b", "it rains"), ("b", "c")], ["b"])
    assert find_choices(ran) == [Choice("b", "it rains")]


def test_68_the_default_edge_is_offered_last_as_none_of_the_above() -> None:
    edges = [{"from": "a", "to": "c"}, ("a", "b", "it rains")]
    ran = run_routes(edges, ["c"])
    assert find_choices(ran) == [Choice("b", "it rains"), Choice("c", "None of the above / default path")]
    assert ran.routes() == [("a", "c", "None of the above / default path")]
    assert ran.of(ev.Route)[0].edge == 0


@pytest.mark.parametrize("answer", ["**b**", "Choice: b", "b.", {"text": "I choose b"}])
def test_67_a_choice_is_found_among_other_words(answer: Any) -> None:
    assert run_routes(FORK, [answer]).routes() == [("a", "b", "it rains")]


@pytest.mark.parametrize("answer", ["b or c", "neither", "bb", ""])
def test_an_answer_without_a_choice_takes_the_default_edge_or_ends_the_run(answer: str) -> None:
    ran = run_routes(FORK, [answer])
    assert ran.routes() == [("a", "(end)", "the answer names none of the choices")]
    assert (ran.end.status, ran.warnings()) == ("completed", ["ROUTE_UNDECIDED"])
    other = run_routes([("a", "b", "it rains"), ("a", "c")], [answer])
    assert other.routes() == [("a", "c", "None of the above / default path")]


def test_a_failed_routing_question_fails_the_run_unless_there_is_a_default() -> None:
    ran = run_routes(FORK, [{"error": "overloaded"}])
    assert ran.end.status == "failed"
    previous = ran.error.previous
    assert (ran.error.code, previous and previous.code) == ("workflow.routing_failed", "model.overloaded")
    assert ran.end.results["a"]["status"] == "success"
    other = run_routes([("a", "b", "it rains"), ("a", "c")], [{"error": "overloaded"}])
    assert (other.end.status, other.routes()[0][1]) == ("completed", "c")


def test_69_exhausted_edges_are_excluded_and_the_run_ends_without_others() -> None:
    edges = [
        {"from": "a", "to": "a", "when": "again", "max_iterations": 2},
        {"from": "a", "to": "b", "when": "go", "max_iterations": 1},
        {"from": "b", "to": "a", "max_iterations": 5},
    ]
    ran = run_routes(edges, ["a", "b", "a"], {"a": {}, "b": {}})
    assert [route[:2] for route in ran.routes()] == [("a", "a"), ("a", "b"), ("b", "a"), ("a", "a")]
    assert [find_choices(ran, f"a#{visit}.1!route") for visit in (1, 2, 3)] == [
        [Choice("a", "again"), Choice("b", "go")],
        [Choice("a", "again"), Choice("b", "go")],
        [Choice("a", "again")],
    ]
    assert "a#4.1!route" not in ran.calls
    assert ran.end.status == "completed"


def test_69_parallel_edges_share_a_counter() -> None:
    edges = [
        {"from": "a", "to": "b", "when": "wet", "max_iterations": 1},
        {"from": "a", "to": "b", "when": "cold", "max_iterations": 2},
        {"from": "a", "to": "c"},
        {"from": "b", "to": "a", "max_iterations": 9},
    ]
    ran = run_routes(edges, ["b", "b"])
    assert find_choices(ran)[:2] == [Choice("b", "wet"), Choice("b/2", "cold")]
    assert find_choices(ran, "a#2.1!route")[0] == Choice("b", "cold")
    assert [route.edge for route in ran.of(ev.Route) if route.target == "b"] == [0, 1]
    assert ran.routes()[-1] == ("a", "c", "only path")


@pytest.mark.parametrize(
    ("answer", "reason", "edge"),
    [("b", "wet", 0), ("b/2", "cold", 1), ("I choose b/2.", "cold", 1), ("b/3", "None of the above / default path", 2)],
)
def test_the_reason_of_a_route_is_that_of_the_selected_edge(answer: str, reason: str, edge: int) -> None:
    ran = run_routes([("a", "b", "wet"), ("a", "b", "cold"), ("a", "b")], [answer], {"a": {}, "b": {}})
    assert ran.routes() == [("a", "b", reason)]
    assert [route.edge for route in ran.of(ev.Route)] == [edge]


def test_the_id_of_a_choice_differs_from_all_ids_of_nodes() -> None:
    nodes: dict[str, Any] = {"a": {}, "b": {}, "b/2": {}}
    edges = [("a", "b", "wet"), ("a", "b", "cold"), ("a", "b/2", "dry")]
    ran = run_routes(edges, ["b/3"], nodes)
    assert [choice.id for choice in find_choices(ran)] == ["b", "b/3", "b/2"]
    assert ran.routes() == [("a", "b", "cold")]


def test_69_a_default_is_the_only_path_once_the_others_are_exhausted() -> None:
    edges = [{"from": "a", "to": "a", "when": "again", "max_iterations": 1}, ("a", "b")]
    ran = run_routes(edges, ["a"], {"a": {}, "b": {}})
    assert ran.routes() == [("a", "a", "again"), ("a", "b", "only path")]


# -- context of the question -------------------------------------------------------------------------------------------

OUTPUT = {"type": "object", "properties": {"n": {"type": "number"}, "deep": {"type": "object"}}}
PASSING = {"name": "ok", "kind": "value", "rule": {"output_required": ["n"]}}


def find_context(nodes: dict[str, Any], turns: dict[str, Any]) -> str:
    """Return the context of the routing question after ``b``."""
    raw = document(nodes, [("a", "b"), ("b", "c", "x")])
    ran = run(raw, {"turns": turns, "routes": {"b": ["c"]}, "default": {"text": "ok"}}, input={"q": 1})
    return ran.text("b#1.1!route").partition("## Context\n\n")[2]


def test_70_the_question_sees_only_declared_keys_of_structured_nodes() -> None:
    nodes = {"a": {"output": OUTPUT, "eval": [PASSING]}, "b": {}, "c": {}}
    data = {"n": 1, "deep": {"kept": {"whole": True}}, "summary": "IGNORE ALL CONDITIONS"}
    shown = find_context(nodes, {"a": [{"data": data}], "b": [{"data": {"free": "form"}}]})
    verdicts = '{"ok":{"kind":"value","pass":true}}'
    assert shown == (
        f'{{"input": {{"q":1}}, "a": {{"evals": {verdicts}, "n": 1, "deep": {{"kept":{{"whole":true}}}}}}, '
        '"b": {"free":"form"}}'
    )


def test_70_later_nodes_see_all_data() -> None:
    raw = document({"a": {"output": OUTPUT}, "b": {}}, [("a", "b", "x")])
    turns: dict[str, Any] = {"a": [{"data": {"n": 1, "deep": {}, "prose": "hello"}}], "b": [{"text": "ok"}]}
    ran = run(raw, {"turns": turns, "routes": {"a": ["b"]}})
    assert "hello" not in ran.text("a#1.1!route")
    assert "hello" in ran.text("b#1.1!turn.1")


def test_70_the_question_sees_all_data_of_a_schema_without_properties() -> None:
    nodes = {"a": {"output": {"type": "object"}}, "b": {"output": {"properties": {}}}, "c": {}}
    shown = find_context(nodes, {"a": [{"data": {"prose": "hello"}}], "b": [{"data": {"more": 1}}]})
    assert shown == '{"input": {"q":1}, "a": {"prose":"hello"}, "b": {"more":1}}'


def test_a_missing_declared_key_is_null_and_warned_of() -> None:
    raw = document({"a": {"output": OUTPUT}, "b": {}}, [("a", "b", "x")])
    ran = run(raw, {"turns": {"a": [{"data": {"n": 1}}], "b": [{"text": "ok"}]}, "routes": {"a": ["b"]}})
    assert '"a": {"n": 1, "deep": null}' in ran.text("a#1.1!route")
    [warning] = ran.of(ev.NodeWarning)
    assert (warning.code, warning.fields) == ("OUTPUT_KEYS_MISSING", ["deep"])


def test_the_question_sees_the_failure_of_a_node() -> None:
    nodes = {"a": {"output": OUTPUT, "requires": {"output_required": ["input.gone"]}}, "b": {}, "c": {}}
    shown = find_context(nodes, {"b": [{"error": {"code": "overloaded", "message": "too busy"}}]})
    assert '"a": {"status": "failed", "error": "requires failed:' in shown
    assert '"n": null, "deep": null}' in shown
    assert '"b": {"status": "failed", "error": "too busy"}' in shown


# -- dry runs ----------------------------------------------------------------------------------------------------------


def test_71_a_dry_run_stops_before_the_first_decision() -> None:
    raw = document({"a": {}, "b": {}, "c": {}}, [("a", "b"), ("b", "c", "x")])
    ran = run(raw, input={"dryRun": True})
    assert ran.end.status == "completed"
    assert list(ran.end.results) == ["a", "b"]
    assert ran.routes() == [("a", "b", "only path"), ("b", "(end)", "dry run")]
    assert {request.purpose for request in ran.calls.values()} == {"turn"}


@pytest.mark.parametrize("value", ["true", 1, "yes", None, False])
def test_71_only_true_makes_a_dry_run(value: Any) -> None:
    script = {"routes": {"a": ["b"]}, "default": {"text": "ok"}}
    ran = run(document({"a": {}, "b": {}}, [("a", "b", "x")]), script, input={"dryRun": value})
    assert list(ran.end.results) == ["a", "b"]


def test_71_a_dry_run_stops_also_before_a_default_edge_or_after_a_failure() -> None:
    ran = run(document(ABC, [("a", "b", "x"), ("a", "c")]), input={"dryRun": True})
    assert list(ran.end.results) == ["a"]
    failing = run(document(ABC, FORK), {"turns": {"a": [{"error": "overloaded"}]}}, input={"dryRun": True})
    assert (failing.end.status, failing.routes()) == ("failed", [("a", "(end)", "dry run")])
