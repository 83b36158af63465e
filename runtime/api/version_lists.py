"""Version lists: what has been registered under a name, the newest first, with how many runs there are of each."""

from collections import Counter
from collections.abc import Sequence

from callboard.projections.runs import RunRow
from callboard.runtime.admission.versions import Version
from callboard.runtime.api.bodies import OneVersion


def listed(found: Sequence[Version], rows: Sequence[RunRow]) -> list[OneVersion]:
    """Return versions, which come the oldest first, as they are told; ``rows`` are all runs."""
    runs = Counter(row.definition_hash for row in rows)
    return [
        OneVersion(
            number=one.number,
            hash=one.kept.hash or "",
            language=one.kept.language or "",
            registered_at=one.registered_at,
            by=one.kept.by,
            restores=one.restores,
            in_force=one is found[-1] and not one.withdrawn,
            runs=runs[one.kept.hash or ""],
        )
        for one in reversed(found)
    ]
