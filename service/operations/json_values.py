"""Values that people give at the command line, as JSON."""

from typing import Any

from callboard.lib.json_decoder import NestsTooDeep, decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.start_message import NESTING_MAX, nests_too_deep


class NotJson(Exception):
    """A text is no JSON; the words say why, for a sentence about it."""


class TooDeep(NotJson):
    """A text is JSON that nests too deep."""

    def __init__(self) -> None:
        super().__init__(f"is nested too deep; expected at most {NESTING_MAX} levels")


def json_of(text: str) -> Any:
    """Read a value.

    :raises NotJson: if the text is none
    :raises TooDeep: if it nests too deep
    """
    try:
        value = decode_json(text)
    except NestsTooDeep as error:
        raise TooDeep from error
    except JSON_ERRORS as error:
        raise NotJson(f"is not JSON: {error}") from error
    if nests_too_deep(value):
        raise TooDeep
    return value
