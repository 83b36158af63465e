"""Triggers: requests from outside, and the starts that a definition makes of them."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from callboard.lib.json_types import JSON


class Received(Struct, frozen=True):
    """A request that was received, or a mail as its ``body``.

    Names of ``headers`` are in lower case. ``body`` is the JSON value if it was one, otherwise the text.
    """

    at: dt.datetime
    body: JSON = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    method: str = "POST"
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    client_ip: str = ""


class Begun(Struct, frozen=True):
    """The start that a trigger makes of a request: the run's input, and options of its language.

    ``id`` is the sender's id of the request, or empty. Two requests with the same id start one run.
    """

    trigger: str
    input: dict[str, Any]
    options: dict[str, Any]
    id: str = ""


class PassedOver(Struct, frozen=True):
    """A trigger does not start a run for a request; ``why`` is the reason."""

    trigger: str
    why: str


Proof = Literal["none", "header", "query", "token", "signature", "github", "slack"]
"""How a sender proves its identity: by a token in a header, in the query, or in either; by a signature of the body in
the form of Standard Webhooks, GitHub or Slack."""


class Entrance(Struct, frozen=True):
    """An address at which a trigger receives requests. It ends with ``path``, or with the ``trigger`` if that is empty.

    ``answer`` is the format of the response.
    """

    trigger: str
    proof: Proof
    path: str = ""
    methods: tuple[str, ...] = ("POST",)
    answer: Literal["json", "text", "html"] = "json"
