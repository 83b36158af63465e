"""Find: how long queries over many runs take, with an index of generated events."""

import datetime as dt
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Raw

from callboard.bus.events import (
    SCHEMA_VERSION,
    DefinitionRef,
    Event,
    Payload,
    RunAccepted,
    RunClaimed,
    RunEnd,
    RunStart,
    encode_payload,
)
from callboard.features.index.store import IndexedEvent, RunIndex
from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import where

RUNS = 100_000
TOGETHER = 500
SHOWN = 100
TRIES = 5
WORDS = [
    "account",
    "balance",
    "cancel",
    "customer",
    "delay",
    "error",
    "invoice",
    "late",
    "order",
    "parcel",
    "pool",
    "price",
    "queue",
    "refused",
    "timeout",
]
T0 = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)

QUESTIONS = (
    "status=failed and definition=triage and tag.customer=c7 and started>2h",
    "status=completed",
    "status=waiting",
    "text~'refused timeout'",
    "text~nothing",
    "error~pool or run~r-9999",
    "output~timeout and not status=completed and started<7d",
    "tag.customer!=c3 and tokens>1000000",
)

T = TypeVar("T")


def report() -> None:
    print(f"Find: questions about {RUNS:,} runs")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "index.sqlite")
        index = RunIndex(file, "stream", 2 * RUNS)
        _ms, taken_s = _took(lambda: _fill(index))
        print(f"  made in {taken_s:.1f} s, {file.stat().st_size / 1e6:.0f} MB")
        index.close()
        index, opened_s = _took(lambda: RunIndex(file, "stream", 2 * RUNS))
        print(f"  opened again in {opened_s * 1000:.0f} ms")
        now = T0 + dt.timedelta(seconds=10 * RUNS)
        for question in QUESTIONS:
            tree = where(question, STATUSES, now)
            page_s = min(_took(lambda tree=tree: index.select(tree, SHOWN))[1] for _ in range(TRIES))
            count, count_s = _took(lambda tree=tree: index.matching(tree))
            told = f"{page_s * 1000:>7.1f} ms, {count:>7,} counted in {count_s * 1000:>6.1f} ms"
            print(f"  {question:<72} {told}")
        index.close()


def _took(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    found = call()
    return found, time.perf_counter() - began


def _fill(index: RunIndex) -> None:
    dice = random.Random(7)
    batch: list[IndexedEvent] = []
    for sequence, event in enumerate((event for i in range(RUNS) for event in _events(i, dice)), 1):
        batch.append(IndexedEvent(sequence, event))
        if len(batch) == TOGETHER:
            index.take(batch, sequence)
            batch = []
    if batch:
        index.take(batch, batch[-1].sequence)


def _events(i: int, dice: random.Random) -> Iterator[Event]:
    started: dict[str, Any] = {"input": {"text": " ".join(dice.choices(WORDS, k=30)), "case": i}}
    ref = DefinitionRef("workflow", f"{i % 40:064x}", "{}")
    answer = {"answer": " ".join(dice.choices(WORDS, k=20))}
    payloads: list[Payload] = [
        RunAccepted(ref, started, tags={"customer": f"c{i % 500}"}),
        RunClaimed("w1", 1),
        RunStart("triage"),
    ]
    if i % 50:
        payloads.append(RunEnd("failed" if i % 7 == 0 else "completed", answer))
    for n, payload in enumerate(payloads, 1):
        yield Event(
            type=payload.type,
            run=f"r-{i}",
            n=n,
            epoch=1,
            v=SCHEMA_VERSION,
            time=T0 + dt.timedelta(seconds=10 * i, milliseconds=n),
            path="",
            definition="triage" if i % 3 else "greet",
            payload=Raw(encode_payload(payload)),
        )
