"""What a worker reports about itself: its metrics and its readiness.

The metrics are its load, the lag of its event loop and the duration of appends. The readiness says whether the worker
can take runs now, for programs that start and stop workers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic

import anyio

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.telemetry.prometheus import Histogram, Kind, MetricFamily, Sample
from callboard.runtime.client.connection import Connection
from callboard.runtime.worker.worker import Worker

LOOK_S = 0.25
"""How often the lag of the loop is measured."""

LAG_BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
APPEND_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Figures:
    """The metrics of one worker on one log."""

    def __init__(
        self, worker: Worker, log: JetStreamLog, notices: Callable[[], Counter[tuple[str, str]]] = Counter
    ) -> None:
        self._worker = worker
        self._notices = notices
        self._lag = Histogram("callboard_worker_loop_lag_seconds", "Lag of the event loop.", LAG_BOUNDS_S)
        self._appends = Histogram(
            "callboard_worker_append_seconds", "Time from an append to its acknowledgement.", APPEND_BOUNDS_S
        )
        log.appended = self._appends.observe

    async def run(self) -> None:
        """Measure the lag of the loop until cancelled."""
        while True:
            due = monotonic() + LOOK_S
            await anyio.sleep(LOOK_S)
            self._lag.observe(max(0.0, monotonic() - due))

    def families(self) -> Iterator[MetricFamily]:
        """Return the current metrics."""
        load, counts = self._worker.load(), self._worker.counts
        figures: list[tuple[str, Kind, str, float]] = [
            ("runs", "gauge", "Runs at this worker.", load.runs),
            ("runs_max", "gauge", "Maximum number of active runs.", load.runs_max),
            ("effects", "gauge", "Effects that it is carrying out.", load.effects),
            ("effects_max", "gauge", "Maximum number of concurrent effects.", load.effects_max),
            ("partitions", "gauge", "Partitions that it reads.", len(self._worker.partitions)),
            ("replays_total", "counter", "Runs that it continued after a replay.", counts.replays),
            (
                "divergences_total",
                "counter",
                "Replays that diverged from the recorded events.",
                counts.divergences,
            ),
        ]
        for name, kind, help, value in figures:
            yield MetricFamily(f"callboard_worker_{name}", kind, help, [Sample(value)])
        if load.store is not None:
            yield MetricFamily(
                "callboard_worker_store_share", "gauge", "How full the store is, 1 is full.", [Sample(load.store)]
            )
        notices = [
            Sample(count, {"rule": rule, "outcome": outcome})
            for (rule, outcome), count in sorted(self._notices().items())
        ]
        yield MetricFamily("callboard_worker_notices_total", "counter", "Notices, by rule and outcome.", notices)
        yield self._lag.family()
        yield self._appends.family()


def unready(worker: Worker, connection: Connection) -> str:
    """Return why a worker takes no runs; empty if it does."""
    if not connection.nc.is_connected:
        return "there is no connection to the NATS server"
    if not worker.ready.is_set():
        return "the worker has not joined the other workers yet"
    if worker.draining:
        return "the worker is draining"
    if (full := connection.log.room.closed or connection.log.room.full) is not None:
        return f"the store accepts no messages: {full.reason}"
    return ""
