"""Nodes that ask a person: messages, answers and their meaning, timeouts, and configurations."""

from collections.abc import Sequence
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.paths import interaction_id
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import simulate
from tests.support.graphs import (
    GraphTheatre,
    Performance,
    answers,
    check_deaths,
    fails,
    flow,
    graph,
    node,
    perform,
    step,
    webhook,
)
from tests.support.simulation import World, finish

ASK = "h#1.1!ask"

DOCUMENTED: dict[str, Any] = {
    "interaction_type": "approval",
    "channel_type": "slack",
    "timeout_seconds": 3600,
    "message": "Please approve this request",
    "approval_options": ["approve", "reject"],
    "channel_config": {"channel": "#approvals"},
    "timeout_action": "fail",
}
"""The configuration of the design document, section 7.2."""

CHANNEL = {"channel": answers({"sent": True})}


def person(subtype: str = "SLACK_INTERACTION", **configurations: Any) -> dict[str, Any]:
    return node("h", "HUMAN_IN_THE_LOOP", subtype, **{**DOCUMENTED, **configurations})


def ask_graph(*nodes: dict[str, Any], own: dict[str, Any] | None = None) -> Any:
    """Return a question whose ports each lead to a node of that name, and all to one more node."""
    ports = ("confirmed", "rejected", "unrelated", "timeout")
    wires = [f"h.{port} -> {port}" for port in ports]
    return graph([webhook(), own or person(), *(step(port) for port in ports), step("on")], "t -> h", *wires, "h -> on")


def reply(*given: Any, own: dict[str, Any] | None = None, channel: str | None = "api", **names: Any) -> Performance:
    """Perform a run with answers, each sent as a command once the run has parked."""
    commands = [
        ("answer", {"interaction": ASK, "user_response": one, "by": "u", **({"channel": channel} if channel else {})})
        for one in given
    ]
    return perform(ask_graph(own=own), {"body": {"n": 1}}, commands=commands, kinds=CHANNEL, **names)


def classify_answer(response: Any, **names: Any) -> str:
    done = reply(response, **names)
    assert done.results["status"] == "SUCCESS"
    found = done.out("h")["ai_classification"]
    assert done.sequence == ["t", "h", found, "on"]
    return found


# -- question and messages ---------------------------------------------------------------------------------------------


def test_the_example_of_the_design_document() -> None:
    response = {"approved": True, "comment": "Looks good!"}
    done = reply(response)
    assert done.sequence == ["t", "h", "confirmed", "on"]
    assert done.out("h") == {
        "approved": True,
        "comment": "Looks good!",
        "content": done.out("t"),
        "ai_classification": "confirmed",
        "user_response": response,
        "interaction_id": interaction_id("r1", ASK),
    }
    assert done.out("h", "confirmed") == done.out("h")
    [asked] = done.of_type("human.asked")
    assert (asked.question, asked.options) == ("Please approve this request", ["approve", "reject"])
    assert (asked.interaction_type, asked.channel_type, asked.timeout_action) == ("approval", "slack", "fail")
    assert asked.request_data["user_id"] == "u"
    [closed] = done.of_type("human.closed")
    assert (closed.outcome, closed.k, closed.label) == ("answered", 1, "confirmed")
    assert done.record("h")["execution_details"]["user_response"] == response


def test_a_run_is_parked_while_its_question_is_open() -> None:
    async def body() -> None:
        harness = GraphTheatre(kinds=CHANNEL)
        ref = await harness.begin(ask_graph(), {"body": {}})
        assert await harness.perform(ref) == "parked"
        events = await harness.events(ref)
        parked = ev.payload_of(events[-1])
        assert isinstance(parked, ev.RunParked)
        assert ASK in parked.awaits

    simulate(body)


def test_the_channel_gets_the_request_and_the_confirmation() -> None:
    done = reply("yes")
    request, confirmation = (request for _kind, request in done.harness.asked)
    assert (request["purpose"], confirmation["purpose"]) == ("request", "confirmation")
    assert (request["interaction"], request["message"]) == (ASK, "Please approve this request")
    assert (request["channel_type"], request["channel_config"]["channel"]) == ("slack", "#approvals")
    assert confirmation["message"] == "Your approval has been recorded. Thank you."


def test_a_node_sends_with_its_own_token() -> None:
    plain = {"channel_type": "slack", "bot_token": "xoxb-own", "channel_config": {"channel": "#x"}}
    for subtype in ("SLACK_INTERACTION", "IN_APP_APPROVAL"):
        done = reply("yes", own=person(subtype, **plain))
        for _kind, request in done.harness.asked:
            assert request["channel_config"]["bot_token"] == "xoxb-own"
    done = reply("yes", own=person(bot_token="{{$placeholder}}"))
    assert "bot_token" not in done.harness.asked[0][1]["channel_config"]


