"""The setting ``tools_allow_nats``: patterns of the NATS subjects on which runs may send requests.

It is a list of patterns for every tenant, or a table of lists by tenant, in which ``*`` applies to each tenant that the
table does not name. In the environment, the list is separated by commas and the table is JSON.
"""

from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field

from callboard.bus.outgoing_subjects import EVERYONE, is_pattern
from callboard.lib.json_errors import JSON_ERRORS


def _by_tenant(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = msgspec.json.decode(value)
        except JSON_ERRORS as error:
            raise ValueError(f"not a JSON object: {error}") from error
    if isinstance(value, dict):
        return {tenant: _words(patterns) for tenant, patterns in value.items()}
    return {EVERYONE: _words(value)}


def _words(value: Any) -> Any:
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def _pattern(value: str) -> str:
    if not is_pattern(value):
        raise ValueError(
            f"{value!r} is not a pattern of subjects: words joined by dots, * for one, a last > for the rest"
        )
    return value


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
AllowedSubjects = Annotated[dict[str, tuple[Pattern, ...]], BeforeValidator(_by_tenant)]
