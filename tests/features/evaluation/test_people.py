"""Cases that ask people: equal questions are answered from the record; a case with another question is cancelled."""

from pathlib import Path

import pytest

from tests.support.workdir import Workdir

BOOK = """\
# Order

## INPUTS

- `who` (string: you)

## STEP 1: Greet

Greet {{who}}.

## STEP 2: Ask

@elicit(confirm, "Really?")
@output(sure)

## STEP 3: Say

Tell {{who}} about {{sure}}.
"""

SCRIPT = {"turns": {"1": [{"text": "Hello."}], "3": [{"text": "It is done."}]}}


@pytest.fixture
def book(tmp_path: Path) -> Workdir:
    workdir = Workdir(tmp_path)
    workdir.write("order.md", BOOK)
    workdir.write("script.json", SCRIPT)
    words = ("order.md", "--script", "script.json", "--run-id", "order-1", "--input", '{"who": "Ada"}')
    recorded = workdir.run("run", *words, stdin="true\n")
    assert recorded.exit_code == 0, recorded.output
    assert workdir.run("dataset", "add", "orders", "--run", "order-1").exit_code == 0
    return workdir


def test_an_answer_of_the_record_is_shared_if_the_difference_is_later(book: Workdir) -> None:
    book.write("new.md", BOOK.replace("Tell {{who}}", "Kindly tell {{who}}"))
    [row] = book.run_json("eval", "orders", "--definition", "new.md")["rows"]
    assert (row["verdict"], row["answered"]) == ("equal", {"live": 1, "recorded": 1})
    assert book.run_json("eval", "orders")["rows"][0]["verdict"] == "identical"


def test_an_equal_question_after_the_difference_is_answered_from_the_record(book: Workdir) -> None:
    book.write("new.md", BOOK.replace("Greet {{who}}", "Kindly greet {{who}}"))
    [row] = book.run_json("eval", "orders", "--definition", "new.md")["rows"]
    answers = [event for event in book.events(row["run"]) if event["type"] == "human.answered"]
    assert [event["payload"]["user_response"] for event in answers] == ["true"]
    assert (row["verdict"], row["status"]) == ("equal", "completed")


def test_a_case_that_asks_another_question_is_cancelled(book: Workdir) -> None:
    book.write("new.md", BOOK.replace("Really?", "Are you sure?"))
    [row] = book.run_json("eval", "orders", "--definition", "new.md")["rows"]
    assert (row["verdict"], row["status"]) == ("regressed", "cancelled")
    assert "questions" in {change["kind"] for change in row["changes"]}
    requested = [event for event in book.events(row["run"]) if event["type"] == "cancel.requested"]
    assert "no answer to Are you sure?" in requested[0]["payload"]["reason"]
