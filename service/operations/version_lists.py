"""Lists of the versions that have been registered under a name, newest first, with the number of runs of each."""

from collections.abc import Mapping, Sequence

from callboard.runtime.admission.versions import Version
from callboard.service.operations.requests import OneVersion


def list_versions(found: Sequence[Version], runs: Mapping[str, int]) -> list[OneVersion]:
    """Return the list of versions for an answer. ``found`` is oldest first, ``runs`` the number of runs by hash."""
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
