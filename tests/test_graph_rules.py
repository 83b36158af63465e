"""Rules of graphs: what holds for runs that are admitted now, and that what was recorded before replays as it went."""

from typing import Any

import pytest

from callboard.languages.graph import admit, rules
from tests.graphs import Performance, flow, graph, node, perform, step


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Runs are admitted by the rules that there were before the one that a test names."""
    monkeypatch.setattr(admit, "LATEST", getattr(rules, request.param) - 1)


def alone(own: dict[str, Any], input: Any, *others: dict[str, Any]) -> Performance:
    return perform(graph([own, *others], triggers=[]), input, start_from_node=own["id"])


def test_the_latest_rule_is_the_last() -> None:
    numbers = [value for name, value in vars(rules).items() if name.isupper() and name not in ("LATEST", "RULES")]
    assert sorted(numbers) == list(range(1, rules.LATEST + 1))


# -- paths of members --------------------------------------------------------------------------------------------------

PATHS = [
    ("first name", {"first name": "Ada"}, "Ada"),
    ("user-id", {"user-id": 7}, 7),
    ("2024.sum", {"2024": {"sum": 3}}, 3),
    ("true", {"true": 1}, 1),
    ("0.k", [[{"k": 1}]], [1]),
    ("lines.1.price", {"lines": [{"price": 1}, {"price": 2}]}, 2),
    ("NAME", {"name": "x"}, "x"),
    ("data.a", {"a": 1}, 1),
    ("data.a", {"data": {"a": 2}, "a": 1}, 2),
    ("input.a", {"a": 1}, 1),
    ("item.a", {"a": 1}, 1),
    ("config", {"a": 1}, None),
    ("other", {"a": 1}, None),
    ("null", {"a": 1}, None),
    ("$json.a", {"a": 1}, 1),
    ("lines[*].price", {"lines": [{"price": 1}, {"price": 2}]}, [1, 2]),
    ("add(a, 1)", {"a": 1}, 2),
]


@pytest.mark.parametrize(("path", "input", "expected"), PATHS)
def test_a_path_of_names_leads_to_members_of_the_data(path: str, input: Any, expected: Any) -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="path", path=path)
    after = node("other", "FLOW", "SPLIT")
    done = perform(graph([after, own], "other -> x", triggers=[]), input, start_from_node="other")
    assert done.out("x")["transformed_data"] == expected


def test_an_item_that_lacks_a_field_has_none() -> None:
    items = [{"other": 2}, {"x": 1}]
    own = flow("f", "FILTER", filter_mode="include", filter_type="simple_condition")
    own["configurations"]["conditions"] = [{"field": "other", "operator": "exists"}]
    done = perform(graph([step("other"), own], "other -> f", triggers=[]), items, start_from_node="other")
    assert done.out("f", "passed")["filtered_data"] == [{"other": 2}]


@pytest.mark.parametrize("before", ["MEMBER_PATHS"], indirect=True)
def test_paths_that_were_recorded_led_elsewhere(before: None) -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="path", path="config.path")
    assert alone(own, {"a": 1}).out("x")["transformed_data"] == "config.path"