def test_a_message_without_a_link_is_warned_of() -> None:
    sends = {"channel": answers({"ok": True, "answer_link": False}, {"ok": True})}
    commands = [("answer", {"interaction": ASK, "user_response": "yes", "channel": "api"})]
    done = perform(ask_graph(), {"body": 1}, commands=commands, kinds=sends)
    [warning] = done.of_type("node.warning")
    assert warning.code == "graph.message_without_link"
    assert "http_url" in warning.reason


def test_a_question_in_an_app_sends_no_messages() -> None:
    done = reply("yes", own=person("IN_APP_APPROVAL", channel_type="in_app"))
    assert done.harness.asked == []
    assert done.of_type("human.asked")[0].channel_type == "app"


def test_a_message_that_cannot_be_sent_gives_a_warning_only() -> None:
    commands = [("answer", {"interaction": ASK, "user_response": "yes", "channel": "api"})]
    done = perform(ask_graph(), {"body": 1}, commands=commands, kinds={"channel": fails("channel.down")})
    assert done.results["status"] == "SUCCESS"
    assert [one.code for one in done.of_type("node.warning")] == ["graph.message_unsent"] * 2


def test_messages_may_be_templates() -> None:
    own = person(
        message=None,
        message_template="{{ content.body.n }} of {{ what }}",
        template_variables={"what": "{{ $trigger.type }}"},
        response_messages={"approved": "Fine by {{ content.body.n }}."},
    )
    done = reply("yes", own=own)
    assert done.of_type("human.asked")[0].question == "1 of WEBHOOK"
    assert done.harness.asked[-1][1]["message"] == "Fine by 1."


# -- meaning of answers ------------------------------------------------------------------------------------------------


def add_channels(cases: Sequence[Any], *channels: str | None) -> list[tuple[Any, ...]]:
    """Return each case with one of the channels, which take turns."""
    return [
        (*(case if isinstance(case, tuple) else (case,)), channels[i % len(channels)]) for i, case in enumerate(cases)
    ]


LABELS: list[Any] = [
    ({"approved": True}, "confirmed"),
    ({"approved": False, "comment": "yes but no"}, "rejected"),
    ({"approved": "true"}, "confirmed"),
    ({"action": "approve"}, "confirmed"),
    ({"action": "reject", "comment": "ok"}, "rejected"),
    ({"action": "reject", "approved": False}, "rejected"),
    ({"decision": " APPROVE "}, "confirmed"),
    (True, "confirmed"),
    (False, "rejected"),
    ("approve", "confirmed"),
    ("  Approve\n", "confirmed"),
    ("Approved!", "confirmed"),
    ("Y", "confirmed"),
    ("REJECT", "rejected"),
    ("No.", "rejected"),
]


@pytest.mark.parametrize(("response", "expected", "channel"), add_channels(LABELS, None, "api", "slack", "mcp", "page"))
def test_an_option_or_form_decides_without_a_model(response: Any, expected: str, channel: str | None) -> None:
    done = reply(response, channel=channel)
    assert done.out("h")["ai_classification"] == expected
    assert done.of_type("model.call") == []


FREE_TEXT: list[Any] = [
    "I do not approve this",
    "this is not ok",
    "I can't approve that",
    "no objections, go ahead",
    "yes, but not before Monday",
    "looks good to me",
    "sounds good",
    "ok",
    "not approved",
    "I approve of waiting",
    "approve or reject",
    "yesterday",
    {"comment": "I do not approve this"},
    {"action": "later", "text": "sounds good"},
    {"note": "yes"},
]


@pytest.mark.parametrize(("said", "channel"), add_channels(FREE_TEXT, None, "api", "slack"))
def test_free_text_decides_nothing(said: Any, channel: str | None) -> None:
    done = reply(said, {"approved": False}, channel=channel)
    assert done.of_type("human.closed")[0].k == 2
    [refused] = [one for one in done.of_type("node.warning") if one.code == "human.not_understood"]
    assert "it is free text" in refused.reason
    assert "answer with one of: approve, reject" in refused.reason


@pytest.mark.parametrize("own", [person(), person("MANUAL_REVIEW", interaction_type="review", channel_type="app")])
@pytest.mark.parametrize("answer", [None, "", "  ", {}, [], {"approved": "maybe"}, {"approved": True, "action": "no"}])
def test_an_empty_or_contradictory_answer_does_not_count(own: dict[str, Any], answer: Any) -> None:
    done = reply(answer, "reject", own=own)
    assert (done.of_type("human.closed")[0].k, done.out("h")["ai_classification"]) == (2, "rejected")
    assert done.of_type("model.call") == []


