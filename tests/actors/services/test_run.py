"""A worker runs a graph that acts upon services; the log holds no credential."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.graph_services import RENEWED, variables
from tests.support.mail_server import MailServer
from tests.support.service_api import TOKEN, Reply, ServiceApi

PARTY = {"data": {"summary": "Party", "start_datetime": "2026-11-20T20:00:00Z", "end_datetime": "2026-11-20T23:00:00Z"}}

ACTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "calendar": ("GOOGLE_CALENDAR", {"action_type": "create_event"}),
    "chat": (
        "TELEGRAM_ACTION",
        {"action_type": "send_message", "chat_id": "-100", "message_text": "{{ $json.event.summary }} is on"},
    ),
    "server": (
        "DISCORD_ACTION",
        {
            "action_type": "send_message",
            "server_id": "g1",
            "channel_id": "c1",
            "message_content": "said in {{ $json.chat_id }}",
        },
    ),
    "page": ("FIRECRAWL", {"action_type": "scrape", "url": "https://example.com"}),
    "letter": ("EMAIL", {"to": "ada@example.com", "subject": "Party", "text": "{{ $json.content }}"}),
}


def graph(*names: str) -> dict[str, Any]:
    """A graph of these actions, one after the other."""
    actions = [
        {"id": name, "name": name, "type": _type(subtype), "subtype": subtype, "configurations": configurations}
        for name, (subtype, configurations) in ACTIONS.items()
        if name in names
    ]
    hook = {"id": "hook", "name": "hook", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}}
    return {
        "metadata": {"id": "g", "name": "g", "created_time": 0, "created_by": "u"},
        "nodes": [hook, *actions],
        "connections": [{"id": f"{a}-{b}", "from_node": a, "to_node": b} for a, b in pairwise(names)],
        "triggers": ["hook"],
    }


def _type(subtype: str) -> str:
    return "HUMAN_IN_THE_LOOP" if subtype.endswith("_INTERACTION") else "EXTERNAL_ACTION"


async def run_actions(
    tmp_path: Path, env: dict[str, str], *names: str, until: str = ev.RunEnd.type
) -> tuple[list[Any], bytes]:
    """Run a graph of these actions; return the payloads of its log, and the stored bytes of the log."""
    config = load({"data_dir": tmp_path, "sync": "100ms", "always_replay": True}, env=env, cwd=tmp_path)
    definition = {"language": "graph", "source": msgspec.json.encode(graph(*names)).decode()}
    options = {"user_id": "u", "start_from_node": names[0]}
    message = {"definition": definition, "run_id": "r1", "input": PARTY, "options": options, "model": "scripted"}
    async with open_connection(config) as connection, open_worker(connection, env):
        verdict = await connection.client.start(message)
        assert verdict.status == "accepted", verdict.problems
        async with connection.client.follow("r1", event_type=until) as found:
            await anext(aiter(found))
        events = await connection.client.events("r1")
    return [ev.payload_of(event) for event in events], b"".join(bytes(event.payload) for event in events)


async def test_a_graph_acts_upon_services_and_records_no_credential(
    api: ServiceApi, post: MailServer, tmp_path: Path
) -> None:
    mail = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "cb@example.com"}
    renewing = {"GOOGLE_REFRESH_TOKEN": f"{TOKEN}-r", "GOOGLE_CLIENT_ID": "c", "GOOGLE_CLIENT_SECRET": TOKEN}
    env = {**variables(api), **mail, **renewing, "GOOGLE_ACCESS_TOKEN": "expired-t0ken", "SMTP_PASSWORD": TOKEN}
    payloads, stored = await run_actions(tmp_path, env, *ACTIONS)
    end = payloads[-1]
    assert (end.status, end.error) == ("completed", None)
    [event] = [made for made in api.created.values() if made.get("kind") == "calendar#event"]
    assert event["summary"] == "Party"
    assert {"Party is on", "said in -100"} <= {made.get("text", made.get("content")) for made in api.created.values()}
    [letter] = post.mails
    assert letter.get_content().strip() == "# https://example.com"
    for secret in (TOKEN, RENEWED, "expired-t0ken"):
        assert secret.encode() not in stored


async def test_a_service_that_refuses_fails_the_run(api: ServiceApi, tmp_path: Path) -> None:
    api.instead = [Reply(403, {"ok": False, "description": f"Forbidden: {TOKEN} was kicked"})]
    payloads, stored = await run_actions(tmp_path, variables(api), "chat")
    assert payloads[-1].status == "failed"
    assert "was kicked" in str(payloads[-1])
    assert TOKEN.encode() not in stored


@pytest.mark.parametrize(
    ("subtype", "config"),
    [
        (
            "GMAIL_INTERACTION",
            {"channel_config": {}, "recipient_emails": ["ada@example.com"], "email_subject": "Party"},
        ),
        ("TELEGRAM_INTERACTION", {"chat_id": "-100", "message_template": "Shall we?"}),
        ("DISCORD_INTERACTION", {"server_id": "g1", "channel_id": "c1", "message_template": "Shall we?"}),
    ],
)
async def test_a_question_with_an_answer_link_is_sent_through_the_channel(
    api: ServiceApi, post: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtype: str, config: Any
) -> None:
    mail = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "cb@example.com"}
    monkeypatch.setitem(ACTIONS, "ask", (subtype, {**config, "message": "Shall we?"}))
    env = {**variables(api), **mail, "CALLBOARD_HTTP_URL": "https://example.com/desk/"}
    payloads, stored = await run_actions(tmp_path, env, "ask", until=ev.EffectResult.type)
    assert [payload for payload in payloads if isinstance(payload, ev.NodeWarning)] == []
    [sent] = [payload.value for payload in payloads if isinstance(payload, ev.EffectResult)]
    assert isinstance(sent, dict)
    assert sent["message_id"]
    created = [made.get("text", made.get("content")) for made in api.created.values()]
    [text] = [mail.get_content() for mail in post.mails] + created
    assert "Shall we?" in text
    # Anyone who has the link can answer, so it is only in the message.
    assert "Answer here: https://example.com/desk/answer/" in text
    assert b"/answer/" not in stored
    assert TOKEN.encode() not in stored
