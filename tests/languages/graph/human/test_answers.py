"""The meaning of answers to a question of a graph: options, decisions of a model, words, and scores."""

from typing import Any

import pytest

from callboard.bus.effects import ModelReply
from callboard.languages.graph.human.classification import read_decision, read_score
from callboard.languages.graph.human.decisions import label_of_option


def test_the_decision_of_a_model_is_one_of_the_options() -> None:
    options = ["ship it", "hold"]
    assert read_decision(ModelReply(data={"decision": "Ship it"}), options) == "confirmed"
    assert read_decision(ModelReply(data={"decision": "hold"}), options) == "rejected"
    assert read_decision(ModelReply(text='{"decision": "rejected"}'), options) == "rejected"
    assert read_decision(ModelReply(text="confirmed"), options) is None


@pytest.mark.parametrize(
    ("options", "said", "expected"),
    [
        (["reject", "approve"], "reject", "rejected"),
        (["reject", "approve"], "yes", "confirmed"),
        (["ship it", "hold"], "SHIP  IT", "confirmed"),
        (["ship it", "hold"], "yes", None),
        (["approve", "reject", "escalate"], "Escalate", "unrelated"),
        ([{"value": "go", "label": "Go ahead"}, {"value": "stop", "label": "No go"}], "go ahead", "confirmed"),
        ([{"value": "go", "label": "Go ahead"}, {"value": "stop", "label": "No go"}], "stop", "rejected"),
        ([], "yes", None),
    ],
)
def test_the_label_of_an_exact_option(options: list[Any], said: str, expected: str | None) -> None:
    assert label_of_option(options, said) == expected


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        (ModelReply(data={"relevance": 0.8}), 0.8),
        (ModelReply(data={"score": 7}), 1.0),
        (ModelReply(data={"classification": "filtered"}), 0.0),
        (ModelReply(data={"factors": {"content": 1, "user": 0.5}}), 0.75),
        (ModelReply(data={"reasoning": "x"}), None),
        (ModelReply(text='```json\n{"relevance": 0.2}\n```'), 0.2),
        (ModelReply(text="0.4"), 0.4),
        (ModelReply(text="Relevant."), 1.0),
        (ModelReply(text="irrelevant"), 0.0),
        (ModelReply(text="who knows"), None),
        (ModelReply(data=True), None),
    ],
)
def test_the_score_in_a_reply_of_a_model_is_read(reply: ModelReply, score: float | None) -> None:
    assert read_score(reply) == score
