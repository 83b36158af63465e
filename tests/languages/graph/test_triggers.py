"""Triggers of graphs: the data of the run that a request starts, or the reason why it starts none."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from callboard.languages.graph.language import LANGUAGE
from callboard.languages.graph.triggers import match_triggers
from callboard.languages.language import Definition
from callboard.languages.triggers import Begun, PassedOver, Received
from callboard.surfaces.cli import exits
from tests.support.cli_stage import Place

AT = dt.datetime(2026, 1, 5, 8, tzinfo=dt.UTC)


def document(*triggers: dict[str, Any]) -> dict[str, Any]:
    nodes = [{"name": f"trigger_{one['id']}", "type": "TRIGGER", **one} for one in triggers]
    names = [one["id"] for one in triggers]
    return {"metadata": {"id": "desk", "name": "Desk"}, "nodes": nodes, "connections": [], "triggers": names}


def trigger(subtype: str, id: str = "t", **configurations: Any) -> dict[str, Any]:
    return {"id": id, "subtype": subtype, "configurations": configurations}


def made_by(*triggers: dict[str, Any], received: Received, named: str | None = None) -> list[Begun | PassedOver]:
    parsed = LANGUAGE.parse(json.dumps(document(*triggers)))
    assert isinstance(parsed, Definition), parsed
    return match_triggers(parsed.document, received, named)


def data_of(*triggers: dict[str, Any], **received: Any) -> dict[str, Any]:
    (found,) = made_by(*triggers, received=Received(AT, **received))
    assert isinstance(found, Begun), found
    return found.input


def why_not(*triggers: dict[str, Any], **received: Any) -> str:
    (found,) = made_by(*triggers, received=Received(AT, **received))
    assert isinstance(found, PassedOver), found
    return found.why


# -- manual, webhook --------------------------------------------------------------------------------------------------


def test_manual_begins_with_whatever_came_in() -> None:
    data = data_of(trigger("MANUAL", trigger_name="Desk"), body={"user_input": "hello"})
    time = "2026-01-05T08:00:00+00:00"
    assert data == {"trigger_time": time, "trigger_message": "Started by Desk", "user_input": "hello"}
    assert data_of(trigger("MANUAL"), body="text")["body"] == "text"


HOOK = trigger("WEBHOOK", webhook_path="/orders", allowed_methods=["POST", "PUT"])
REQUEST: dict[str, Any] = {
    "body": {"n": 1},
    "headers": {"content-type": "application/json", "idempotency-key": "k-1"},
    "method": "put",
    "path": "orders/",
    "query": {"q": "1"},
    "client_ip": "10.0.0.1",
}


def test_a_webhook_hands_the_request_on() -> None:
    (found,) = made_by(HOOK, received=Received(AT, **REQUEST))
    assert isinstance(found, Begun)
    assert found.input == {
        "headers": REQUEST["headers"],
        "body": {"n": 1},
        "query_params": {"q": "1"},
        "method": "PUT",
        "path": "orders/",
        "timestamp": "2026-01-05T08:00:00+00:00",
        "client_ip": "10.0.0.1",
    }
    assert found.id == "k-1"
    told = {"trigger_type": "WEBHOOK", "timestamp": 1767600000000, "external_request_id": "k-1"}
    assert found.options == {"trigger": told}


def test_a_webhook_is_meant_by_path_and_method() -> None:
    assert "not '/other'" in why_not(HOOK, path="/other")
    assert why_not(HOOK, path="/orders", method="GET") == "the method 'GET' is none of POST, PUT"


def test_of_several_triggers_only_the_one_that_is_meant_begins() -> None:
    made = made_by(HOOK, trigger("MANUAL", "m"), received=Received(AT, **REQUEST), named="WEBHOOK")
    assert [one.trigger for one in made] == ["t"]
    assert isinstance(made[0], Begun)
    assert made[0].options["start_from_node"] == "t"
    both = made_by(HOOK, trigger("MANUAL", "m"), received=Received(AT, **REQUEST))
    assert [one.trigger for one in both if isinstance(one, Begun)] == ["t", "m"]


# -- github -----------------------------------------------------------------------------------------------------------

PUSH = {
    "ref": "refs/heads/release/1.2",
    "after": "abc",
    "repository": {"full_name": "acme/shop"},
    "sender": {"login": "ada"},
}
PULL = {
    "action": "opened",
    "pull_request": {"base": {"ref": "main"}, "head": {"sha": "def"}, "draft": False},
    "repository": {"full_name": "Acme/Shop"},
    "sender": {"login": "bob"},
}


def github(**more: Any) -> dict[str, Any]:
    return trigger("GITHUB", repository="acme/shop", events=["push", "pull_request"], **more)


def delivery(event: str, body: Any) -> dict[str, Any]:
    return {"body": body, "headers": {"x-github-event": event, "x-github-delivery": "d-1"}}


def test_github_tells_what_happened_where() -> None:
    assert data_of(github(), **delivery("push", PUSH)) == {
        "trigger_time": "2026-01-05T08:00:00+00:00",
        "event_type": "push",
        "repository": "acme/shop",
        "sender": "ada",
        "branch": "release/1.2",
        "commit_sha": "abc",
        "trigger_message": "GitHub: push in acme/shop",
        "github_payload": PUSH,
    }
    data = data_of(github(include_payload=False, branches=["main"]), **delivery("pull_request", PULL))
    assert (data["branch"], data["commit_sha"], data["github_payload"]) == ("main", "def", {})
    assert data["trigger_message"] == "GitHub: pull_request opened in Acme/Shop"


@pytest.mark.parametrize(
    ("settings", "event", "body", "why"),
    [
        ({}, "issues", PULL, "the event 'issues' is none of push, pull_request"),
        ({"branches": ["main", "dev/*"]}, "push", PUSH, "the branch 'release/1.2' is none of its branches"),
        ({"filter_conditions": {"pull_request.draft": True}}, "pull_request", PULL, "pull_request.draft is False"),
        ({"filter_conditions": {"action": ["closed", "edited"]}}, "pull_request", PULL, "action is 'opened'"),
        ({}, "push", {**PUSH, "repository": {"full_name": "x/y"}}, "it is about the repository 'acme/shop', not 'x/y'"),
        ({}, "push", {**PUSH, "repository": "acme/shop"}, "it is about the repository 'acme/shop', not ''"),
        ({}, "push", "text", "what came in is no JSON object"),
    ],
)
def test_what_github_is_not_asked_about(settings: dict[str, Any], event: str, body: Any, why: str) -> None:
    assert why_not(github(**settings), **delivery(event, body)) == why


def test_patterns_of_branches_are_those_of_files() -> None:
    assert data_of(github(branches=["release/*"]), **delivery("push", PUSH))["branch"] == "release/1.2"


# -- slack ------------------------------------------------------------------------------------------------------------

SAID = {"type": "message", "channel": "C1", "user": "U1", "text": "Is the Shop down?", "ts": "1.2"}


def slack(**more: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"workspace_id": "T1", "bot_token": "x", "events": ["message"], **more}
    return {**trigger("SLACK"), "configurations": settings}


def event(**said: Any) -> dict[str, Any]:
    return {"body": {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": {**SAID, **said}}}


def test_slack_tells_who_said_what_where() -> None:
    data = data_of(slack(channels=["C1"], keywords=["shop"]), **event())
    payload = data.pop("slack_payload")
    assert payload["event_id"] == "Ev1"
    assert data == {
        "trigger_time": "2026-01-05T08:00:00+00:00",
        "event_type": "message",
        "channel_id": "C1",
        "channel_name": "",
        "user_id": "U1",
        "user_name": "",
        "message_text": "Is the Shop down?",
        "thread_ts": "1.2",
        "trigger_message": "Slack: message in C1",
    }
    named = data_of(slack(channels=["#help"]), **event(channel={"id": "C2", "name": "help"}, thread_ts="9"))
    assert (named["channel_id"], named["channel_name"], named["thread_ts"]) == ("C2", "help", "9")
    reaction = data_of(
        slack(events=["reaction_added"]), **event(type="reaction_added", channel=None, item={"channel": "C1"})
    )
    assert reaction["channel_id"] == "C1"


@pytest.mark.parametrize(
    ("settings", "received", "why"),
    [
        ({}, event(bot_id="B1"), "its author is a bot"),
        ({}, event(subtype="bot_message"), "its author is a bot"),
        ({"keywords": ["refund"]}, event(), "none of refund is mentioned"),
        ({"channels": ["C2"]}, event(), "the channel 'C1' is none of its channels"),
        ({"events": ["app_mention"]}, event(), "the event 'message' is none of app_mention"),
        ({}, {"body": {**event()["body"], "team_id": "T2"}}, "it is about the workspace 'T1', not 'T2'"),
        ({}, {"body": {"type": "url_verification"}}, "the request has no event"),
    ],
)
def test_what_slack_is_not_asked_about(settings: dict[str, Any], received: dict[str, Any], why: str) -> None:
    assert why_not(slack(**settings), **received) == why


# -- mail -------------------------------------------------------------------------------------------------------------

MAIL = {
    "id": "<1@x>",
    "from": "Ada Lovelace <ada@example.org>",
    "to": "desk@acme.org",
    "subject": "Order 7",
    "text": "Where is it?",
    "attachments": [
        {"name": "order.PDF", "size": 10},
        {"name": "big.pdf", "size": 99_000_000},
        {"name": "run.exe", "size": 1},
        "odd",
    ],
    "headers": {"X-Spam": "no"},
}


def email(**more: Any) -> dict[str, Any]:
    server = {"host": "mail.acme.org", "port": 993, "use_ssl": True}
    account = {"username": "desk", "password": "{{$placeholder}}"}
    return trigger("EMAIL", email_provider="imap", server_config=server, credentials=account, **more)


def test_a_mail_is_handed_on_with_the_attachments_that_are_taken() -> None:
    settings = {
        "sender_whitelist": ["example.org"],
        "subject_keywords": ["order"],
        "filter_criteria": {"to": "desk@acme.org"},
    }
    data = data_of(email(**settings), body=MAIL)
    assert data == {
        "trigger_time": "2026-01-05T08:00:00+00:00",
        "email_id": "<1@x>",
        "sender": MAIL["from"],
        "recipient": "desk@acme.org",
        "subject": "Order 7",
        "body_text": "Where is it?",
        "body_html": "",
        "attachments": [{"name": "order.PDF", "size": 10}],
        "received_date": "2026-01-05T08:00:00+00:00",
        "trigger_message": "Mail from ada@example.org: Order 7",
        "email_headers": {"X-Spam": "no"},
    }
    assert data_of(email(process_attachments=False), body=MAIL)["attachments"] == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"sender_whitelist": ["bob@example.org"]}, "the sender 'ada@example.org' is none of its senders"),
        ({"subject_keywords": ["invoice"]}, "none of invoice is mentioned"),
        ({"filter_criteria": {"headers.X-Spam": "yes"}}, "headers.X-Spam is 'no'"),
    ],
)
def test_mails_that_are_not_meant(settings: dict[str, Any], why: str) -> None:
    assert why_not(email(**settings), body=MAIL) == why


def test_a_cron_trigger_begins_with_nothing_that_comes_in() -> None:
    assert "callboard schedule add" in why_not(trigger("CRON", cron_expression="0 9 * * *"), body={})


# -- at the command line ----------------------------------------------------------------------------------------------


def test_what_came_in_becomes_a_run_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    file = place.write("desk.json", document(github()))
    came = {"body": PUSH, "headers": {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1"}}
    place.write("push.json", came)
    done = place.told("run", file, "--received", "@push.json")
    assert done["run_id"] == "desk-d-1"
    (execution,) = done["results"]["node_executions"].values()
    assert execution["output_data"]["result"]["branch"] == "release/1.2"
    assert done["results"]["trigger_info"]["external_request_id"] == "d-1"
    (row,) = place.told("runs")
    assert row["run"] == "desk-d-1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--received", json.dumps({"body": PUSH})], "the event '' is none of push, pull_request"),
        (["--received", "{}", "--trigger", "WEBHOOK"], "no trigger 'WEBHOOK' accepts the request"),
        (
            ["--received", '{"bodi": 1}'],
            "invalid bodi: Extra inputs are not permitted; expected an object with at, body",
        ),
        (["--received", "{}", "--input", "{}"], "omit --input and --value"),
        (["--trigger", "t"], "--received"),
    ],
)
def test_what_no_trigger_begins_with_is_told(tmp_path: Path, words: list[str], said: str) -> None:
    place = Place(tmp_path)
    done = place.here("start", place.write("desk.json", document(github())), *words)
    assert (done.exit_code, said in done.output) == (exits.USAGE, True), done.output
