"""Google Calendar, over its REST API, with an access token, which is renewed if there is a refresh token.

A created event has an id that derives from the idempotency key: however often it is requested, it exists once.
"""

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, object_in
from callboard.actors.skills.request import Form
from callboard.actors.skills.service import Service, ServiceFailed, member, segment
from callboard.lib.redaction import Redaction

API_URL = "https://www.googleapis.com/calendar/v3"
TOKEN_URL = "https://oauth2.googleapis.com/token"

EVENT_ID_CHARS = 64

CarryOut = Callable[[ServiceAction, Service], Payload]
"""Carries out one action; returns Google's answer."""

_TOKENS = ("GOOGLE_REFRESH_TOKEN", "GOOGLE_CLIENT_ID", "GOOGLE_CLIENT_SECRET")
"""The variables needed for a new access token."""


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    carry_out = action.choose_way(ACTIONS)
    action = action.with_data_members()
    renewable = all(_renewing(action).values())
    if renewable and not _has_token(action):
        return _anew(action, carry_out)
    try:
        return _carried_out(action, carry_out, action.token("access_token", "GOOGLE_ACCESS_TOKEN"))
    except ServiceFailed as failed:
        if failed.status != 401 or not renewable:
            raise
        return _anew(action, carry_out)


def _anew(action: ServiceAction, carry_out: CarryOut) -> Payload:
    """Carry an action out with a new access token, removing it from the answer: no setting has it to redact it by."""
    token = _renew_token(action)
    return Redaction({"GOOGLE_ACCESS_TOKEN": token}).value(_carried_out(action, carry_out, token))


def _carried_out(action: ServiceAction, carry_out: CarryOut, token: str) -> Payload:
    try:
        return _payload(carry_out(action, _service(action, token)))
    except ServiceFailed as failed:
        if failed.status == 403 and "limit exceeded" in failed.said.lower():
            # Google reports the limit of a user as 403; that of a project is 429.
            raise ActionRefused("rate_limit_exceeded", str(failed), "try again later, or do with less") from failed
        raise


def _payload(found: Payload) -> Payload:
    listed: Any = found.get("items")
    items: list[Any] = listed if isinstance(listed, list) else []
    calendars = found.get("kind") == "calendar#calendarList"
    event = found if found.get("kind") == "calendar#event" else {}
    link = str(event.get("htmlLink") or "")
    return {
        "success": True,
        "google_response": found,
        "event": event,
        "events": [] if calendars else items,
        "calendars": items if calendars else [],
        "next_page_token": str(found.get("nextPageToken") or ""),
        "next_sync_token": str(found.get("nextSyncToken") or ""),
        "html_link": link,
        "event_id": str(event.get("id") or ""),
        "event_url": link,
        "meeting_link": str(event.get("hangoutLink") or ""),
        "error_message": "",
    }


# -- events ------------------------------------------------------------------------------------------------------------


def _list_events(action: ServiceAction, service: Service) -> Payload:
    single = action.first_given("single_events") is not False
    query = {
        "maxResults": action.first_given("max_results"),
        "singleEvents": single,
        "showDeleted": action.first_given("show_deleted"),
        "pageToken": action.first_given("page_token"),
    }
    if (synced := action.first_given("sync_token")) is not None:
        query["syncToken"] = synced  # without the filters, which Google accepts in the first request only
    else:
        order = action.first_given("order_by")
        query["timeMin"], query["timeMax"] = action.first_given("time_min"), action.first_given("time_max")
        query["orderBy"] = order if single or order != "startTime" else None
        query["q"] = action.first_given("q", "query")
    return _read(service, f"{_calendar(action)}/events", query)


def _search_events(action: ServiceAction, service: Service) -> Payload:
    action.require("q", "query")
    return _list_events(action, service)


def _get_event(action: ServiceAction, service: Service) -> Payload:
    return _read(service, _event(action))


def _create_event(action: ServiceAction, service: Service) -> Payload:
    event = _describe_event(action)
    for what in ("start", "end"):
        if what not in event:
            raise action.lacking(what)
    path = f"{_calendar(action)}/events"
    own = action.idempotency_key[:EVENT_ID_CHARS]
    if not own:
        return object_in(service, service.ask("POST", path, params=_notice(action), body=event))
    try:
        body = {**event, "id": own}
        return object_in(service, service.ask("POST", path, params=_notice(action), body=body, repeatable=True))
    except ServiceFailed as failed:
        if failed.status != 409:
            raise
        return _read(service, f"{path}/{own}")  # an earlier try has created it


def _update_event(action: ServiceAction, service: Service) -> Payload:
    event = _describe_event(action)
    if not event:
        raise action.lacking("something to change")
    answer = service.ask("PATCH", _event(action), params=_notice(action), body=event, repeatable=True)
    return object_in(service, answer)


def _delete_event(action: ServiceAction, service: Service) -> Payload:
    try:
        return object_in(service, service.ask("DELETE", _event(action), params=_notice(action), repeatable=True))
    except ServiceFailed as failed:
        if failed.status != 410:
            raise
        return {}  # it is deleted already, possibly by an earlier try


def _quick_add(action: ServiceAction, service: Service) -> Payload:
    text = action.require("text", "query", "summary")
    params = {"text": text, **_notice(action)}
    return object_in(service, service.ask("POST", f"{_calendar(action)}/events/quickAdd", params=params))


