"""Types shared by the tables of rules in the configuration: names, durations and queries about runs."""

import datetime as dt
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from callboard.lib.durations import DURATION
from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import Where, WhereInvalid, where

RULES_MAX = 64
"""Maximum number of rules in a table."""

RuleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
Duration = Annotated[str, Field(pattern=DURATION)]


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
    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler(core)
        return {"anyOf": [found["items"], found]}


Several = _Several(_several)
"""Accepts a single word for a list of one. Place it after the bounds of the list."""
