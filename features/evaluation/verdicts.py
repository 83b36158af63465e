"""Verdicts: whether a case that was performed again behaves as the record does, worse, or better."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from callboard.lib.json_types import JSON
from callboard.projections.comparison.behaviour import Change, RunBehaviour
from callboard.projections.comparison.json_differences import same

Verdict = Literal["identical", "equal", "noisy", "changed", "improved", "regressed", "performed", "skipped", "failed"]

WORST_FIRST: tuple[Verdict, ...] = (
    *("failed", "regressed", "changed", "noisy", "improved", "skipped", "performed", "equal", "identical"),
)


def verdict_of(
    before: RunBehaviour, after: RunBehaviour, changes: Sequence[Change], expected: JSON | UnsetType
) -> tuple[Verdict, list[Change]]:
    """Return the verdict about a case, and the changes that count.

    A change of behaviour is a regression, except: other words in a text of the answer, which is a change; an answer
    that is expected; and the success of a run that had failed.
    """
    found = list(changes)
    answer_is_right = expected is not UNSET and same(after.output, expected)
    was_right = expected is UNSET or same(before.output, expected)
    if answer_is_right:
        found = [one for one in found if one.kind not in ("output", "wording")]
    better = (before.status != "completed" and after.status == "completed") or (answer_is_right and not was_right)
    if better and before.status != "completed":
        # A run that had failed ended early, so the other one has more calls.
        return "improved", found
    verdict = verdict_of_changes(found)
    return ("improved" if better and verdict != "regressed" else verdict), found


def verdict_of_changes(changes: Sequence[Change]) -> Verdict:
    """Return the verdict that follows from changes alone."""
    if any(one.kind != "wording" for one in changes):
        return "regressed"
    return "changed" if changes else "equal"


def place_of(change: Change) -> tuple[str, ...]:
    """Return the kind and the places of a change, without its values: models answer otherwise at the same place."""
    return change.kind, change.where, *(place.pointer for place in change.places)
