"""The garbage collector of a process that stands: it looks at young objects less often, and never at the oldest.

A busy worker makes some hundred containers per event, and nearly all of them go by reference count; with Python's own
thresholds about a tenth of its time goes into looking for cycles among them.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

YOUNG_OBJECTS = 10_000
"""Containers that come about, more than went, before the young ones are looked at (Python's own default: 700)."""

OLDER_ROUNDS = (20, 50)
"""After so many looks at a generation the next older one is looked at too."""


@contextmanager
def settled_collector() -> Generator[None]:
    """Take what is there by now for permanent, and look less often, for the length of the block."""
    before = gc.get_threshold()
    # Without looking for garbage first, which takes longer than what little there is of it is worth.
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *OLDER_ROUNDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
