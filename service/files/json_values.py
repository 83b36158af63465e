"""Parses JSON values that are given on the command line."""

from typing import Any

from callboard.lib.json_decoder import NestsTooDeep, decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.start_message import NESTING_MAX, nests_too_deep


class NotJson(Exception):
    """A text is not JSON. The message is a predicate, such as "is not JSON: …", to follow the name of the text."""


class JsonTooDeep(NotJson):
    """A text is JSON with too many levels."""

    def __init__(self) -> None:
        super().__init__(f"is nested too deeply; expected at most {NESTING_MAX} levels")


def json_of(text: str) -> Any:
    """Parse a JSON value.

    :raises NotJson: if the text is not JSON
    :raises JsonTooDeep: if it has too many levels
    """
    try:
        value = decode_json(text)
    except NestsTooDeep as error:
        raise JsonTooDeep from error
    except JSON_ERRORS as error:
        raise NotJson(f"is not JSON: {error}") from error
    if nests_too_deep(value):
        raise JsonTooDeep
    return value
