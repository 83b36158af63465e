"""Partial answers of models, for readers that connect during a turn."""

import pytest

from callboard.actors.partial_answers import PARTIAL_CHARS_MAX, PartialAnswer, PartialAnswers
from callboard.bus.subjects import RunRef

REF = RunRef("acme", "r1")


def test_an_answer_is_known_while_it_is_given() -> None:
    answers = PartialAnswers()
    with answers.collect(REF, 4, 1, "a") as answer, answers.collect(REF, 5, 1, "b"):
        assert [answer.take(piece) for piece in ("To be, ", "or not")] == [0, 1]
        assert answers.find(REF, 4) == PartialAnswer(4, 1, 2, "a", "To be, or not")
        assert answers.find(REF, 5) == PartialAnswer(5, 1, 0, "b", "")
        assert answers.find(RunRef("other", "r1"), 4) is None
    assert answers.find(REF, 4) is None


def test_another_try_begins_the_text_again_and_counts_on() -> None:
    answers = PartialAnswers()
    with answers.collect(REF, 4, 1, "a") as answer:
        answer.take("To ")
        answer.begin_again()
        assert answers.find(REF, 4) == PartialAnswer(4, 1, 1, "a", "To ")
        assert answer.take("Shall ") == 1
        assert answers.find(REF, 4) == PartialAnswer(4, 1, 2, "a", "Shall ")


def test_a_turn_that_is_repeated_here_is_not_closed_by_the_first() -> None:
    answers = PartialAnswers()
    lost = answers.collect(REF, 4, 1, "a")
    lost.__enter__()
    with answers.collect(REF, 4, 2, "a") as again:
        again.take("anew")
        lost.__exit__(None, None, None)
        assert answers.find(REF, 4) == PartialAnswer(4, 2, 1, "a", "anew")


@pytest.mark.parametrize("more", [0, 1])
def test_of_a_long_answer_the_end_is_sent(more: int) -> None:
    answers = PartialAnswers()
    with answers.collect(REF, 4, 1, "a") as answer:
        answer.take("x" * more + "y" * PARTIAL_CHARS_MAX)
        found = answers.find(REF, 4)
    assert found == PartialAnswer(4, 1, 1, "a", "y" * PARTIAL_CHARS_MAX, more)
