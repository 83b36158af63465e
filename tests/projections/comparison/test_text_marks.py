"""Marks of the differences between two texts, and their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.projections.comparison.json_differences import Difference, differences
from callboard.projections.comparison.text_marks import TEXT_PAIRS_MAX, TEXT_WORDS_MAX, Mark, Marker

EQUAL, REMOVED, ADDED = "equal", "removed", "added"


def marks(left: object, right: object) -> list[tuple[str, str]]:
    return [(mark.kind, mark.text) for mark in Marker().mark(left, right)]


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (
            "Good day, Ada.",
            "Good night, Ada.",
            [(EQUAL, "Good "), (REMOVED, "day"), (ADDED, "night"), (EQUAL, ", Ada.")],
        ),
        ("a fox", "a fox jumps", [(EQUAL, "a fox"), (ADDED, " jumps")]),
        ("one two\nthree", "one two three", [(EQUAL, "one two"), (REMOVED, "\n"), (ADDED, " "), (EQUAL, "three")]),
        (
            "the old red box",
            "the new tin box",
            [(EQUAL, "the "), (REMOVED, "old red"), (ADDED, "new tin"), (EQUAL, " box")],
        ),
        ("今日は晴れ", "今日は雨", [(EQUAL, "今日は"), (REMOVED, "晴れ"), (ADDED, "雨")]),
        ("Hi.", "Hello.", []),
        ("same", "same", []),
        ("text", 3, []),
        ("", "text", []),
    ],
)
def test_words_of_only_one_text_are_marked(left: object, right: object, found: list[tuple[str, str]]) -> None:
    assert marks(left, right) == found


@given(
    st.lists(st.sampled_from(["a", "b", "c.", " ", "\n", "\t", "é", "雨"])), st.text(alphabet="abc .\n雨", max_size=30)
)
def test_the_marks_contain_both_texts(pieces: list[str], right: str) -> None:
    left = "".join(pieces)
    found = Marker().mark(left, right)
    if found:
        assert "".join(mark.text for mark in found if mark.kind != ADDED) == left
        assert "".join(mark.text for mark in found if mark.kind != REMOVED) == right
        assert all(mark.text for mark in found)


def test_a_text_beyond_a_limit_has_no_marks() -> None:
    half = TEXT_WORDS_MAX // 2
    texts = [" ".join(f"{side}{word}" for word in range(half)) for side in "xy"]
    assert marks(f"equal {texts[0]}", f"equal {texts[1]}")[0] == (EQUAL, "equal ")
    assert marks(f"equal {texts[0]} x", f"equal {texts[1]}") == []
    # A common beginning and end does not count.
    assert marks(f"{texts[0]} old {texts[1]}", f"{texts[0]} new {texts[1]}")[1:3] == [(REMOVED, "old"), (ADDED, "new")]
    # Words that are frequent in both texts are compared with each other.
    words = [f"w{word}" for word in range(150)] * 20
    assert len(words) * 20 > TEXT_PAIRS_MAX
    assert marks(" ".join(["equal", *words]), " ".join(["equal", *words[::-1]])) == []


def test_all_texts_of_a_comparison_have_a_limit() -> None:
    marker = Marker(pairs=15)
    assert marker.mark("a red b", "a tin b") != []
    left, right = "one two three four five", "six seven three eight nine"
    assert marker.mark(left, right) != []
    assert marker.mark(left, right) == []
    assert marker.mark("a red b", "a tin b") != []


def test_a_difference_of_texts_has_marks_on_request() -> None:
    left, right = {"text": "a red b", "n": 1}, {"text": "a tin b", "n": 2}
    marked = [Mark("equal", "a "), Mark("removed", "red"), Mark("added", "tin"), Mark("equal", " b")]
    places = [Difference("/text", "a red b", "a tin b", marked), Difference("/n", 1, 2)]
    assert differences(left, right, Marker()) == places
    assert differences(left, right)[0].marks == []
