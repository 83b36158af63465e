"""Extraction of a field from an answer: the object that counts, in time that is linear in the length of the answer."""

import pytest

from callboard.languages.playbook import extraction
from callboard.languages.playbook.extraction import Extracted, extract_field, outermost_objects
from callboard.lib.step_limits import Steps

NESTED = '{"severity":"critical","findings":[{"severity":"low"},{"severity":"low"}]}'


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (NESTED, "critical"),
        (f"Found {{this}}:\n```json\n{NESTED}\n```\nDone }}.", "critical"),
        ('{"severity":"low"} and then {"all":[{"severity":"high"},{"severity":"critical"}]}', "critical"),
        ('{"all":{"severity":{"severity":"low"}}, "more":[{"more":{"severity":"high"}}]}', '{"severity":"low"}'),
        # In an object without an end the inner objects count.
        ('{"severity":"high","all":[{"severity":"low"},', "low"),
        ('{"severity":"high","note":"{\\"severity\\":1} and } {"}', "high"),
        ('Say "use {" and {"severity":"low"}', "low"),
        ('{"unread: {"severity":"low"}', "low"),
        ('{"severity":' + "7" * 5_000 + "}", "7" * 5_000),
        ('{"severity":01} [{"severity":1,}]', None),
        ("[" * 100_000, None),
    ],
)
def test_an_outer_object_counts_before_inner_ones(answer: str, value: str | None) -> None:
    assert extract_field(answer, "severity") == Extracted(value)


def test_the_whole_answer_is_searched() -> None:
    assert extract_field(NESTED + '{"a": {}}' * 5_000, "severity") == Extracted("critical")
    assert extract_field(NESTED + "{" * 5_000, "severity") == Extracted("critical")


def test_an_object_that_is_nested_too_deeply_is_ignored() -> None:
    deep = '{"a":' * 600 + '{"severity":"low"}' + "}" * 600
    assert extract_field(deep, "severity") == Extracted("low")
    assert extract_field('{"severity":"high","a":' + deep + "}", "severity") == Extracted("low")


@pytest.mark.parametrize(
    "unit",
    ['{"a":', "{", '{":', '{"', '{"a":1}', '{"a":[', '{"\\"', '{"{', '{"a": 1}, ', '{" ', '{"":"{"', '{"a":"\\u12'],
)
def test_the_steps_of_a_search_grow_linearly_with_the_answer(unit: str) -> None:
    def steps(count: int) -> int:
        counted = Steps(100_000_000)
        outermost_objects(unit * count, counted)
        return counted.steps_max - counted.left

    assert steps(8_000) < 8.5 * steps(1_000)


def test_a_search_that_takes_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "STEPS_MAX", 1_000)
    assert extract_field(NESTED + "{" * 5_000, "severity") == Extracted(takes_long=True)
