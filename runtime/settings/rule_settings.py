"""Types shared by the tables of rules in the configuration: names, durations and queries about runs."""

import datetime as dt
import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler

from callboard.lib.durations import DURATION, seconds_of
from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import Where, WhereInvalid, where

RULES_MAX = 64
"""Maximum number of rules in a table."""

_RULE_NAME = r"^[a-z][a-z0-9_-]{0,39}$"


def _check_form(pattern: str, what: str, example: str) -> BeforeValidator:
    """Return a validator that describes the form of a text, where pydantic would only show the pattern."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and re.search(pattern, value) is None:
            raise ValueError(f"{value!r} is not {what}, {example}")
        return value

    return BeforeValidator(check)


RuleName = Annotated[
    str,
    Field(pattern=_RULE_NAME),
    _check_form(
        _RULE_NAME, "the name of a rule", "which has lower-case letters, digits, _ and -, and at most 40 of them"
    ),
]
DURATION_MAX_S = 100 * 366 * 86_400.0
"""Longest duration of a rule; times that far away cannot always be computed."""


def _check_length(duration: str) -> str:
    if seconds_of(duration) > DURATION_MAX_S:
        raise ValueError(f"{duration} is longer than 100 years")
    return duration


Duration = Annotated[
    str,
    Field(pattern=DURATION),
    _check_form(DURATION, "a duration", "such as 90s, 12h or 30d"),
    AfterValidator(_check_length),
]


def checked_address(address: str) -> str:
    """Return an address with http or https.

    :raises ValueError: if it has no host, or an invalid port; the message does not repeat the address
    """
    try:
        found = urlsplit(address)
        valid = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("is not an address, such as https://example.com/path")
    return address


def question(text: str) -> Where:
    """Parse a query about runs, with the current time for relative ones.

    :raises WhereInvalid: if it is invalid
    """
    return where(text, STATUSES, dt.datetime.now(dt.UTC))


def _understood(text: str) -> str:
    try:
        question(text)
    except WhereInvalid as error:
        raise ValueError(f"{error.message}, at {error.where}") from None
    return text


Question = Annotated[str, AfterValidator(_understood)]


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class _Several(BeforeValidator):
    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler(core)
        return {"anyOf": [found["items"], found]}


Several = _Several(_several)
"""Accepts a single word for a list of one. Place it after the bounds of the list."""
