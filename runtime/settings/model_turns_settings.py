"""The setting of turns: the table ``model_turns_max`` of the maximum number of concurrent turns by provider.

In the environment, ``CALLBOARD_MODEL_TURNS_MAX`` is the same table in JSON.
"""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from callboard.runtime.settings.tables import DEFERRED, Reading, Table

_SHAPE = TypeAdapter(dict[str, Annotated[int, Field(ge=1)]], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, int] | None:
    return reading.validate(_SHAPE, given)


MODEL_TURNS_MAX = Table("a table by provider or endpoint, each with a whole number from 1", _read)
