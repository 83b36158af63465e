"""The times of the last whole run of the tests: ``python -m tests.maintenance.seconds [--write]``.

It fails if a folder exceeds its budget in `tests/README.md` by half, and is silent if there was no whole run. With
``--write`` it lists the longest tests anew in `tests/longest.txt`, by which they start first.
"""

import json
import sys

from tests.support.lanes import LONGEST
from tests.support.places import ROOT
from tests.support.seconds import KEPT, exceeded, read_budgets, sum_up

LONG_S = 1.0


def main() -> None:
    """Compare, and write if asked to."""
    kept = ROOT / ".pytest_cache" / "v" / KEPT
    if not kept.exists():
        return
    seconds: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
    if "--write" in sys.argv[1:]:
        longest = sorted((took, nodeid) for nodeid, took in seconds.items() if took >= LONG_S)[::-1]
        lines = ["# Seconds and test, written by `python -m tests.maintenance.seconds --write`"]
        LONGEST.write_text(
            "\n".join([*lines, *(f"{took:.1f} {nodeid}" for took, nodeid in longest), ""]), encoding="utf-8"
        )
    budgets = read_budgets()
    if sentences := exceeded(sum_up(seconds, budgets), budgets):
        sys.exit("\n".join(sentences))


if __name__ == "__main__":
    main()
