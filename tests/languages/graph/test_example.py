"""The example of a graph, as in its README: a mail is classified, looked up, answered, approved and sent."""

import json
from typing import Any

import msgspec
import yaml

from callboard.languages.graph.language import LANGUAGE
from callboard.languages.plan import Definition
from tests.support.graphs import Performance, check_deaths, perform
from tests.support.places import ROOT
from tests.support.simulation import World

EXAMPLE = ROOT / "examples" / "inbound-mail"
GRAPH: dict[str, Any] = json.loads((EXAMPLE / "graph.json").read_text())
MAIL: dict[str, Any] = json.loads((EXAMPLE / "mail.json").read_text())
SCRIPT: dict[str, Any] = yaml.safe_load((EXAMPLE / "script.yaml").read_text())
ASK = "approve#1.1!ask"
START = ["mail", "classify", "about_order", "lookup", "answer", "dear"]


def perform_example(script: dict[str, Any] = SCRIPT, answer: Any = None) -> Performance:
    world = World(answers={} if answer is None else {ASK: [answer]})
    return perform(GRAPH, MAIL, world=world, script=script)


def test_the_example_gives_no_warning() -> None:
    definition = LANGUAGE.parse((EXAMPLE / "graph.json").read_text())
    assert isinstance(definition, Definition), definition
    assert definition.warnings == ()


def test_an_approved_answer_is_sent() -> None:
    done = perform_example(answer={"approved": True})
    assert done.sequence == [*START, "approve", "send"]
    [sent] = [call for call in done.of_type("tool.call") if call.tool == "send_mail"]
    assert sent.input == {
        "to": "ada@example.com",
        "subject": "Re: Chair arrived broken",
        "text": "We are sorry about the chair. Your money is on its way back.",
    }
    [asked] = done.of_type("human.asked")
    assert asked.question.startswith("Refund 434 euros for A-17?")


def test_a_mail_is_handed_over_after_a_rejection_or_without_a_decision() -> None:
    assert perform_example(answer="no").sequence == [*START, "approve", "hand_over"]
    expired = perform_example()
    assert expired.sequence == [*START, "approve", "hand_over"]
    assert expired.out("approve")["comment"] == "Nobody decided in time."


def test_a_cheap_order_needs_no_approval() -> None:
    cheap = msgspec.json.decode(msgspec.json.encode(SCRIPT))
    cheap["tools"]["find_order"][0]["output"]["total"] = 20
    assert perform_example(cheap).sequence == [*START, "send"]


def test_a_mail_without_an_order_is_handed_over() -> None:
    other = msgspec.json.decode(msgspec.json.encode(SCRIPT))
    other["turns"]["classify"] = [{"data": {"wants": "question", "order": ""}}]
    assert perform_example(other).sequence == ["mail", "classify", "about_order", "hand_over"]


def test_the_mail_is_sent_once_whenever_the_worker_dies() -> None:
    done = check_deaths(GRAPH, MAIL, world=World(answers={ASK: ["approve"]}), script=SCRIPT)
    assert done.sequence == [*START, "approve", "send"]
