"""The variables that no definition gets: those of the runtime, and those of the providers of models."""

from callboard.actors.lending.variables import RESERVED
from callboard.actors.models.catalog import PROVIDERS


def reserved_patterns() -> tuple[str, ...]:
    """Return the patterns of their names."""
    return (*RESERVED, *sorted({one for entry in PROVIDERS.values() for one in (*entry.keys, *entry.variables)}))
