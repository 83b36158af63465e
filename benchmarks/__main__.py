"""Run every benchmark, or those named: ``python -m benchmarks [NAME …]``; each is a module in this folder."""

import sys

import anyio

from benchmarks import appends, expressions, find, footprint, hostile, http, parked, replays, store
from benchmarks.staffed import quiet


def main(names: list[str]) -> None:
    quiet()
    wanted = names or ["appends", "replays", "footprint", "parked", "store", "expressions", "hostile", "find", "http"]
    if "appends" in wanted:
        anyio.run(appends.report)
    if "replays" in wanted:
        anyio.run(replays.report)
    if "footprint" in wanted:
        footprint.report()
    if "parked" in wanted:
        anyio.run(parked.report)
    if "store" in wanted:
        anyio.run(store.report)
    if "expressions" in wanted:
        expressions.report()
    if "find" in wanted:
        find.report()
    if "hostile" in wanted:
        anyio.run(hostile.report)
    if "http" in wanted:
        anyio.run(http.report)


if __name__ == "__main__":
    main(sys.argv[1:])
