"""Run every benchmark, or those named: ``python -m benchmarks [NAME …]``; each is a module in this folder."""

import argparse

import anyio

from benchmarks import (
    appends,
    counts,
    expressions,
    find,
    footprint,
    growth,
    hostile,
    http,
    parked,
    replays,
    starts,
    store,
)
from benchmarks.staffed import quiet


def main(names: list[str], sizes: tuple[int, ...], only: list[str], top: int, *, cold: bool) -> None:
    quiet()
    wanted = names or [
        "appends",
        "starts",
        "replays",
        "footprint",
        "parked",
        "store",
        "expressions",
        "hostile",
        "find",
        "http",
    ]
    if "appends" in wanted:
        anyio.run(appends.report)
    if "starts" in wanted:
        anyio.run(starts.report)
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
    if "growth" in wanted:
        if cold:
            for size in sizes:
                anyio.run(growth.report_cold, size)
        else:
            anyio.run(growth.report, sizes)
    if "counts" in wanted:
        anyio.run(counts.report, only, top)
    if "hostile" in wanted:
        anyio.run(hostile.report)
    if "http" in wanted:
        anyio.run(http.report)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="The benchmarks to run; default: those of `make bench`."
    )
    parser.add_argument(
        *("--runs", "-n"), type=int, action="append", help="A size of the store for `growth`; may be repeated."
    )
    parser.add_argument("--cold", action="store_true", help="For `growth`: all but the newest runs in cold storage.")
    parser.add_argument(
        "--only", action="append", choices=list(counts.WORKLOADS), help="A workload of `counts`; may be repeated."
    )
    parser.add_argument(
        "--top", type=int, default=0, metavar="N", help="For `counts`: list the N functions with the most calls."
    )
    given = parser.parse_args()
    main(given.names, tuple(given.runs or growth.RUNS), given.only or [], given.top, cold=given.cold)
