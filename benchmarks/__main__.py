"""Run every benchmark, or those named: ``python -m benchmarks [appends|replays|footprint|store|expressions …]``."""

import sys

from benchmarks import appends, expressions, footprint, replays, store
from benchmarks.house import quiet
from callboard.runtime import loop


def main(names: list[str]) -> None:
    quiet()
    wanted = names or ["appends", "replays", "footprint", "store", "expressions"]
    if "appends" in wanted:
        loop.run(appends.report)
    if "replays" in wanted:
        loop.run(replays.report)
    if "footprint" in wanted:
        footprint.report()
    if "store" in wanted:
        loop.run(store.report)
    if "expressions" in wanted:
        expressions.report()


if __name__ == "__main__":
    main(sys.argv[1:])
