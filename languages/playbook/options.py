"""What a start may say about how a playbook runs."""

import math
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from callboard.bus.effects import ToolSource
from callboard.bus.model_parameters import NAMES, given_parameters
from callboard.languages.playbook.document import Part
from callboard.languages.playbook.durations import seconds_of
from callboard.languages.problems import kind_of
from callboard.lib.json_types import JSON

EXPIRES_AFTER_S = 24 * 60 * 60.0
"""How long a run waits for someone, if its start does not say."""

EXPIRES_AFTER_MAX_S = 100 * 365 * 24 * 60 * 60.0

MAX_TOKENS = 16_384
"""How long a model's answer may be, in tokens, if its start does not say."""

CALLER = "caller"
"""Instead of a tool source: whoever started the run, or anyone else, answers its calls."""


def complaint(message: str, expected: str) -> PydanticCustomError:
    """Make an error to raise in a validator; its problem has the code ``OPTION``."""
    return PydanticCustomError("OPTION", "{message}", {"message": message, "expected": expected})


def _seconds(value: Any) -> Any:
    expected = "a number of seconds above 0, or an ISO 8601 duration such as PT24H"
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise complaint(f"{value!r} is no duration", expected)
    if not 0 < seconds <= EXPIRES_AFTER_MAX_S:
        raise complaint(f"{value!r} is out of range", expected)
    return float(seconds)


def _source(value: JSON) -> JSON:
    if value == CALLER:
        return value
    try:
        msgspec.convert(value, ToolSource)
    except msgspec.ValidationError as error:
        expected = '"caller", or a tool source of type python, mcp, nats or scripted'
        found = f"{value!r} is none" if isinstance(value, str) else f"is {kind_of(value)}, and none: {error}"
        raise complaint(found, expected) from error
    return value


def _name_server(value: Any) -> Any:
    """An MCP server is named by its connection, unless it has a name."""
    if not isinstance(value, dict):
        return value
    return {
        name: {"name": name, **one} if isinstance(one, dict) and one.get("type") == "mcp" else one
        for name, one in value.items()
    }


def _response(value: JSON) -> JSON:
    if not isinstance(value, str | int | float | bool):
        raise complaint(f"is {kind_of(value)}", "a text")
    return value


Connection = Annotated[Any, AfterValidator(_source)]
Response = Annotated[Any, AfterValidator(_response)]


class Options(Part):
    """How a playbook runs.

    ``max_tokens``, ``temperature`` and the parameters after them hold for every turn of a model. ``elicit`` maps a
    step, by number or label, to the response to its question; ``prompts`` a prompt, as ``scheme:identifier``, to its
    text; ``connections`` a connection of ``@tool`` to who serves it.
    """

    autonomous: bool = False
    elicit: dict[str, Response] = Field(default_factory=dict[str, Any])
    expires_after: Annotated[float, BeforeValidator(_seconds)] = EXPIRES_AFTER_S
    max_tokens: Annotated[int, Field(ge=1)] = MAX_TOKENS
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    safety_settings: dict[str, str] | None = None
    prompts: dict[str, str] = Field(default_factory=dict[str, str])
    connections: Annotated[dict[str, Connection], BeforeValidator(_name_server)] = Field(default_factory=dict[str, Any])

    @property
    def parameters(self) -> dict[str, JSON]:
        """The parameters of the turns of models."""
        return given_parameters({name: getattr(self, name, None) for name in NAMES})

    def source(self, connection: str) -> ToolSource | Literal["caller"] | None:
        """Return who serves a connection; None if no one was named."""
        found = self.connections.get(connection)
        return found if found is None or found == CALLER else msgspec.convert(found, ToolSource)