DECISIONS: list[Any] = [
    ({"relevance": 0.9, "decision": "confirmed"}, "confirmed"),
    ({"relevance": 0.7, "decision": "rejected"}, "rejected"),
    ({"relevance": 0.9, "classification": "Approve"}, "confirmed"),
    ({"relevance": 0.9, "decision": "reject"}, "rejected"),
    ({"relevance": 0.69, "decision": "confirmed"}, None),
    ({"relevance": 0.2, "decision": "confirmed"}, None),
    ({"relevance": 0.9, "decision": "unclear"}, None),
    ({"relevance": 0.9, "decision": "I would approve"}, None),
    ({"relevance": 0.9}, None),
    ({"decision": "confirmed"}, None),
]


@pytest.mark.parametrize(("decision", "expected", "channel"), add_channels(DECISIONS, None, "api", "slack"))
def test_free_text_decides_if_a_model_is_certain_of_its_meaning(
    decision: Any, expected: str | None, channel: str | None
) -> None:
    script = {"turns": {"h": [{"data": decision}]}}
    done = reply("no objections, go ahead", "reject", channel=channel, script=script)
    assert [call.purpose for call in done.of_type("model.call")] == ["classify"]
    assert done.of_type("human.closed")[0].k == (1 if expected else 2)
    assert done.out("h")["ai_classification"] == (expected or "rejected")


INPUT = person(
    "FORM_SUBMISSION",
    interaction_type="input",
    channel_type="app",
    input_fields=[
        {"name": "city", "type": "text", "required": True},
        {"name": "size", "type": "number", "required": True},
        {"name": "mood", "options": ["fine", "bad"]},
    ],
)
SELECTION = person(
    "FORM_SUBMISSION",
    interaction_type="selection",
    channel_type="app",
    selection_options=["red", {"value": "green", "label": "Grass"}, 3],
)


WRONG_FORMS: list[Any] = [
    ({"why": "x"}, ["city", "size"]),
    ({"city": "Paris", "size": "large"}, ["size"]),
    ({"city": " ", "size": 3}, ["city: is empty"]),
    ({"city": 7, "size": 3, "mood": "ecstatic"}, ["city", "mood"]),
    ("Paris", ["object"]),
    (None, ["object"]),
    (True, ["object"]),
]


@pytest.mark.parametrize(("wrong", "reasons", "channel"), add_channels(WRONG_FORMS, None, "api", "slack", "mcp"))
def test_a_form_that_does_not_fit_its_fields_does_not_count(
    wrong: Any, reasons: list[str], channel: str | None
) -> None:
    right = {"city": "Paris", "size": 3, "mood": "fine", "more": 1}
    done = reply(wrong, right, own=INPUT, channel=channel)
    assert (done.of_type("human.closed")[0].k, done.out("h")["ai_classification"]) == (2, "confirmed")
    [refused] = done.of_type("node.warning")
    assert all(reason in refused.reason for reason in reasons), refused.reason
    assert done.of_type("model.call") == []


WRONG_SELECTIONS: list[Any] = ["banana", "purple", "no", True, None, {"selection": "blue"}, {"why": "red"}, ["red"]]


@pytest.mark.parametrize(("wrong", "channel"), add_channels(WRONG_SELECTIONS, "api", "slack", "mcp", None))
def test_a_selection_outside_of_its_options_does_not_count(wrong: Any, channel: str | None) -> None:
    done = reply(wrong, " RED ", own=SELECTION, channel=channel)
    assert (done.of_type("human.closed")[0].k, done.out("h")["ai_classification"]) == (2, "confirmed")
    assert "one of: red, Grass, 3" in done.of_type("node.warning")[0].reason
    assert done.of_type("model.call") == []


@pytest.mark.parametrize("right", ["green", "grass", 3, {"selection": "red"}, {"value": 3}])
def test_a_selection_may_name_a_value_or_a_label(right: Any) -> None:
    assert reply(right, own=SELECTION).out("h")["ai_classification"] == "confirmed"


@pytest.mark.parametrize("score", [4, {"score": 4}, {"approved": True, "comment": "no"}, "approve"])
def test_a_score_or_approval_confirms_a_review(score: Any) -> None:
    own = person("MANUAL_REVIEW", interaction_type="review", channel_type="app")
    assert reply(score, own=own).out("h")["ai_classification"] == "confirmed"


