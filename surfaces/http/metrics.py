"""Metrics in the format of Prometheus: of all runs of the tenant, of the store and of the queues.

The metrics of runs are those of the metrics projection, which starts to count with the first request, so it costs
nothing if it is not used. Scrape only one such process, or runs are counted twice.
"""

import datetime as dt
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream_api import api
from callboard.features.telemetry.metrics_exporter import MetricsExporter
from callboard.features.telemetry.prometheus import MEDIA_TYPE, MetricFamily, Sample, exposition, families_of
from callboard.projections.lists.questions import Question
from callboard.runtime.client.connection import Connection
from callboard.runtime.cluster.leader import persistently
from callboard.service.operations.operation import ApiError
from callboard.service.operations.run_lists import Listings
from callboard.surfaces.http.access import check
from callboard.surfaces.http.answers import HEADERS, refusal
from callboard.surfaces.http.readiness import unavailable
from callboard.surfaces.http.workers import OneWorker, Queue, Workers, queue_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader


class Metrics:
    """Answers ``/metrics``; its tasks run in the given task group."""

    def __init__(self, connection: Connection, listings: Listings, tasks: anyio.abc.TaskGroup) -> None:
        self._log = connection.log
        self._tenant = connection.config.tenant
        self._listings = listings
        self._workers = Workers(connection.log)
        self._tasks = tasks
        self._reader: InMemoryMetricReader | None = None
        self._counting = False

    async def serve(self, request: Request) -> Response:
        """Answer with the current metrics."""
        try:
            check(request.state.subject, "read")
            families = await self._families()
        except ApiError as error:
            return refusal(error)
        except NoAnswer as error:
            return refusal(unavailable(f"the log does not answer: {error}"))
        return Response(exposition(families), 200, HEADERS, MEDIA_TYPE)

    async def _families(self) -> Iterable[MetricFamily]:
        if not self._counting:
            self._counting = True
            exporter = MetricsExporter(self._log, self._provider, self._tenant, self._listings.prices)
            self._tasks.start_soon(persistently, "metrics", partial(exporter.run, False))
        reader = self._reader
        counted = families_of(await to_thread.run_sync(reader.get_metrics_data)) if reader is not None else []
        runs = await self._listings.counts(self._tenant)
        standing = [Sample(count, {"status": status}) for status, count in sorted(runs.items())]
        return [
            *counted,
            MetricFamily("callboard_runs_standing", "gauge", "Number of listed runs, by status.", standing),
            *_of_questions(await self._listings.questions(self._tenant)),
            *_of_queue(await queue_of(self._log)),
            *_of_workers(await self._workers.live()),
            *_of_store(await self._request_info(f"STREAM.INFO.{self._log.stream}"), await self._request_info("INFO")),
        ]

    def _provider(self) -> "MeterProvider":
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        self._reader = reader
        return provider

    async def _request_info(self, verb: str) -> dict[str, Any]:
        answer = await api(self._log.requests, verb, {})
        if "error" in answer:
            raise NoAnswer(str(answer["error"].get("description")))
        return answer


def _of_questions(questions: list[Question]) -> Iterable[MetricFamily]:
    now = dt.datetime.now(dt.UTC)
    oldest_s = max(((now - one.since).total_seconds() for one in questions), default=0.0)
    late = sum(one.until is not None and one.until < now for one in questions)
    yield _gauge("callboard_questions_open", "Questions that wait for an answer.", len(questions))
    yield _gauge("callboard_questions_oldest_seconds", "How long the oldest open question has waited.", oldest_s)
    yield _gauge("callboard_questions_late", "Open questions whose time is over.", late)


def _of_queue(queue: Queue) -> Iterable[MetricFamily]:
    samples = [Sample(queue.starts, {"queue": "admission"}), Sample(queue.commands, {"queue": "commands"})]
    yield MetricFamily("callboard_queue_waiting", "gauge", "Messages that no worker has received yet.", samples)
    yield _gauge("callboard_queue_held", "Commands that workers have received but not yet finished.", queue.held)


def _of_workers(workers: list[OneWorker]) -> Iterable[MetricFamily]:
    yield _gauge("callboard_workers", "Live workers.", len(workers))
    shares = [one.load.store for one in workers if one.load is not None and one.load.store is not None]
    if shares:
        yield _gauge("callboard_store_share", "Used share of the store; 1 is full.", max(shares))


def _of_store(stream: dict[str, Any], account: dict[str, Any]) -> Iterable[MetricFamily]:
    state = stream["state"]
    yield _gauge("callboard_stream_bytes", "Bytes in the stream.", state["bytes"])
    yield _gauge("callboard_stream_messages", "Messages in the stream.", state["messages"])
    yield _gauge("callboard_store_bytes", "Bytes that the account has stored.", account.get("storage", 0))
    most = account.get("limits", {}).get("max_storage", -1)
    if most > 0:
        yield _gauge("callboard_store_bytes_max", "Bytes that the account may store.", most)


def _gauge(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", help, [Sample(value)])
