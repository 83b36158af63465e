"""The variables that definitions never get: those of the runtime and of the model providers."""

from callboard.actors.lending.variables import RESERVED
from callboard.actors.models.catalog import PROVIDERS


def reserved_patterns() -> tuple[str, ...]:
    """Return patterns of the names of reserved variables."""
    return (*RESERVED, *sorted({one for entry in PROVIDERS.values() for one in (*entry.keys, *entry.variables)}))
