"""The language of experiments: a dataset's cases, each replayed or performed again with other definitions or models.

People do not write experiments: `callboard eval` makes them.
"""

from typing import Any

from callboard.languages.kit import Kit, find_fields

FIELDS = ("dataset", "cases", "candidates")


def _recognises(fields: dict[str, Any] | None, source: str) -> bool:
    return set(FIELDS) <= find_fields(fields, source, FIELDS)


KIT = Kit(
    "experiment",
    f"{__name__}.language",
    _recognises,
    "JSON with dataset, cases, candidates",
    fields=FIELDS,
    written=False,
)
