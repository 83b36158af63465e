"""Triggers: what comes in from outside, and the start that a definition makes of it."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from callboard.lib.json_types import JSON


class Received(Struct, frozen=True):
    """A request that came in, or, as its ``body``, a mail.

    ``headers`` have names in lower case; ``body`` is a JSON value where it was one, else the text.
    """

    at: dt.datetime
    body: JSON = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    method: str = "POST"
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    client_ip: str = ""


class Begun(Struct, frozen=True):
    """The start that a trigger makes of what came in: the run's input, and options of its language.

    ``id`` is what the sender calls it, empty if nothing: the same again is the same run.
    """

    trigger: str
    input: dict[str, Any]
    options: dict[str, Any]
    id: str = ""


class PassedOver(Struct, frozen=True):
    """A trigger does not begin a run with what came in, and why."""

    trigger: str
    why: str


Proof = Literal["none", "header", "query", "token", "signature", "github", "slack"]
"""How a sender shows who it is: a token in a header, in the query, or in either; a signature of the body, as Standard
Webhooks, GitHub or Slack make it."""


class Entrance(Struct, frozen=True):
    """Where a trigger takes requests in. Its address ends with the ``trigger`` or, if it has one, with its ``path``.

    ``answer`` is the form in which the sender is answered.
    """

    trigger: str
    proof: Proof
    path: str = ""
    methods: tuple[str, ...] = ("POST",)
    answer: Literal["json", "text", "html"] = "json"
