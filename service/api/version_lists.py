"""Version lists: what has been registered under a name, the newest first, with how many runs there are of each."""

from collections.abc import Mapping, Sequence

from callboard.runtime.admission.versions import Version
from callboard.service.api.bodies import OneVersion


def listed(found: Sequence[Version], runs: Mapping[str, int]) -> list[OneVersion]:
    """Return versions, which come the oldest first, as they are told; ``runs`` says how many runs there are by hash."""
    return [
        OneVersion(
            number=one.number,
            hash=one.kept.hash or "",
            language=one.kept.language or "",
            registered_at=one.registered_at,
            by=one.kept.by,
            restores=one.restores,
            in_force=one is found[-1] and not one.withdrawn,
            runs=runs.get(one.kept.hash or "", 0),
        )
        for one in reversed(found)
    ]
