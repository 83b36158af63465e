"""A service over HTTP for the shipped skills: requests with limits, and errors that a model can act upon.

A handler makes a `Service` from its configuration and sends requests with it. A failure is a `ServiceFailed` whose text
has the status, the service's own words and a remedy, and never a value of the configuration. Redirects are followed
within the service's own origin only: credentials go nowhere else.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from callboard.actors.skills.request import ServiceAnswer, ServiceRequest, Unanswered, address, send
from callboard.actors.skills.service_errors import Trouble, said_in, without
from callboard.bus import tracecontext
from callboard.lib.backoff import backoff_s
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

CALL_TIMEOUT_S = 50.0
"""How long all tries of a request may take together; a tool that takes 60 s is killed without a useful message."""

TRIES_MAX = 3
PAUSE_S = 0.5
"""The pause before the second try, if the service does not set one; doubled before each further try."""

RETRY_AFTER_MAX_S = 20.0
"""A service that asks for a longer pause is not tried again: the model gets the error."""

LONG_S = 86_400.0
"""A longer pause is reported as this."""

WEBHOOK_SECRET_CHARS_MIN = 8
"""Parts of a webhook's address that have at least this length are removed from messages."""

PASSING = frozenset({502, 503, 504})
"""Statuses of faults that pass; a request that may be repeated is then tried again."""

_NEVER = threading.Event()

STOPPED: ContextVar[threading.Event] = ContextVar("STOPPED", default=_NEVER)
"""Is set as soon as no caller waits for an answer any longer; no further request is started then. A caller whose thread
may be abandoned sets its own event. A tool does not need one: its process ends."""


class HandlerContext(Protocol):
    """The part of a tool's context that the handlers use."""

    @property
    def config(self) -> Mapping[str, str]: ...
    @property
    def log(self) -> logging.Logger: ...
    @property
    def idempotency_key(self) -> str: ...


class ServiceFailed(Exception):
    """A request failed; the text is for a model. ``status`` is that of the answer, 0 without an answer."""

    def __init__(self, message: str, status: int = 0, said: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.said = said


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its name, its address, the headers of every request, and the secrets that messages must not show.

    ``credential`` names the setting that an error about access refers to.
    """

    name: str
    base: str
    credential: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def webhook(cls, name: str, url: str, credential: str, headers: Mapping[str, str] | None = None) -> "Service":
        """Return a service with a single secret address: anyone who has the address may post there."""
        found = address(url)
        words = [*found.path.split("/"), *dict(found.params).values()] if found is not None else []
        hidden = [word for word in words if len(word) >= WEBHOOK_SECRET_CHARS_MIN]
        return cls(name, url, credential, headers or {}, (url, *hidden))

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Read a resource; return the JSON of the answer.

        :raises ServiceFailed: without a usable answer
        """
        return self.decode(self.ask("GET", path, params=params, repeatable=True))

    def post(self, path: str, body: Any, *, repeatable: bool = False) -> Any:
        """Send JSON, or a `Form`; return the JSON of the answer. ``repeatable``: sending it twice does no harm.

        :raises ServiceFailed: without a usable answer
        """
        return self.decode(self.ask("POST", path, body=body, repeatable=repeatable))

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        repeatable: bool = False,
    ) -> ServiceAnswer:
        """Send a request, several times if that may help; return a successful answer.

        :raises ServiceFailed: without an answer, or after an unsuccessful one
        """
        stopped = STOPPED.get()
        deadline = time.monotonic() + CALL_TIMEOUT_S
        given = {name: value for name, value in (params or {}).items() if value is not None}
        url = f"{self.base.rstrip('/')}{path}" if path else self.base
        request = ServiceRequest(method, url, given, body, {**tracecontext.headers(), **self.headers}, self.credential)
        for tried in range(1, TRIES_MAX + 1):
            if stopped.is_set():
                raise self.failure("is not asked: no caller waits for the answer any longer")
            try:
                answer = send(request, deadline)
            except Unanswered as unanswered:
                pause = backoff_s(tried, PAUSE_S, RETRY_AFTER_MAX_S) if repeatable and unanswered.passes else None
                failed = self.failure(str(unanswered))
            else:
                if answer.ok:
                    return answer
                pause = _pause(answer, tried, repeatable=repeatable)
                failed = self.refusal_of(answer)
            if pause is None or tried == TRIES_MAX or time.monotonic() + pause > deadline:
                raise failed from None
            stopped.wait(pause)
        raise AssertionError("the last try returns or raises")

    def decode(self, answer: ServiceAnswer) -> Any:
        """Return the JSON of an answer.

        :raises ServiceFailed: if it is not JSON
        """
        try:
            return decode_json(answer.body)
        except JSON_ERRORS:
            start = answer.body[:60].decode("utf-8", "replace")
            raise self.failure(
                f"answered HTTP {answer.status} with something that is not JSON: {start!r}. "
                f"The operator of the worker should check the address of {self.name}",
                answer.status,
            ) from None

    def refusal_of(self, answer: ServiceAnswer) -> ServiceFailed:
        """Return the error for an unsuccessful answer."""
        said = said_in(answer.body)
        trouble = Trouble(answer.status, _retry_after(answer), self.credential)
        phrase = HTTPStatus(answer.status).phrase if answer.status in _PHRASED else ""
        told = f"answered HTTP {answer.status} {phrase}".rstrip()
        return self.failure(f"{told}{f': {said}' if said else ''}. {trouble.remedy}", answer.status, said)

    def failure(self, message: str, status: int = 0, said: str = "") -> ServiceFailed:
        """Return an error, after removing secret values from its text."""
        told = without(f"{self.name} {message}", self.secrets)
        return ServiceFailed(told, status, without(said, self.secrets))


_PHRASED = frozenset(status.value for status in HTTPStatus)


def _pause(answer: ServiceAnswer, tried: int, *, repeatable: bool) -> float | None:
    """Return how long to wait before another try, None to give up."""
    after = _retry_after(answer)
    limited = answer.status == 429 or (answer.status == 403 and after is not None)
    if not limited and not (repeatable and answer.status in PASSING):
        return None
    pause = backoff_s(tried, PAUSE_S, RETRY_AFTER_MAX_S) if after is None else after
    return pause if pause <= RETRY_AFTER_MAX_S else None


def _retry_after(answer: ServiceAnswer) -> float | None:
    """Read ``Retry-After`` in its form as seconds; web services send no dates there. Some put the pause into JSON."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    if answer.status != 429:
        return None
    try:
        told: Any = decode_json(answer.body)
    except JSON_ERRORS:
        return None
    found = member(told, "retry_after") or member(told, "parameters", "retry_after")
    return float(min(found, LONG_S)) if isinstance(found, int | float) and found >= 0 else None


def segment(text: str, what: str) -> str:
    """Quote a text as one segment of a path.

    :raises ServiceFailed: if it is not a segment: empty, or a step upwards
    """
    if text.strip() in ("", ".", ".."):
        raise ServiceFailed(f"{text!r} is not a valid {what}")
    return quote(text, safe="")


def member(value: Any, *names: str) -> Any:
    """Return the value at a path of names, or None."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def value_of(context: HandlerContext, name: str, default: str = "") -> str:
    """Return a value of a skill's configuration, without blanks around it."""
    return context.config.get(name, "").strip() or default
