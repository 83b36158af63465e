"""A worker whose function calls are counted: a child process of `benchmarks.counts`.

The first line of its standard input is an `Orders` in JSON. It answers each further line with a `Snapshot`, a line of
JSON, as soon as it performs no run, and ends with its input. The profiler of the standard library
counts: it is exact, and the code that is counted is unchanged.
"""

import asyncio
import gc
import os
import re
import sys
import sysconfig
import threading
from collections import defaultdict
from cProfile import Profile
from functools import cache
from pathlib import Path
from selectors import BaseSelector, SelectorKey
from types import CodeType

import anyio
import msgspec

from callboard.lib.quicker_way import QuickerWay
from callboard.runtime.client.connection import open_connection
from callboard.runtime.hosting.code_loader import load
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import load as load_config
from callboard.service.worker.bootstrap import open_worker

NAME = "callboard worker"
"""The name of the worker's connection."""

C = "C"
"""The package of functions that are written in C."""

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 1
"""The heartbeat of each partition would be counted with the steps."""

REST_LOOK_S = 0.02
EARLY_MAX = 1_000
"""After this many iterations without a pause the sockets are read, so that a busy loop hears them."""

_STDLIB = sysconfig.get_path("stdlib") + os.sep
_ADDRESS = re.compile(r" of type object at 0x[0-9a-f]+")
_SITE = "site-packages" + os.sep


class Orders(msgspec.Struct, frozen=True):
    """The server, the data directory, the file of Python workflows that the worker hosts, and whether calls count."""

    url: str
    data_dir: str
    code: str | None
    counts_calls: bool


class Function(msgspec.Struct, frozen=True):
    """A function and the place of its code; in a package of Callboard, a library, the standard library or `C`."""

    package: str
    name: str
    file: str = ""
    line: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """The counts since the worker started: calls by caller and callee, and the messages of its connection."""

    calls: list[tuple[Function | None, Function, int]]
    sent: int
    received: int


@cache
def function_of(code: CodeType | str) -> Function:
    """Return the function that an entry of the profiler is about."""
    if isinstance(code, str):
        return Function(
            C, _ADDRESS.sub("", code.strip("<>").removeprefix("built-in method ").removeprefix("builtins."))
        )
    file, line = code.co_filename, code.co_firstlineno
    if _SITE in file:
        file = file.rpartition(_SITE)[2]
        package = file.partition(os.sep)[0]
    elif file.startswith(str(ROOT)):
        # Packages are imported through the links in `callboard`.
        file = file.removeprefix(f"{ROOT}{os.sep}").removeprefix(f"callboard{os.sep}")
        package = file.partition(os.sep)[0]
    else:
        file = file.removeprefix(_STDLIB)
        package = "asyncio" if file.startswith("asyncio" + os.sep) else "stdlib"
    return Function(package, code.co_qualname, file, line)


def calls_of(profile: Profile) -> list[tuple[Function | None, Function, int]]:
    """Return the calls that a profiler has counted. Calls whose caller is unknown have None as the caller."""
    gc.disable()  # If a collection calls functions, the profiler returns entries twice, and others never.
    entries = profile.getstats()
    gc.enable()
    made, known = defaultdict[tuple[Function | None, Function], int](int), defaultdict[Function, int](int)
    for entry in entries:
        function = function_of(entry.code)
        made[None, function] += entry.callcount
        for callee in entry.calls or ():
            known[function_of(callee.code)] += callee.callcount
            made[function, function_of(callee.code)] += callee.callcount
    for function, count in known.items():
        made[None, function] -= count
    return [(caller, function, count) for (caller, function), count in made.items() if count]


def count_in_all_threads(profile: Profile) -> None:
    """Count from now on, in this thread and in those that start later."""
    profile.enable(subcalls=True, builtins=True)
    if sys.version_info < (3, 12):
        # From 3.12 on a profiler counts in all threads.
        threading.setprofile(lambda _frame, _event, _arg: profile.enable(subcalls=True, builtins=True))


def answer_late(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop read its sockets only when it has nothing else to do, as if each answer came late.

    Otherwise the number of iterations depends on how long the server takes. The selector reports again what it has
    reported too early.
    """
    selector: BaseSelector = vars(loop)["_selector"]
    select, early = selector.select, 0

    def select_late(timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        nonlocal early
        found = select(timeout)
        early = early + 1 if timeout == 0 else 0
        return found if timeout != 0 or early > EARLY_MAX else []

    vars(selector)["select"] = select_late


def use_fast_batches(self: QuickerWay) -> bool:
    return True


async def work(orders: Orders, profile: Profile) -> None:
    flags = {"data_dir": orders.data_dir, "allow_scripts": True, "partitions": PARTITIONS}
    config = load_config(flags, env={}).at(orders.url)
    config = config.model_copy(update={"group_commit": "on"})
    bundle = None if orders.code is None else load(orders.code)
    loop, stopped = asyncio.get_running_loop(), anyio.Event()
    async with open_connection(config, NAME) as connection, open_worker(connection, {}) as worker:
        # A worker measures which way of appending is cheap, so it depends on the load of the machine.
        await connection.log.choose_commit(group_commit=True, batches=True)
        QuickerWay.choose = use_fast_batches
        if bundle is not None:
            await register_bundle(connection, bundle)

        async def take_snapshot() -> bytes:
            while worker.active:  # noqa: ASYNC110 — to be woken would change the worker
                await anyio.sleep(REST_LOOK_S)
            sent, received = connection.nc.stats["out_msgs"], connection.nc.stats["in_msgs"]
            return msgspec.json.encode(Snapshot(calls_of(profile), sent, received))

        def answer() -> None:
            for _line in sys.stdin:
                os.write(1, asyncio.run_coroutine_threadsafe(take_snapshot(), loop).result() + b"\n")
            loop.call_soon_threadsafe(stopped.set)

        threading.Thread(target=answer, daemon=True).start()
        if orders.counts_calls:
            answer_late(loop)
        await stopped.wait()


def main() -> None:
    logs.configure("warning")
    orders, profile = msgspec.json.decode(sys.stdin.readline(), type=Orders), Profile()
    if orders.counts_calls:
        # Before the loop runs: Python 3.12.1 does not report all functions that are active already.
        count_in_all_threads(profile)
    anyio.run(work, orders, profile)


if __name__ == "__main__":
    main()
