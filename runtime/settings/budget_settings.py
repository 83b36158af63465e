"""The settings of budgets: the table ``budgets`` of limits for all runs of a tenant or a definition together.

In the environment, ``CALLBOARD_BUDGETS`` is the same table in JSON.
"""

from typing import Any

import msgspec
from pydantic import TypeAdapter

from callboard.features.budgets.allowances import Allowance
from callboard.runtime.settings.tables import DEFERRED, Reading, Table

_SHAPE = TypeAdapter(dict[str, dict[str, Any]], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, dict[str, Any]] | None:
    """Return the table as it was given; None if it is invalid."""
    table = reading.validate(_SHAPE, given)
    for name, one in (table or {}).items():
        try:
            msgspec.convert(one, Allowance, strict=False)
        except msgspec.ValidationError as error:
            reading.wrong(str(error), name)
    return None if reading.problems else table


BUDGETS = Table(
    "a table by `tenant` or `tenant/definition`, each with `tokens`, `usd` or `turns`, optionally `per` (hour, day, "
    "month) and `then` (refuse, pause)",
    _read,
)
