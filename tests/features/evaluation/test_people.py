"""Cases that ask people: equal questions are answered from the record; a case with another question is cancelled."""

import json
import time
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


PATIENCE_S = 15.0

OUTER = """\
from callboard import child, generate, workflow

@workflow
async def outer_of_the_test(who: str) -> str:
    said = await generate(f"Name {who}.")
    ran = await child("order", {"who": said})
    return ran.output
"""


def named(name: str) -> dict[str, object]:
    """A script in which the model of the outer run gives a name."""
    return {**SCRIPT, "default": {"text": name}}


def wait_for_question(workdir: Workdir) -> dict[str, str]:
    """Return the only open question of all runs."""
    until = time.monotonic() + PATIENCE_S
    while not (found := workdir.run_json("inbox")):
        assert time.monotonic() < until
    return found[0]


def test_a_child_run_that_is_performed_again_is_answered_from_the_record(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("order.md", BOOK)
    workdir.write("outer_of_the_test.py", OUTER)
    target = "outer_of_the_test"
    script, other = workdir.write("a.json", named("Ada")), workdir.write("b.json", named("Bob"))
    with workdir.up("--code", "outer_of_the_test.py"):
        assert workdir.run("push", "order.md", "--name", "order").exit_code == 0
        words = (target, "--script", script, "--run-id", "outer-1", "--input", '{"who": "A"}')
        begun = workdir.run("start", *words)
        assert begun.exit_code == 0, begun.output
        asked = wait_for_question(workdir)
        assert workdir.run("answer", asked["run"], asked["key"], "yes").exit_code == 0
        assert workdir.run("watch", "outer-1").exit_code == 0
        assert workdir.run("dataset", "add", "outers", "--run", "outer-1").exit_code == 0
    done = workdir.call("eval", "outers", "--script", other, "--code", "outer_of_the_test.py", "--json")
    [row] = json.loads(done.stdout)["rows"]
    assert (row["status"], row["output"]) == ("completed", "It is done.")
    [change] = row["changes"]
    assert (change["kind"], change["places"][0]["right"]) == ("arguments", "Bob")
