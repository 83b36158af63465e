"""Run every benchmark, or those named: ``python -m benchmarks [appends|replays|footprint|store|expressions …]``."""

import sys

import anyio

from benchmarks import appends, expressions, footprint, replays, store
from benchmarks.house import quiet


def main(names: list[str]) -> None:
    quiet()
    wanted = names or ["appends", "replays", "footprint", "store", "expressions"]
    if "appends" in wanted:
        anyio.run(appends.report)
    if "replays" in wanted:
        anyio.run(replays.report)
    if "footprint" in wanted:
        footprint.report()
    if "store" in wanted:
        anyio.run(store.report)
    if "expressions" in wanted:
        expressions.report()


if __name__ == "__main__":
    main(sys.argv[1:])
