"""Slack's buttons: a press that Slack has signed answers once; later presses name that answer."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from callboard.bus.events import CancelRequested, HumanAnswered, HumanAsked, RunEnd, ToolCall, payload_of
from callboard.bus.log.port import NoAnswer
from callboard.features.access.links import Links
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import Connection
from callboard.service.operations.operations import Operations
from callboard.service.operations.run_lists import Listings
from callboard.surfaces.http.answer_form import AnswerForms
from callboard.surfaces.http.sender_secrets import sender_secrets
from callboard.surfaces.http.slack_buttons import PATH, SlackButtons
from tests.support.flows import build_payment, build_question
from tests.support.http_application import PATIENCE_S, code_of, served
from tests.surfaces.http.test_answer_links import now
from tests.surfaces.http.test_webhooks import SECRET, sign_slack

HOOK = "https://hooks.slack.com/actions/T1/1"


class ButtonServer:
    """The buttons of a tenant; records the messages to Slack."""

    def __init__(self, connection: Connection, tasks: Any, runs: httpx2.AsyncClient) -> None:
        operations = Operations(connection.log, Definitions(), Listings(connection.log, tasks)).operations()
        self.connection = connection
        self.runs = runs
        self.messages: list[tuple[str, Any]] = []
        buttons = SlackButtons(
            "acme",
            AnswerForms(connection.log, "acme", operations),
            sender_secrets({"slack/buttons": [SECRET]}),
            self._reply,
        )
        none = SlackButtons("acme", AnswerForms(connection.log, "acme", operations), sender_secrets({}), self._reply)
        routes = [Route(PATH, buttons.take, methods=["POST"]), Route("/none/{tenant}", none.take, methods=["POST"])]
        transport = httpx2.ASGITransport(Starlette(routes=routes))
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE_S)

    async def _reply(self, url: str, message: dict[str, Any]) -> None:
        self.messages.append((url, message))

    async def press(self, value: str, user: str = "ada", path: str = "/slack/acme", **more: Any) -> httpx2.Response:
        pressed = {"type": "block_actions", "actions": [{"value": value}], "user": {"username": user}}
        body = urlencode({"payload": json.dumps({**pressed, "response_url": HOOK, **more})}).encode()
        return await self.client.post(path, content=body, headers=sign_slack(body, at=int(time.time())))


@pytest.fixture(scope="module")
async def buttons(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ButtonServer]:
    async with served(tmp_path_factory.mktemp("buttons")) as (client, connection), anyio.create_task_group() as tasks:
        started = await client.post(
            "/runs", json={**build_question(question="Who?", options=["a", "b"]), "run_id": "one"}
        )
        assert started.status_code == 202
        async with connection.client.follow("one", event_type=HumanAsked.type) as feed:
            await anext(aiter(feed))
        yield ButtonServer(connection, tasks, client)
        tasks.cancel_scope.cancel()


async def link_of(buttons: ButtonServer) -> str:
    events = await buttons.connection.client.events("one")
    key = next(event.key for event in events if event.type == HumanAsked.type)
    return await Links(buttons.connection.log, "acme").made("one", key, "slack", now())


async def test_an_unsigned_or_malformed_press_answers_nothing(buttons: ButtonServer) -> None:
    link = await link_of(buttons)
    body = urlencode({"payload": json.dumps({"type": "block_actions"})}).encode()
    old = sign_slack(body, at=int(time.time()) - 3_600)
    codes = [
        (await buttons.client.post("/slack/acme", content=body), (401, "webhook.unproven")),
        (await buttons.client.post("/slack/acme", content=body, headers=old), (401, "webhook.late")),
        (await buttons.press(f"{link}#0", path="/slack/other"), (404, "webhook.unknown")),
        (await buttons.press(f"{link}#0", path="/none/acme"), (403, "webhook.no_secret")),
        (await buttons.press(f"{link}#7"), (400, "api.malformed")),
        (await buttons.press(link), (400, "api.malformed")),
        (await buttons.press(f"{link}#0", type="view_submission"), (400, "api.malformed")),
        (await buttons.press(f"{link}#0", actions=[]), (400, "api.malformed")),
    ]
    for answer, expected in codes:
        assert code_of(answer) == expected
    assert (await buttons.press("forged.link#0")).json()["text"] == "This link is invalid or has expired."
    events = await buttons.connection.client.events("one")
    assert [event for event in events if event.type == HumanAnswered.type] == []


async def test_a_press_without_an_answer_of_the_log_is_refused(
    buttons: ButtonServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await link_of(buttons)

    async def silent(*_: Any) -> None:
        raise NoAnswer("silent")

    monkeypatch.setattr(AnswerForms, "answer_with_option", silent)
    done = await buttons.press(f"{link}#0")
    assert code_of(done) == (503, "log.unavailable")


async def test_the_first_press_answers_and_later_ones_name_it(buttons: ButtonServer) -> None:
    link = await link_of(buttons)
    buttons.messages.clear()
    first = await buttons.press(f"{link}#1")
    assert first.json()["text"] == "Who?\nb, says slack:ada."
    # Neither the same press nor another one counts.
    for user, place in (("ada", 1), ("bob", 0)):
        later = await buttons.press(f"{link}#{place}", user, response_url="https://evil.example.com/x")
        assert "answered by slack:ada" in later.json()["text"]
    assert [url for url, _ in buttons.messages] == [HOOK]
    assert buttons.messages[0][1] == {"replace_original": True, "text": first.json()["text"]}
    events = await buttons.connection.client.events("one")
    given = [payload_of(event) for event in events if event.type == HumanAnswered.type]
    assert [(one.user_response, one.by) for one in given if isinstance(one, HumanAnswered)] == [("b", "slack:ada")]


async def test_a_button_stops_the_run_instead_of_a_call(buttons: ButtonServer) -> None:
    connection = buttons.connection
    async with connection.client.follow("pay", event_type=HumanAsked.type) as feed:
        assert (await buttons.runs.post("/runs", json={**build_payment(), "run_id": "pay"})).status_code == 202
        key = (await anext(aiter(feed))).event.key
    link = await Links(connection.log, "acme").made("pay", key, "slack", now())
    pressed = await buttons.press(f"{link}#3")
    assert pressed.json()["text"] == "May step pay call pay?\nStop the run, says slack:ada."
    async with connection.client.follow("pay", event_type=RunEnd.type) as feed:
        await anext(aiter(feed))
    events = await connection.client.events("pay")
    [cancelled] = [found for event in events if isinstance(found := payload_of(event), CancelRequested)]
    assert (cancelled.by, ToolCall.type in {event.type for event in events}) == ("slack:ada", False)