def test_the_first_of_two_custom_options_confirms() -> None:
    own = person(approval_options=["ship it", "hold"])
    assert classify_answer("Ship it", own=own) == "confirmed"
    assert classify_answer("hold", own=own) == "rejected"


FIELDS = [{"name": "city", "label": "City", "required": True}, {"name": "size", "type": "number"}, {"label": "none"}]
FORM = {
    "type": "object",
    "properties": {"city": {"type": "string", "title": "City"}, "size": {"type": "number"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (person(), {"enum": ["approve", "reject"]}),
        (person("FORM_SUBMISSION", interaction_type="input", input_fields=FIELDS), FORM),
        (person("FORM_SUBMISSION", interaction_type="selection", selection_options=["red"]), {"enum": ["red"]}),
    ],
)
def test_a_question_has_the_schema_of_its_answer(own: dict[str, Any], expected: Any) -> None:
    assert reply("ok", own=own).of_type("human.asked")[0].schema == expected


# -- relevance of answers ----------------------------------------------------------------------------------------------


def answer_with_scores(*scores: Any, given: list[Any], channel: str | None = "slack") -> Performance:
    script = {"turns": {"h": [one if isinstance(one, dict) else {"data": {"relevance": one}} for one in scores]}}
    return reply(*given, channel=channel, script=script)


# -- timeouts ----------------------------------------------------------------------------------------------------------


def let_expire(**configurations: Any) -> Performance:
    return perform(ask_graph(own=person(**configurations)), {"body": {"n": 1}}, kinds=CHANNEL)


def test_a_timeout_fails_the_execution() -> None:
    done = let_expire(retry_attempts=3)
    assert done.results["status"] == "ERROR"
    assert done.sequence == ["t"]
    record = done.record("h")
    assert (record["status"], record["retry_count"], record["duration_ms"]) == ("FAILED", 0, 3_600_000)
    assert record["error"]["error_message"] == "no response within 3600 seconds"
    assert record["error"]["error_details"]["timeout_action"] == "fail"
    [closed] = done.of_type("human.closed")
    assert (closed.outcome, closed.label) == ("timeout", "timeout")


def test_a_timeout_may_continue_the_run() -> None:
    done = let_expire(timeout_action="continue", timeout_seconds=60)
    assert done.results["status"] == "SUCCESS"
    assert done.sequence == ["t", "h", "timeout", "on"]
    assert done.out("h")["ai_classification"] == "timeout"
    assert done.out("h")["timeout"] is True
    assert done.out("h")["content"]["body"] == {"n": 1}


@pytest.mark.parametrize(
    ("response", "port"), [({"approved": True}, "confirmed"), ({"action": "reject"}, "rejected"), ({}, "unrelated")]
)
def test_a_timeout_may_have_a_default_answer(response: dict[str, Any], port: str) -> None:
    done = let_expire(timeout_action="default_response", default_response=response)
    assert done.sequence == ["t", "h", port, "on"]
    assert done.out("h")["ai_classification"] == port
    assert done.out("h")["user_response"] == response


def test_a_warning_is_sent_fifteen_minutes_before_the_timeout() -> None:
    done = let_expire(timeout_action="continue")
    [timer] = done.of_type("timer.set")
    assert timer.purpose == "warning"
    [asked] = done.of_type("human.asked")
    assert (asked.timeout_at - timer.due).total_seconds() == 900
    assert [request["purpose"] for _kind, request in done.harness.asked] == ["request", "warning", "confirmation"]


def test_a_short_question_has_no_warning() -> None:
    assert let_expire(timeout_action="continue", timeout_seconds=900).of_type("timer.set") == []


def test_an_answer_cancels_the_timers() -> None:
    done = reply("yes")
    cancelled = [event.key for event in done.events if event.type == "effect.cancelled"]
    assert cancelled == ["h#1.1!warning"]
    assert done.of_type("timer.fired") == []


def test_an_answer_to_another_or_a_closed_question_is_refused() -> None:
    async def body() -> None:
        harness = GraphTheatre(kinds=CHANNEL)
        ref = await harness.begin(ask_graph(), {"body": {}})
        await harness.perform(ref)
        other = harness.command("answer", interaction="x#1.1!ask", user_response="yes")
        first = harness.command("answer", interaction=ASK, user_response="yes", channel="api")
        second = harness.command("answer", interaction=ASK, user_response="no", channel="api")
        await harness.perform(ref, other, first, second)
        events = await finish(harness, ref, World())
        check_log(events)
        check_replay(harness.language, ref, events)
        end = ev.payload_of(events[-1])
        assert isinstance(end, ev.RunEnd)
        assert end.results["execution_sequence"] == ["t", "h", "confirmed", "on"]
        assert "command.refused" in {event.type for event in events}

    simulate(body)


# -- configurations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configurations", "error"),
    [
        ({"interaction_type": "vote"}, "interaction_type"),
        ({"channel_type": "pigeon"}, "channel_type"),
        ({"timeout_action": "shrug"}, "timeout_action"),
        ({"timeout_seconds": 59}, "timeout_seconds"),
        ({"timeout_seconds": 86_401}, "timeout_seconds"),
        ({"interaction_type": "input"}, "input_fields"),
        ({"interaction_type": "selection"}, "selection_options"),
        ({"default_response": "yes"}, "default_response"),
        ({"timeout_seconds": None, "timeout_minutes": 0}, "timeout_minutes"),
    ],
)
def test_an_invalid_configuration_fails_the_node_before_it_asks(configurations: dict[str, Any], error: str) -> None:
    done = perform(ask_graph(own=person(**configurations)), {"body": 1}, kinds=CHANNEL)
    assert done.record("h")["status"] == "FAILED"
    assert done.results["status"] == "ERROR"
    found = done.record("h")["error"]
    assert found["error_code"] == "invalid_configuration"
    assert error in found["error_details"]["validation_errors"][0]
    assert done.of_type("human.asked") == []


