"""The options of a start: how a playbook runs."""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field

from callboard.bus.effects import ToolSource
from callboard.bus.model_names import PARAMETERS, given_parameters
from callboard.languages.playbook.document import PlaybookPart
from callboard.languages.problems import Complaint, kind_of
from callboard.lib.json_types import JSON

EXPIRES_AFTER_S = 24 * 60 * 60.0
"""How long a run waits for a person, in seconds, by default."""

EXPIRES_AFTER_MAX_S = 100 * 365 * 24 * 60 * 60.0

MAX_TOKENS = 16_384
"""The greatest length of a model's answer, in tokens, by default."""

CALLER = "caller"
"""Given instead of a tool source: callers answer the calls of the connection's tools by commands to the run."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_ISO = re.compile(
    r"P(?=[\dT])(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
"""An ISO 8601 duration in weeks, days, hours, minutes and seconds; months and years have no fixed length."""

_SECONDS = (7 * 86_400, 86_400, 3_600, 60, 1)
"""The length of each group of `_ISO`, in seconds."""


def seconds_of(written: str) -> float | None:
    """Return the length of an ISO 8601 duration in seconds; None if the text is not such a duration."""
    match = _ISO.fullmatch(written)
    if match is None:
        return None
    return sum(float(number) * unit for number, unit in zip(match.groups(), _SECONDS, strict=True) if number)


def _seconds(value: Any) -> Any:
    expected = "a number of seconds above 0, or an ISO 8601 duration such as PT24H"
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise Complaint("OPTION", f"{value!r} is not a duration", expected)
    if not 0 < seconds <= EXPIRES_AFTER_MAX_S:
        raise Complaint("OPTION", f"{value!r} is out of range", expected)
    return float(seconds)


def _source(value: JSON) -> JSON:
    if value == CALLER:
        return value
    try:
        msgspec.convert(value, ToolSource)
    except msgspec.ValidationError as error:
        expected = '"caller", or a tool source of type python, mcp, nats or scripted'
        found = f"invalid tool source {value!r}" if isinstance(value, str) else f"invalid tool source: {error}"
        raise Complaint("OPTION", found, expected) from error
    return value


def _name_server(value: Any) -> Any:
    """Name each MCP server without a name after its connection."""
    if not isinstance(value, dict):
        return value
    return {
        name: {"name": name, **one} if isinstance(one, dict) and one.get("type") == "mcp" else one
        for name, one in value.items()
    }


def _response(value: JSON) -> JSON:
    if not isinstance(value, str | int | float | bool):
        raise Complaint("OPTION", f"is {kind_of(value)}", "a text")
    return value


Connection = Annotated[Any, AfterValidator(_source)]
Response = Annotated[Any, AfterValidator(_response)]


class PlaybookOptions(PlaybookPart):
    """How a playbook runs.

    ``max_tokens``, ``temperature`` and the parameters after them apply to every turn of a model. ``elicit`` maps a
    step, by number or label, to the response to its question. ``prompts`` maps a prompt, as ``scheme:identifier``, to
    its text. ``connections`` maps a connection of ``@tool`` to the source of its tools.
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
        return given_parameters({name: getattr(self, name, None) for name in PARAMETERS})

    def source(self, connection: str) -> ToolSource | Literal["caller"] | None:
        """Return the tool source of a connection; None if the start names none."""
        found = self.connections.get(connection)
        return found if found is None or found == CALLER else msgspec.convert(found, ToolSource)


def borrowed_variables(connections: dict[str, JSON]) -> list[str]:
    """Return the names of the worker's environment variables that connections use, each once, sorted.

    A start refers to them by name, so the log never holds their values.
    """
    return sorted({name for source in connections.values() for name in _borrowed_by(source)})


def _borrowed_by(source: JSON) -> Iterator[str]:
    match source:
        case {"type": "python", "config": dict(config)}:
            yield from _references(config)
        case {"type": "mcp", **rest}:
            env, headers = rest.get("env"), rest.get("headers")
            yield from (name for name in (env.values() if isinstance(env, dict) else ()) if isinstance(name, str))
            yield from _references(headers if isinstance(headers, dict) else {})
        case _:
            pass


def _references(texts: dict[str, JSON]) -> Iterator[str]:
    for text in texts.values():
        if isinstance(text, str):
            yield from _REFERENCE.findall(text)
