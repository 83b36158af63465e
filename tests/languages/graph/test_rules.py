"""Rules of graphs: new runs follow the newest rules, and a run that began under earlier ones replays as it went."""

import pytest

from callboard.bus.errors import LogNewer
from callboard.languages.graph import rules
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.registry import language
from callboard.testing.checks import check_replay
from tests.support.graphs import Performance, flow, graph, perform

NAMES = [{"name": "Charlie"}, {"name": None}, {"name": "Alice"}, {}, {"name": "Bob"}]


def sort_names(order: str = "asc") -> Performance:
    own = flow("s", "SORT", sort_field="name", order=order)
    return perform(graph([own], triggers=[]), NAMES, start_from_node="s")


def set_newest(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(LANGUAGE, "rules", number)


def test_rules_are_numbered_without_a_gap() -> None:
    numbers = [value for name, value in vars(rules).items() if name.isupper() and name != "LATEST"]
    assert sorted(numbers) == list(range(1, rules.LATEST + 1))


@pytest.mark.parametrize(("order", "indices"), [("asc", [2, 4, 0, 1, 3]), ("desc", [0, 4, 2, 1, 3])])
def test_items_without_a_value_to_sort_by_come_last(order: str, indices: list[int]) -> None:
    done = sort_names(order).out("s")
    assert done["original_indices"] == indices
    assert done["sort_stats"]["items_sorted"] == 5


def test_a_run_that_began_under_earlier_rules_replays_as_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    set_newest(monkeypatch, rules.NULLS_LAST - 1)
    done = sort_names()
    assert done.out("s")["original_indices"] == [0, 1, 2, 3, 4]
    set_newest(monkeypatch, rules.LATEST)
    check_replay(language, done.ref, done.events)


def test_a_run_of_newer_rules_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_newest(monkeypatch, rules.LATEST + 1)
    done = sort_names()
    set_newest(monkeypatch, rules.LATEST)
    with pytest.raises(LogNewer, match=rf"follows the rules {rules.LATEST + 1} of the language graph"):
        check_replay(language, done.ref, done.events)
