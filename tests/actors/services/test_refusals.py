"""A failed action of a node returns an error code and the reason, and no credential."""

from typing import Any

import pytest

from callboard.actors.skills import service as skill_service
from tests.support.graph_services import act, carry, service_env
from tests.support.service_api import TOKEN, Reply, ServiceApi

REASON = f"because of {TOKEN}"
ACTIONS: dict[str, tuple[str, dict[str, Any], int, dict[str, Any]]] = {
    "discord": ("send_message", {"message_content": "x", "channel_id": "c1"}, 1, {"message": REASON}),
    "telegram": ("edit_message", {"message_text": "x", "chat_id": "1", "message_id": "1"}, 1, {"message": REASON}),
    "slack": ("send_file", {"file_content": "x", "channel": "C1"}, 3, {"message": REASON}),
    "google_calendar": ("list_calendars", {}, 1, {"error": {"message": REASON}}),
    "firecrawl": ("scrape", {"url": "https://example.com"}, 1, {"success": False, "error": REASON}),
    "github": ("list_issues", {"owner": "a", "repo": "b"}, 1, {"message": REASON}),
    "notion": ("search", {"query": "x"}, 1, {"message": REASON}),
}
"""An action of each service that may be repeated: its input, how many requests it needs, and the body of an error."""


@pytest.mark.parametrize("service", ACTIONS)
async def test_credentials_are_required_and_an_unknown_action_is_refused(api: ServiceApi, service: str) -> None:
    action, input, _requests, _body = ACTIONS[service]
    credentials = [name for name, value in service_env(api).items() if value.startswith(TOKEN)]
    refused = await carry({**service_env(api), **dict.fromkeys(credentials, "wr0ng-t0ken")}, service, action, input)
    assert (refused["success"], refused["error_code"]) == (False, "authentication_error")
    assert "wr0ng" not in str(refused)
    without = {name: value for name, value in service_env(api).items() if name not in credentials}
    assert (await carry(without, service, action, input))["error_code"] == "missing_oauth_token"
    assert (await act(api, service, "dance", input))["error_code"] == "unsupported_operation"


@pytest.mark.parametrize("service", ACTIONS)
async def test_a_repeatable_action_is_retried_a_limited_number_of_times(api: ServiceApi, service: str) -> None:
    action, input, requests, body = ACTIONS[service]
    api.instead = [Reply(429, {}, {"retry-after": "0"}), Reply(503, body)]
    assert (await act(api, service, action, input))["success"] is True
    assert len(api.asked) == 2 + requests
    api.instead = [Reply(429, {}, {"retry-after": "3600"})]
    assert (await act(api, service, action, input))["error_code"] == "rate_limit_exceeded"
    api.instead = [Reply(503, body)] * skill_service.TRIES_MAX
    assert (await act(api, service, action, input))["error_code"] == "api_error"


@pytest.mark.parametrize("service", ["discord", "telegram", "slack", "google_calendar", "firecrawl"])
async def test_an_unreadable_answer_or_a_redirect_is_an_api_error(api: ServiceApi, service: str) -> None:
    action, input, _requests, _body = ACTIONS[service]
    for body in (b"<html>", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000):
        api.instead = [Reply(200, body)]
        assert (await act(api, service, action, input))["error_code"] == "api_error"
    api.instead = [Reply(307, b"", {"location": "https://elsewhere.example.com/"})]
    assert (await act(api, service, action, input))["error_code"] == "api_error"


@pytest.mark.parametrize("service", ["google_calendar", "firecrawl"])
@pytest.mark.parametrize(
    "body",
    [{"items": 7, "kind": []}, {"data": [[]], "links": {}}, {"kind": "calendar#calendarList", "items": {}}],
)
async def test_members_of_an_unexpected_type_are_ignored(api: ServiceApi, service: str, body: Any) -> None:
    action, input, _requests, _body = ACTIONS[service]
    api.instead = [Reply(200, body)]
    assert (await act(api, service, action, input))["success"] is True


@pytest.mark.parametrize(
    ("service", "action", "input", "reason"),
    [
        ("discord", "send_message", {"channel_id": "c1"}, "needs message_content"),
        ("discord", "send_message", {"message_content": "x"}, "needs channel_id"),
        ("discord", "send_file", {"channel_id": "c1", "file_config": {"file_path": "/etc/x"}}, "needs file_content"),
        ("discord", "create_channel", {"server_id": "g1"}, "needs name"),
        ("discord", "create_channel", {"channel_config": {"name": "x", "type": "hall"}}, "unknown channel type 'hall'"),
        ("discord", "manage_roles", {"role_config": {"action": "swap"}}, "cannot 'swap'"),
        ("telegram", "send_message", {"chat_id": "1"}, "needs message_text"),
        ("telegram", "send_message", {"message_text": "x"}, "needs chat_id"),
        ("telegram", "send_photo", {"chat_id": "1"}, "needs file_path"),
        ("telegram", "send_document", {"chat_id": "1", "file_base64": "?"}, "cannot read its file_base64"),
        ("telegram", "send_location", {"location_config": dict.fromkeys(["latitude", "longitude"], 0.0)}, "latitude"),
        ("telegram", "send_poll", {"poll_config": {"question": "x", "options": "y"}}, "a list"),
        ("slack", "send_file", {"channel": "C1", "file_path": "/etc/passwd"}, "needs file_content"),
        ("slack", "send_file", {"file_content": "x"}, "needs channel"),
        ("google_calendar", "create_event", {"summary": "x"}, "needs start"),
        ("google_calendar", "create_event", {"start": {"date": "2026-11-20"}}, "needs end"),
        ("google_calendar", "create_event", {"date": "tomorrow"}, "cannot read the date"),
        ("google_calendar", "update_event", {"event_id": "e1"}, "needs something to change"),
        ("google_calendar", "delete_event", {}, "needs event_id"),
        ("google_calendar", "search_events", {}, "needs q"),
        ("google_calendar", "watch_events", {}, "needs address"),
        ("firecrawl", "scrape", {}, "needs url"),
        ("firecrawl", "scrape", {"urls": ["x"] * 21}, "20 addresses at most"),
        ("firecrawl", "extract", {"url": "x"}, "needs schema"),
        ("firecrawl", "search", {}, "needs query"),
    ],
)
async def test_an_action_with_missing_parameters_sends_no_request(
    api: ServiceApi, service: str, action: str, input: Any, reason: str
) -> None:
    refused = await act(api, service, action, input)
    assert (refused["success"], refused["error_code"]) == (False, "missing_parameters")
    assert reason in refused["error_message"]
    assert api.asked == []
