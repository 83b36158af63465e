"""The runner of SORT, and the order of values."""

from functools import cmp_to_key

from callboard.languages.graph.rules import NULLS_LAST
from callboard.languages.graph.work import NodeAttempt, Outputs, result
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import CHARS_PER_STEP


async def sort(work: NodeAttempt) -> Outputs:
    """SORT: sort items by a field, stably; items without a common order keep their places."""
    return await work.compute(_run_sort)


def _run_sort(work: NodeAttempt) -> Outputs:
    items = work.items()
    override = work.input_member("sort_override")
    wanted = override if isinstance(override, dict) else {}
    field = wanted.get("sort_field") or wanted.get("field") or work.setting("sort_field")
    order = wanted.get("order") or wanted.get("direction") or work.setting("order")
    keys = [work.value_in(item, field) if isinstance(field, str) and field else item for item in items]
    indices, comparisons = sort_positions(work, keys, descending=order == "desc")
    sortable = indices is not None
    if indices is None:
        indices = list(range(len(items)))
    stats = {
        "total_items": len(items),
        "items_sorted": len(items) if sortable else 0,
        "sort_time_ms": 0,
        "comparisons_made": comparisons,
    }
    return result({"sorted_data": [items[i] for i in indices], "sort_stats": stats, "original_indices": indices})


def sort_positions(work: NodeAttempt, keys: list[JSON], *, descending: bool) -> tuple[list[int] | None, int]:
    """Return the positions of keys in sorted order (None if the keys have no common order), and how many comparisons
    that took.

    Null keys come last in both directions.
    """
    last = [i for i, key in enumerate(keys) if key is None] if work.stage.info.rules >= NULLS_LAST else []
    present = [i for i, key in enumerate(keys) if key is not None] if last else list(range(len(keys)))
    numbers = all(isinstance(keys[i], int | float) for i in present)
    if not numbers and not all(isinstance(keys[i], str) for i in present):
        return None, 0
    comparisons, budget = 0, work.budget
    budget.take(len(keys))

    def compare(one: int, two: int) -> int:
        nonlocal comparisons
        comparisons += 1
        budget.take(1 if numbers else 1 + min(len(keys[one]), len(keys[two])) // CHARS_PER_STEP)
        return (keys[one] > keys[two]) - (keys[one] < keys[two])

    indices = sorted(present, key=cmp_to_key(compare), reverse=descending)
    return [*indices, *last], comparisons