def test_all_problems_of_a_configuration_are_reported_together() -> None:
    own = person(interaction_type="vote", channel_type="pigeon", timeout_seconds=1)
    done = perform(ask_graph(own=own), {"body": 1})
    assert len(done.record("h")["error"]["error_details"]["validation_errors"]) == 3


def test_a_question_without_a_user_fails() -> None:
    written = ask_graph()
    del written["metadata"]["created_by"]
    done = perform(written, {"body": 1}, kinds=CHANNEL)
    assert done.record("h")["error"]["error_code"] == "missing_user_id"
    assert done.record("h")["error"]["error_details"] is None
    commands = [("answer", {"interaction": ASK, "user_response": "yes", "channel": "api"})]
    done = perform(written, {"body": 1, "user_id": "ada"}, kinds=CHANNEL, commands=commands)
    assert done.of_type("human.asked")[0].request_data["user_id"] == "ada"


@pytest.mark.parametrize(
    ("subtype", "configurations", "seconds"),
    [
        ("SLACK_INTERACTION", {"timeout_minutes": 5}, 300),
        ("GMAIL_INTERACTION", {"response_timeout": 604_800}, 604_800),
        ("MANUAL_REVIEW", {"review_deadline": 7200}, 7200),
        ("TEAMS_INTERACTION", {}, 3600),
        ("SLACK_INTERACTION", {"timeout_minutes": 5, "timeout_seconds": 60}, 60),
    ],
)
def test_other_settings_of_the_timeout(subtype: str, configurations: dict[str, Any], seconds: float) -> None:
    own = node("h", "HUMAN_IN_THE_LOOP", subtype, message="?", timeout_action="continue", **configurations)
    done = perform(ask_graph(own=own), {"body": 1}, kinds=CHANNEL)
    assert done.record("h")["duration_ms"] == seconds * 1000


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_questions_of_a_fan_out_are_asked_in_order() -> None:
    nodes = [flow("each", "FOR_EACH"), person("IN_APP_APPROVAL", channel_type="app"), step("on")]
    written = graph(nodes, "each.iteration -> h", "h -> on", triggers=[])
    given = {f"each[{i}]/h#1.1!ask": [{"approved": i == 0}] for i in range(2)}
    done = check_deaths(written, ["a", "b"], world=World(answers=given), start_from_node="each")
    assert [run["output_data"]["result"]["ai_classification"] for run in done.runs("h")] == ["confirmed", "rejected"]
    assert [one["content"] for one in done.took("on")] == ["a", "b"]


def test_a_classified_answer_survives_any_death() -> None:
    given = {ASK: ["hm", "yes"]}
    script = {"turns": {"h": [{"data": {"relevance": 0.1, "decision": "unclear"}}]}}
    done = check_deaths(ask_graph(), {"body": 1}, world=World(answers=given), kinds=CHANNEL, script=script)
    assert done.out("h")["user_response"] == "yes"


def test_a_timeout_survives_any_death() -> None:
    written = ask_graph(own=person(timeout_action="continue"))
    assert check_deaths(written, {"body": 1}, kinds=CHANNEL).sequence == ["t", "h", "timeout", "on"]