def _watch_events(action: ServiceAction, service: Service) -> Payload:
    body = {
        "id": action.text("channel_id") or action.idempotency_key[:EVENT_ID_CHARS],
        "type": "web_hook",
        "address": action.require("address", "webhook_url"),
        **action.members("token", "expiration", "params"),
    }
    return object_in(service, service.ask("POST", f"{_calendar(action)}/events/watch", body=body))


def _stop_watching(action: ServiceAction, service: Service) -> Payload:
    body = {"id": action.require("channel_id"), "resourceId": action.require("resource_id", "resourceId")}
    return object_in(service, service.ask("POST", "/channels/stop", body=body, repeatable=True))


# -- calendars ---------------------------------------------------------------------------------------------------------


def _list_calendars(action: ServiceAction, service: Service) -> Payload:
    query = {"maxResults": action.first_given("max_results"), "pageToken": action.first_given("page_token")}
    return _read(service, "/users/me/calendarList", query)


def _create_calendar(action: ServiceAction, service: Service) -> Payload:
    body = {"summary": action.require("summary"), **action.members("description", "location")}
    if zone := action.first_given("time_zone", "timezone"):
        body["timeZone"] = zone
    return object_in(service, service.ask("POST", "/calendars", body=body))


def _get_calendar(action: ServiceAction, service: Service) -> Payload:
    return _read(service, _calendar(action))


ACTIONS: Mapping[str, CarryOut] = {
    "list_events": _list_events,
    "create_event": _create_event,
    "update_event": _update_event,
    "delete_event": _delete_event,
    "get_event": _get_event,
    "list_calendars": _list_calendars,
    "create_calendar": _create_calendar,
    "get_calendar": _get_calendar,
    "search_events": _search_events,
    "quick_add": _quick_add,
    "watch_events": _watch_events,
    "stop_watching": _stop_watching,
}


# -- describing events -------------------------------------------------------------------------------------------------


def _describe_event(action: ServiceAction) -> Payload:
    """Return the given members of an event: `attendees` may be bare addresses, and a `date` alone is the whole day."""
    event = action.members("summary", "description", "location", "reminders", "recurrence")
    guests: Any = action.first_given("attendees")
    if isinstance(guests, list):
        event["attendees"] = [{"email": guest} if isinstance(guest, str) else guest for guest in guests]
    zone = action.first_given("time_zone", "timezone")
    for what in ("start", "end"):
        if (whole := action.first_given(what)) is not None:
            event[what] = whole
        elif (at := action.first_given(f"{what}_datetime")) is not None:
            event[what] = {"dateTime": at, **({"timeZone": zone} if zone else {})}
    if "start" not in event and (day := action.first_given("date")) is not None:
        event["start"], event["end"] = {"date": day}, {"date": _after(action, day)}
    return event


def _after(action: ServiceAction, day: Any) -> str:
    """Return the end of a whole day: the day after it, which is not part of it."""
    try:
        return (date.fromisoformat(str(day)) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError) as error:
        message = f"{action.name} cannot read the date {str(day)[:40]!r}"
        raise ActionRefused("missing_parameters", message, "write it as in 2026-11-20") from error


def _notice(action: ServiceAction) -> Payload:
    return {"sendUpdates": updates} if (updates := action.first_given("send_updates")) else {}


def _calendar(action: ServiceAction) -> str:
    return f"/calendars/{segment(action.text('calendar_id') or 'primary', 'calendar')}"


def _event(action: ServiceAction) -> str:
    return f"{_calendar(action)}/events/{segment(str(action.require('event_id')), 'event')}"


def _read(service: Service, path: str, query: Mapping[str, Any] | None = None) -> Payload:
    return object_in(service, service.ask("GET", path, params=query, repeatable=True))


# -- tokens ------------------------------------------------------------------------------------------------------------


def _service(action: ServiceAction, token: str) -> Service:
    url = action.address("GOOGLE_CALENDAR_API_URL", API_URL)
    headers = {"authorization": f"Bearer {token}"}
    return Service("Google Calendar", url, "GOOGLE_ACCESS_TOKEN", headers, (token,))


def _has_token(action: ServiceAction) -> bool:
    return bool(action.configurations.get("access_token") or action.env.get("GOOGLE_ACCESS_TOKEN", "").strip())


def _renewing(action: ServiceAction) -> dict[str, str]:
    """Return the variables for a new access token that are set: the refresh token is the node's, or the worker's."""
    found = {name: action.env.get(name, "").strip() for name in _TOKENS}
    own = action.configurations.get("refresh_token")
    return {**found, "GOOGLE_REFRESH_TOKEN": own} if isinstance(own, str) and own else found


def _renew_token(action: ServiceAction) -> str:
    """Return a new access token.

    :raises ActionRefused: if Google gives none
    """
    refresh, client, secret = (_renewing(action)[name] for name in _TOKENS)
    url = action.address("GOOGLE_TOKEN_URL", TOKEN_URL)
    service = Service("Google's sign-in", url, "GOOGLE_REFRESH_TOKEN", {}, (refresh, secret))
    asked = {
        "grant_type": "refresh_token",
        "refresh_token": refresh,
        "client_id": client,
        "client_secret": secret,
    }
    try:
        token = member(service.post("", Form(asked), repeatable=True), "access_token")
    except ServiceFailed as failed:
        if not 400 <= failed.status < 500 or failed.status == 429:
            raise
        message, _, remedy = str(failed).rpartition(". ")
        raise ActionRefused("authentication_error", message or remedy, "connect the account again") from failed
    if not isinstance(token, str) or not token:
        raise ActionRefused("authentication_error", "Google's sign-in gave no token", "connect the account again")
    return token
