"""The settings of prices: the table ``prices`` of models' prices that override the shipped list.

In the environment, ``CALLBOARD_PRICES`` is the same table in JSON.
"""

from typing import Any

from pydantic import TypeAdapter

from callboard.bus.prices import read_prices
from callboard.runtime.settings.tables import DEFERRED, Reading, Table

_SHAPE = TypeAdapter(dict[str, Any], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, Any] | None:
    """Return the table as it was given; None if it is invalid."""
    table = reading.validate(_SHAPE, given)
    for place, why in read_prices(table or {})[1].items():
        reading.wrong(why, place)
    return None if reading.problems else table


PRICES = Table(
    "a table by model: a number of US dollars per million tokens, or `input`, `output` and optionally `cache_read`, "
    "`cache_write`, `since` (a date), `over` (tokens of input); or several of these in a list",
    _read,
)
