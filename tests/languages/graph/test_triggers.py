"""Triggers of graphs: the input of the run that a request starts, or the reason why it starts none."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from callboard.languages.graph.language import LANGUAGE
from callboard.languages.graph.triggers import match_triggers
from callboard.languages.plan import Definition
from callboard.languages.triggers import Begun, PassedOver, Received
from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

AT = dt.datetime(2026, 1, 5, 8, tzinfo=dt.UTC)


def document(*triggers: dict[str, Any]) -> dict[str, Any]:
    nodes = [{"name": f"trigger_{one['id']}", "type": "TRIGGER", **one} for one in triggers]
    names = [one["id"] for one in triggers]
    return {"metadata": {"id": "desk", "name": "Desk"}, "nodes": nodes, "connections": [], "triggers": names}


def trigger(subtype: str, id: str = "t", **configurations: Any) -> dict[str, Any]:
    return {"id": id, "subtype": subtype, "configurations": configurations}


def match(*triggers: dict[str, Any], received: Received, named: str | None = None) -> list[Begun | PassedOver]:
    parsed = LANGUAGE.parse(json.dumps(document(*triggers)))
    assert isinstance(parsed, Definition), parsed
    return match_triggers(parsed.document, received, named)


def find_input(*triggers: dict[str, Any], **received: Any) -> dict[str, Any]:
    (found,) = match(*triggers, received=Received(AT, **received))
    assert isinstance(found, Begun), found
    return found.input


def find_reason(*triggers: dict[str, Any], **received: Any) -> str:
    (found,) = match(*triggers, received=Received(AT, **received))
    assert isinstance(found, PassedOver), found
    return found.why


# -- manual, webhook ---------------------------------------------------------------------------------------------------


def test_a_manual_trigger_takes_any_input() -> None:
    data = find_input(trigger("MANUAL", trigger_name="Desk"), body={"user_input": "hello"})
    time = "2026-01-05T08:00:00+00:00"
    assert data == {"trigger_time": time, "trigger_message": "Started by Desk", "user_input": "hello"}
    assert find_input(trigger("MANUAL"), body="text")["body"] == "text"


WEBHOOK = trigger("WEBHOOK", webhook_path="/orders", allowed_methods=["POST", "PUT"])
REQUEST: dict[str, Any] = {
    "body": {"n": 1},
    "headers": {"content-type": "application/json", "idempotency-key": "k-1"},
    "method": "put",
    "path": "orders/",
    "query": {"q": "1"},
    "client_ip": "10.0.0.1",
}


def test_a_webhook_passes_the_request_on() -> None:
    (found,) = match(WEBHOOK, received=Received(AT, **REQUEST))
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
    trigger_info = {"trigger_type": "WEBHOOK", "timestamp": 1767600000000, "external_request_id": "k-1"}
    assert found.options == {"trigger": trigger_info}


def test_a_webhook_is_selected_by_path_and_method() -> None:
    assert "not '/other'" in find_reason(WEBHOOK, path="/other")
    assert find_reason(WEBHOOK, path="/orders", method="GET") == "the method 'GET' is none of POST, PUT"


def test_only_the_named_one_of_several_triggers_starts_a_run() -> None:
    matches = match(WEBHOOK, trigger("MANUAL", "m"), received=Received(AT, **REQUEST), named="WEBHOOK")
    assert [one.trigger for one in matches] == ["t"]
    assert isinstance(matches[0], Begun)
    assert matches[0].options["start_from_node"] == "t"
    both = match(WEBHOOK, trigger("MANUAL", "m"), received=Received(AT, **REQUEST))
    assert [one.trigger for one in both if isinstance(one, Begun)] == ["t", "m"]


# -- github ------------------------------------------------------------------------------------------------------------

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


def test_a_github_delivery_becomes_the_input() -> None:
    assert find_input(github(), **delivery("push", PUSH)) == {
        "trigger_time": "2026-01-05T08:00:00+00:00",
        "event_type": "push",
        "repository": "acme/shop",
        "sender": "ada",
        "branch": "release/1.2",
        "commit_sha": "abc",
        "trigger_message": "GitHub: push in acme/shop",
        "github_payload": PUSH,
    }
    data = find_input(github(include_payload=False, branches=["main"]), **delivery("pull_request", PULL))
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
def test_a_github_delivery_that_does_not_match_is_passed_over(
    settings: dict[str, Any], event: str, body: Any, why: str
) -> None:
    assert find_reason(github(**settings), **delivery(event, body)) == why


def test_a_branch_may_be_a_file_pattern() -> None:
    assert find_input(github(branches=["release/*"]), **delivery("push", PUSH))["branch"] == "release/1.2"


# -- slack -------------------------------------------------------------------------------------------------------------

MESSAGE = {"type": "message", "channel": "C1", "user": "U1", "text": "Is the Shop down?", "ts": "1.2"}


def slack(**more: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"workspace_id": "T1", "bot_token": "x", "events": ["message"], **more}
    return {**trigger("SLACK"), "configurations": settings}


def slack_event(**expected: Any) -> dict[str, Any]:
    return {"body": {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": {**MESSAGE, **expected}}}


def test_a_slack_event_becomes_the_input() -> None:
    data = find_input(slack(channels=["C1"], keywords=["shop"]), **slack_event())
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
    named = find_input(slack(channels=["#help"]), **slack_event(channel={"id": "C2", "name": "help"}, thread_ts="9"))
    assert (named["channel_id"], named["channel_name"], named["thread_ts"]) == ("C2", "help", "9")
    reaction = find_input(
        slack(events=["reaction_added"]), **slack_event(type="reaction_added", channel=None, item={"channel": "C1"})
    )
    assert reaction["channel_id"] == "C1"


@pytest.mark.parametrize(
    ("settings", "received", "why"),
    [
        ({}, slack_event(bot_id="B1"), "its author is a bot"),
        ({}, slack_event(subtype="bot_message"), "its author is a bot"),
        ({"keywords": ["refund"]}, slack_event(), "none of refund is mentioned"),
        ({"channels": ["C2"]}, slack_event(), "the channel 'C1' is none of its channels"),
        ({"events": ["app_mention"]}, slack_event(), "the event 'message' is none of app_mention"),
        ({}, {"body": {**slack_event()["body"], "team_id": "T2"}}, "it is about the workspace 'T1', not 'T2'"),
        ({}, {"body": {"type": "url_verification"}}, "the request has no event"),
    ],
)
def test_a_slack_event_that_does_not_match_is_passed_over(
    settings: dict[str, Any], received: dict[str, Any], why: str
) -> None:
    assert find_reason(slack(**settings), **received) == why


# -- mail --------------------------------------------------------------------------------------------------------------

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


def test_a_mail_becomes_the_input_with_the_accepted_attachments() -> None:
    settings = {
        "sender_whitelist": ["example.org"],
        "subject_keywords": ["order"],
        "filter_criteria": {"to": "desk@acme.org"},
    }
    data = find_input(email(**settings), body=MAIL)
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
    assert find_input(email(process_attachments=False), body=MAIL)["attachments"] == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"sender_whitelist": ["bob@example.org"]}, "the sender 'ada@example.org' is none of its senders"),
        ({"subject_keywords": ["invoice"]}, "none of invoice is mentioned"),
        ({"filter_criteria": {"headers.X-Spam": "yes"}}, "headers.X-Spam is 'no'"),
    ],
)
def test_a_mail_that_does_not_match_is_passed_over(settings: dict[str, Any], why: str) -> None:
    assert find_reason(email(**settings), body=MAIL) == why


def test_a_cron_trigger_takes_no_request() -> None:
    assert "callboard schedule add" in find_reason(trigger("CRON", cron_expression="0 9 * * *"), body={})


# -- at the command line -----------------------------------------------------------------------------------------------


def test_a_delivery_at_the_command_line_starts_a_run(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    file = workdir.write("desk.json", document(github()))
    delivered = {"body": PUSH, "headers": {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1"}}
    workdir.write("push.json", delivered)
    done = workdir.run_json("run", file, "--received", "@push.json")
    assert done["run_id"] == "desk-d-1"
    (execution,) = done["results"]["node_executions"].values()
    assert execution["output_data"]["result"]["branch"] == "release/1.2"
    assert done["results"]["trigger_info"]["external_request_id"] == "d-1"
    (row,) = workdir.run_json("runs")
    assert row["run"] == "desk-d-1"


@pytest.mark.parametrize(
    ("words", "expected"),
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
def test_a_request_without_a_trigger_is_refused_with_the_reason(
    tmp_path: Path, words: list[str], expected: str
) -> None:
    workdir = Workdir(tmp_path)
    done = workdir.run("start", workdir.write("desk.json", document(github())), *words)
    assert (done.exit_code, expected in done.output) == (exits.USAGE, True), done.output
