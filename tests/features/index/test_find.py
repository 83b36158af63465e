"""The index of runs: it equals the rows, resumes after a restart, and is rebuilt when it is unusable."""

import datetime as dt
import json
import operator
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.bus.effects import Failure, ModelUsage, Usage
from callboard.bus.events import ForkedFrom, Parent, RunEnd, RunFailed, RunParked, RunStart
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.prices import Cost, list_prices
from callboard.bus.subjects import RunRef
from callboard.features.index import index_follower as following_module
from callboard.features.index import newest_runs, queries
from callboard.features.index import store as index_store
from callboard.features.index.files import Slot, is_kept, slot
from callboard.features.index.index_follower import IndexFollower
from callboard.features.index.newest_runs import NewestRuns, until_enough
from callboard.features.index.queries import Column, Order
from callboard.features.index.sql import condition
from callboard.features.index.store import IndexedEvent, RunIndex
from callboard.projections.lists.runs import STATUSES, RunFold, RunRow, Runs
from callboard.projections.lists.where import Both, Either, Not, Term, Where, where
from callboard.projections.projection import fold
from callboard.projections.run.run_texts import EventTexts
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import store
from callboard.service.operations.removal import purge_run
from callboard.service.operations.run_lists import Listings
from tests.support.event_logs import Log
from tests.support.workdir import Workdir
from tests.surfaces.nats.test_micro_service import PATIENCE_S, SOURCE, Caller
from tests.surfaces.nats.test_micro_service import caller as caller  # the fixtures
from tests.surfaces.nats.test_micro_service import connection as connection

NEVER_S = 3_600.0

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


PATHS = {"order": "input.q", "line": "input.lines", "sku": "input.lines.0", "sure": "output.sure", "sum": "output.sum"}


def run_log(number: int, input: Any = None, output: Any = None) -> Log:
    """The log of a run: every third one has failed, every fourth is parked, every second is of another definition."""
    log = Log(f"Run-{number}", "cake" if number % 2 else "bread")
    log.wait(36_000 * number)
    log.accepted(tags={"customer": f"c{number % 3}"} if number % 5 else {})
    payload = json.loads(bytes(log.events[0].payload))
    payload["start"] = {"input": input, "attributes": PATHS, "by": [None, "ada", "Grace"][number % 3]}
    log.events.clear()
    log.add_raw("run.accepted", json.dumps(payload).encode(), "", 0, 0, "")
    log.claimed(f"w{number % 2}")
    log.add(RunStart(log.definition, input))
    if number % 4 == 3:
        log.add(RunParked(["a#1.1!ask"], status="waiting:human"))
    elif number % 3 == 0:
        error = Failure("tool.failed", "Connection REFUSED by the café")
        log.add(RunFailed(error))
        log.add(RunEnd("failed", error=error))
    else:
        usage = Usage(number * 100, 3)
        log.add(RunEnd("completed", output, usage=usage, models=[ModelUsage("openai:gpt-5", usage)]))
    return log


def taken(logs: Sequence[Log]) -> list[IndexedEvent]:
    events = [event for log in logs for event in log.events]
    return [IndexedEvent(sequence, event) for sequence, event in enumerate(events, 1)]


def indexed(logs: Sequence[Log], path: Path | None = None, runs_max: int = 100) -> RunIndex:
    index = RunIndex(path, "stream", runs_max)
    events = taken(logs)
    index.take(events, events[-1].sequence)
    return index


def found(index: RunIndex, question: str, **more: Any) -> list[int]:
    rows = index.select(where(question, STATUSES, NOW), 100, **more)
    return [int(row.run.removeprefix("Run-")) for row in rows]


# -- queries --------------------------------------------------------------------------------------------------------

LOGS = [
    run_log(
        number,
        {"q": f"order {number}", "lines": [f"sku{number % 2}", f"SKU{number}", {"no": "value"}]},
        {"answer": ["all", "is well", number], "sum": 100 + number, "sure": number > 6},
    )
    for number in range(12)
]
ROWS = fold(Runs(), [event for log in LOGS for event in log.events])

COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def holds(test: Where, row: RunRow) -> bool:
    """Evaluate a query for a row without SQL."""
    match test:
        case Not(inner):
            return not holds(inner, row)
        case Both(parts):
            return all(holds(part, row) for part in parts)
        case Either(parts):
            return any(holds(part, row) for part in parts)
        case Term("status", op, str(value)):
            return (row.status == value or row.status.startswith(f"{value}:")) == (op == "=")
        case Term("attr", op, value):
            have = row.attributes.get(test.name, [])
            values = have if isinstance(have, list) else [have]
            return any(is_value(one, op.removeprefix("!"), value) for one in values) != op.startswith("!")
        case Term(field, op, value):
            times = {"accepted": row.accepted_at, "started": row.started_at, "ended": row.ended_at}
            said: dict[str, Any] = {
                **{name: at.timestamp() if at is not None else None for name, at in times.items()},
                "duration": row.duration_s,
                "tag": row.tags.get(test.name),
            }
            said["cost"] = row.cost.usd if row.cost is not None else None
            have = said[field] if field in said else getattr(row, field)
            if op in ("~", "!~"):
                return (str(value).casefold() in (have or "").casefold()) == (op == "~")
            if op in ("=", "!="):
                return COMPARED[op](have, value)
            return have is not None and COMPARED[op](have, value)


def is_value(have: Any, op: str, value: Any) -> bool:
    """Whether a value of an attribute matches."""
    number = isinstance(have, int | float) and not isinstance(have, bool)
    text = have if isinstance(have, str) else json.dumps(have)
    if op == "~":
        return value.casefold() in text.casefold()
    if op == "=":
        return text == value or (number and value.replace(".", "").isdecimal() and have == float(value))
    return number and COMPARED[op](have, value)


def questions() -> st.SearchStrategy[str]:
    tests = st.sampled_from(
        [
            *("status=failed", "status!=completed", "status=waiting", "status=waiting:human", "status=running"),
            *("definition=cake", "definition!=cake", "definition~REA", "tag.customer=c1", "tag.customer!=c1"),
            *("tag.customer~C", "tag.none=x", "tag.none!=x", "error=tool.failed", "error!=tool.failed", "error~TOOL"),
            *("error!~tool", "tokens>400", "tokens<=400", "duration>=0s", "duration<150ms", "worker=w1", "claims=1"),
            *("accepted>2026-11-20T15:00", "started<2026-11-20T13:00", "ended>2026-11-20T14:30", "started>66h"),
            *("attr.order='order 4'", "attr.order!='order 4'", "attr.line=sku1", "attr.line~sKU1", "attr.line!~sku1"),
            *("attr.sku=sku0", "attr.sure=true", "attr.sure!=true", "attr.sum=102", "attr.sum=102.0", "attr.sum>101.5"),
            *("attr.sum<=104", "attr.sum!=102", "attr.order>1", "attr.none=x", "attr.none!=x", "attr.sum~10"),
            *("by=ada", "by!=ada", "by~gra", "by!~gra"),
            *("cost<0.5", "cost>=0.0012", "parent=Run-1"),
            *("run=Run-3", "run~run-1", "language=workflow", "language=flow"),
        ]
    )
    return st.recursive(
        tests,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda one: f"not {one}"),
        ),
        max_leaves=5,
    )


@pytest.fixture(scope="module")
def index() -> Iterator[RunIndex]:
    built = indexed(LOGS)
    yield built
    built.close()


@given(question=questions())
@settings(max_examples=150)
def test_every_query_finds_the_matching_rows(index: RunIndex, question: str) -> None:
    tree = where(question, STATUSES, NOW)
    expected = [row for row in ROWS if holds(tree, row)]
    assert index.select(tree, 100) == expected
    assert index.matching(tree) == len(expected)
    assert index.ids(tree) == [row.run for row in reversed(expected)]


def test_texts_are_found_by_their_words(index: RunIndex) -> None:
    failed = [9, 6, 0]
    assert found(index, "text~'connection refused'") == failed
    assert found(index, "text~'refused CONNECTION cafe'") == failed
    assert found(index, "text~connect") == []
    assert found(index, "text~connect*") == failed
    assert found(index, "input~'order 7'") == [7]
    assert found(index, "output~'order'") == []
    assert found(index, "output~'is well' and not output~8") == [10, 5, 4, 2, 1]
    assert found(index, "text~'\"* OR NEAR('") == [], "a search term is not a query of SQLite"


def test_a_page_begins_after_the_given_run(index: RunIndex) -> None:
    assert found(index, "", before="Run-3") == [2, 1, 0]
    assert [row.run for row in index.select(Both(()), 2)] == ["Run-11", "Run-10"]
    with pytest.raises(KeyError):
        index.select(Both(()), 2, "nix")


COMPARED_BY: dict[Column, Callable[[RunRow], Any]] = {
    "run": lambda row: row.run,
    "definition": lambda row: row.definition,
    "status": lambda row: row.status,
    "duration": lambda row: -1 if row.duration_s is None else row.duration_s,
    "tokens": lambda row: row.tokens,
    "cost": lambda row: row.cost.usd if row.cost is not None else -1,
    "error": lambda row: row.error or "",
    "ended": lambda row: row.ended_at.timestamp() if row.ended_at is not None else -1,
}


@pytest.mark.parametrize("column", get_args(Column))
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(("width", "few"), [(1, 0), (1, 100), (1_000, 0)])
@pytest.mark.parametrize("question", ["", "status!=failed and not error~none"])
def test_runs_are_sorted_by_a_column_page_by_page(
    index: RunIndex,
    column: Column,
    descending: bool,
    width: int,
    few: int,
    question: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of long lists, parts are searched one after the other.
    monkeypatch.setattr(queries, "WIDTHS", (width, 3 * width))
    monkeypatch.setattr(queries, "REST_MAX", 2 * width)
    monkeypatch.setattr(queries, "FEW_MAX", few)
    tree = where(question, STATUSES, NOW)
    rows = [row for row in ROWS if not question or row.status != "failed"]
    # `reverse` keeps equal rows in their order, which is newest first.
    expected = sorted(rows, key=COMPARED_BY[column], reverse=descending)
    pages: list[RunRow] = []
    while page := index.select(tree, 2, pages[-1].run if pages else None, Order(column, descending)):
        pages += page
    assert [row.run for row in pages] == [row.run for row in expected]


def test_the_oldest_runs_are_first_if_asked(index: RunIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, few in ((1, 0), (1, 100), (1_000, 0)):
        monkeypatch.setattr(queries, "WIDTHS", (width, 3 * width))
        monkeypatch.setattr(queries, "FEW_MAX", few)
        oldest = index.select(Both(()), 3, "Run-1", Order(None, descending=False))
        assert [row.run for row in oldest] == ["Run-2", "Run-3", "Run-4"]


def test_the_values_that_runs_have_are_listed_the_most_frequent_first(index: RunIndex) -> None:
    assert [(one.value, one.runs) for one in index.values("definition", 10)] == [("bread", 6), ("cake", 6)]
    tagged = [row.tags["customer"] for row in ROWS if row.tags]
    assert {one.value: one.runs for one in index.values("tag", 10)} == {
        f"customer={name}": tagged.count(name) for name in set(tagged)
    }
    assert len(index.values("tag", 1)) == 1
    assert {one.value for one in index.values("by", 10)} == {"ada", "Grace"}
    assert [one.value for one in index.values("error", 10)] == ["tool.failed"]
    assert [one.value for one in index.values("language", 10)] == list({row.language for row in ROWS})


def test_a_search_term_is_looked_for_in_names_and_texts(index: RunIndex) -> None:
    def typed(text: str) -> list[str]:
        return [row.run for row in index.select(Term("any", "~", text), 100)]

    assert typed("run-1") == ["Run-11", "Run-10", "Run-1"]
    assert typed("tool.f") == ["Run-9", "Run-6", "Run-0"]
    assert typed("café connection") == ["Run-9", "Run-6", "Run-0"]
    assert typed("-") == [row.run for row in ROWS]


# -- growth ------------------------------------------------------------------------------------------------------------


def test_an_index_built_event_by_event_equals_the_rows(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "i.sqlite", "stream", 100)
    for one in taken(LOGS):
        index.take([one], one.sequence)
        index.take([one], one.sequence)
    assert index.rows() == ROWS
    assert index.counts() == {"completed": 6, "failed": 3, "waiting:human": 3}
    assert index.versions() == {"ab" * 32: len(LOGS)}


def test_only_the_newest_runs_are_kept_and_a_restarted_run_is_the_newest() -> None:
    index = indexed([*LOGS[:6], LOGS[2]], runs_max=4)
    assert [row.run for row in index.rows()] == ["Run-2", "Run-5", "Run-4", "Run-3"]
    assert index.count == 4
    assert found(index, "text~'order 1'") == []
    assert found(index, "tag.customer=c2") == [2]


def test_a_live_status_is_replaced_by_the_next_event() -> None:
    log = Log("Run-1").started()
    index = indexed([log])
    assert index.at_work() == ["Run-1"]
    index.tell({"Run-1": "waiting:tool"})
    assert found(index, "status=waiting") == [1]
    assert found(index, "status=running") == []
    last = len(log.events)
    index.take([IndexedEvent(last + 1, log.ended().events[-1])], last + 1)
    assert found(index, "status=waiting") == []
    index.tell({"Run-1": "running"})
    assert found(index, "status=completed and not status=running") == [1]


# -- files and restarts -----------------------------------------------------------------------------------------------


def test_an_index_file_is_reused_only_for_its_stream_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "i.sqlite"
    built = indexed(LOGS, file)
    sequence = built.sequence
    built.close()
    again = RunIndex(file, "stream", 100)
    assert (again.sequence, again.count, again.rows()) == (sequence, len(LOGS), ROWS)
    again.close()
    other = RunIndex(file, "another stream", 100)
    assert (other.sequence, other.count) == (0, 0)
    other.close()
    indexed(LOGS, file).close()
    monkeypatch.setattr(index_store, "VERSION", index_store.VERSION + 1)
    newer = RunIndex(file, "stream", 100)
    assert (newer.sequence, newer.count) == (0, 0)
    newer.close()
    file.write_bytes(b"no database at all" * 100)
    damaged = RunIndex(file, "stream", 100)
    assert damaged.sequence == 0
    damaged.close()


def test_a_changed_index_schema_needs_a_new_version() -> None:
    """A change of a row or a table needs a new version, with which indexes are rebuilt."""
    held = repr((RunFold.__struct_fields__, RunRow.__struct_fields__, EventTexts.__struct_fields__, index_store.SCHEMA))
    assert (index_store.VERSION, sha256(held.encode()).hexdigest()[:12]) == (16, "7d44e866b843")


def test_forks_of_a_run_are_found() -> None:
    log = Log("Run-2")
    log.accepted(forked_from=ForkedFrom(run="Run-1", n=3))
    index = indexed([*LOGS[:2], log])
    assert found(index, "origin=Run-1") == [2]
    assert found(index, "not origin~run") == [1, 0]


def test_a_batch_that_fails_is_not_written_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexed(LOGS[:3])

    def fails(_self: RunIndex, _changed: Any) -> None:
        raise sqlite3.OperationalError("disk full")

    before = index.sequence
    events = [IndexedEvent(before + one.sequence, one.event) for one in taken(LOGS[3:6])]
    with monkeypatch.context() as patched:
        patched.setattr(RunIndex, "_mark", fails)
        with pytest.raises(sqlite3.OperationalError):
            index.take(events, events[-1].sequence)
    assert (index.sequence, index.count, len(index.rows())) == (before, 3, 3)
    assert found(index, "text~order") == [2, 1, 0]
    index.take(events, events[-1].sequence)
    assert index.count == 6


def test_one_process_writes_an_index_file_and_readers_share_it(tmp_path: Path) -> None:
    def yes(_path: Path) -> bool:
        return True

    def no(_path: Path) -> bool:
        return False

    with (
        slot(tmp_path, "acme", no) as first,
        slot(tmp_path, "acme", no) as second,
        slot(tmp_path, "other", no) as third,
    ):
        assert len({first.path, second.path, third.path}) == 3
        assert first.keeps
        assert second.keeps
        with slot(tmp_path, "acme", yes) as shared:
            assert shared == Slot(first.path, keeps=False)
        assert first.path is not None
        assert is_kept(first.path)
    assert not is_kept(first.path)
    with slot(tmp_path, "acme", no) as again:
        assert again == first
    (tmp_path / "file").write_text("")
    with slot(tmp_path / "file", "acme", yes) as none:
        assert none == Slot(None, keeps=True)


@asynccontextmanager
async def standing(folder: Path) -> AsyncGenerator[Connection]:
    async with open_connection(load({"data_dir": str(folder), "sync": "1s"}, env={})) as connection:
        yield connection


@asynccontextmanager
async def standing_beside(connection: Connection) -> AsyncGenerator[Connection]:
    assert connection.server is not None
    async with open_connection(load({"nats_url": connection.server.url}, env={})) as other:
        yield other


@asynccontextmanager
async def following(connection: Connection, folder: Path | None) -> AsyncGenerator[IndexFollower]:
    async with anyio.create_task_group() as tasks:
        index = IndexFollower(connection.log, "acme", folder)
        tasks.start_soon(index.run)
        yield index
        tasks.cancel_scope.cancel()


async def runs_of(index: IndexFollower, question: str = "") -> list[str]:
    await index.caught_up()
    tree = where(question, STATUSES, NOW)
    return [row.run for row in await index.ask(lambda one: one.select(tree, 100))]


async def put(connection: Connection, *logs: Log) -> None:
    await store(connection.log, "acme", {log.run: log.events for log in logs})


async def test_a_restart_reads_only_what_is_new_and_a_purge_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:4])
        async with following(connection, folder) as first:
            assert await runs_of(first) == ["Run-3", "Run-2", "Run-1", "Run-0"]
            assert first.taken == sum(len(log.events) for log in LOGS[:4])
            await put(connection, LOGS[4])
            assert (await runs_of(first))[0] == "Run-4"
        async with following(connection, folder) as second:
            assert len(await runs_of(second)) == 5
            assert second.taken == 0
            await put(connection, LOGS[5])
            assert (await runs_of(second, "status=completed"))[0] == "Run-5"
            assert second.taken == len(LOGS[5].events)
        purge = {"filter": "cb.run.acme.Run-2.>"}
        assert "error" not in await api(connection.log.requests, f"STREAM.PURGE.{connection.log.stream}", purge)
        async with following(connection, folder) as third:
            assert await runs_of(third) == ["Run-5", "Run-4", "Run-3", "Run-1", "Run-0"]
            assert third.taken == sum(len(log.events) for number, log in enumerate(LOGS[:6]) if number != 2)


@pytest.mark.usefixtures("own_servers")
async def test_a_restored_store_is_indexed_again(tmp_path: Path) -> None:
    folder, nats, backup = tmp_path / "index", tmp_path / "nats", tmp_path / "backup"
    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:2])
        async with following(connection, folder) as index:
            assert await runs_of(index) == ["Run-1", "Run-0"]
    shutil.copytree(nats, backup, symlinks=True)
    async with standing(tmp_path) as connection, following(connection, folder) as index:
        await put(connection, LOGS[4])
        assert await runs_of(index) == ["Run-4", "Run-1", "Run-0"]
    shutil.rmtree(nats)
    backup.rename(nats)
    async with standing(tmp_path) as connection:
        await put(connection, LOGS[5])
        async with following(connection, folder) as index:
            assert await runs_of(index) == ["Run-5", "Run-1", "Run-0"]


async def test_the_index_of_another_store_is_not_used(tmp_path: Path) -> None:
    async with standing(tmp_path / "one") as one:
        await put(one, *LOGS[:2])
        async with following(one, tmp_path / "index") as index:
            assert len(await runs_of(index)) == 2
    async with standing(tmp_path / "other") as other, following(other, tmp_path / "index") as index:
        assert await runs_of(index) == []


async def test_a_text_stored_outside_its_event_is_found_within_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    take = RunIndex.take

    def noted(self: RunIndex, taken: Sequence[IndexedEvent], *more: Any) -> None:
        sizes.append(sum(len(one.event.payload) for one in taken))
        take(self, taken, *more)

    monkeypatch.setattr(RunIndex, "take", noted)
    monkeypatch.setattr(following_module, "TOGETHER_BYTES_MAX", INLINE_BYTES_MAX)
    log = run_log(
        1, {"short": "needle", "long": "x" * (INLINE_BYTES_MAX + 1)}, {"out": ["pin", "y" * INLINE_BYTES_MAX]}
    )
    async with standing(tmp_path) as connection:
        await put(connection, log)
        accepted, *_ = await connection.log.read(RunRef("acme", "Run-1"))
        assert accepted.event.blobs
        async with following(connection, None) as index:
            assert await runs_of(index, "input~needle and output~pin") == ["Run-1"]
    assert INLINE_BYTES_MAX < max(sizes) < 2 * INLINE_BYTES_MAX


async def test_an_idle_index_takes_few_messages_and_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It receives the events that change a row, once each, all that were stored in a while by one request."""
    taken, received = list[int](), 0
    take = RunIndex.take

    def noted(self: RunIndex, events: Sequence[IndexedEvent], *more: Any) -> None:
        taken.append(len(events))
        take(self, events, *more)

    monkeypatch.setattr(RunIndex, "take", noted)
    monkeypatch.setattr(following_module, "LATE_S", NEVER_S)
    logs = [run_log(number) for number in range(100)]
    for log in logs:
        end = log.events.pop()
        for visit in range(10):
            log.enter(f"node#{visit}")
        log.events.append(msgspec.structs.replace(end, n=end.n + 10))
    async with (
        standing(tmp_path) as writing,
        standing_beside(writing) as reading,
        anyio.create_task_group() as tasks,
    ):
        lists = Listings(reading.log, tasks)
        lists.begin("acme")
        assert await lists.rows("acme") == []
        received = reading.nc.stats["in_msgs"]
        await put(writing, *logs)
        assert len(await lists.rows("acme")) == 100
        received = reading.nc.stats["in_msgs"] - received
        assert await lists.questions("acme") == []
        assert (await api(reading.log.requests, f"CONSUMER.LIST.{reading.log.stream}", {}))["total"] == 1
        tasks.cancel_scope.cancel()
    changing = sum(one.type.startswith("run.") for log in logs for one in log.events)
    assert sum(taken) == changing
    # Besides, the answers to the query, and a heartbeat in each second.
    assert received < 1.1 * changing
    assert len(taken) <= 3


async def test_a_killed_process_leaves_an_index_that_lacks_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process leaves when it dies before, within and after a transaction: the files as they are then."""
    folder, left = tmp_path / "index", list[Path]()

    def leave() -> None:
        left.append(tmp_path / f"left-{len(left)}")
        shutil.copytree(folder, left[-1])

    def dying(step: Callable[..., None]) -> Callable[..., None]:
        def perform(*arguments: Any) -> None:
            step(*arguments)
            leave()

        return perform

    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:3])
        async with following(connection, folder) as index:
            await index.caught_up()
            for name in ("_take", "_put", "take"):
                monkeypatch.setattr(RunIndex, name, dying(getattr(RunIndex, name)))
            for log in LOGS[3:5]:
                await put(connection, log)
                await index.caught_up()
        monkeypatch.undo()
        assert len(left) > 8
        for one in left:
            async with following(connection, one) as index:
                assert await runs_of(index) == [f"Run-{number}" for number in range(4, -1, -1)]
                assert await index.ask(RunIndex.rows) == [row for row in ROWS if int(row.run[4:]) < 5]


async def test_a_broken_index_is_rebuilt(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:2])
        async with following(connection, folder) as index:
            await index.caught_up()
            with pytest.raises(Exception, match="the index failed"):
                await index.ask(lambda one: one._db.execute("SELECT nothing"))  # pyright: ignore[reportPrivateUsage]
            assert index.failed
        async with following(connection, folder) as again:
            assert await runs_of(again) == ["Run-1", "Run-0"]
            assert again.taken == sum(len(log.events) for log in LOGS[:2])


async def test_processes_share_an_index_and_one_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The process that keeps the index need not notice on its own that something is new.
    monkeypatch.setattr(following_module, "LATE_S", NEVER_S)
    folder = tmp_path / "index"
    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:3])
        async with anyio.create_task_group() as tasks:
            keeper, reader = (IndexFollower(connection.log, "acme", folder) for _ in range(2))
            tasks.start_soon(keeper.run)
            tasks.start_soon(reader.run)
            await reader.caught_up()
            await keeper.caught_up()
            if reader.taken:
                keeper, reader = reader, keeper
            await put(connection, LOGS[4])
            assert await runs_of(reader) == ["Run-4", "Run-2", "Run-1", "Run-0"]
            await purge_run(Client(connection.log, "acme"), "Run-1", PurgeMark())
            assert await runs_of(reader) == ["Run-4", "Run-2", "Run-0"]
            assert reader.taken == 0
            keeper.give_up()
            await put(connection, LOGS[5])
            assert await runs_of(reader) == ["Run-5", "Run-4", "Run-2", "Run-0"]
            assert reader.taken == len(LOGS[5].events)
            tasks.cancel_scope.cancel()


async def test_a_process_that_shares_an_index_reads_the_file_that_replaces_it(tmp_path: Path) -> None:
    folder, ended = tmp_path / "index", anyio.Event()

    async def keep() -> None:
        await keeper.run()
        ended.set()

    async with standing(tmp_path) as connection, anyio.create_task_group() as tasks:
        await put(connection, *LOGS[:3])
        keeper, reader, again = (IndexFollower(connection.log, "acme", folder) for _ in range(3))
        tasks.start_soon(keep)
        await keeper.caught_up()
        tasks.start_soon(reader.run)
        await reader.caught_up()
        with pytest.raises(Exception, match="the index failed"):
            await keeper.ask(lambda one: one._db.execute("SELECT nothing"))  # pyright: ignore[reportPrivateUsage]
        await ended.wait()
        tasks.start_soon(again.run)
        await again.caught_up()
        await put(connection, LOGS[4])
        assert await runs_of(reader) == ["Run-4", "Run-2", "Run-1", "Run-0"]
        tasks.cancel_scope.cancel()


async def test_without_an_index_the_newest_runs_are_read_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_runs, "WINDOW", 5)
    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:10])
        runs = NewestRuns(connection.log, "acme", list_prices(), await connection.log.last_sequence())
        tree = where("definition=cake", STATUSES, NOW)

        def select(index: RunIndex) -> list[RunRow]:
            return index.select(tree, 2)

        found = await until_enough(runs, select, lambda rows: len(rows) == 2)
        assert found == [row for row in ROWS if row.run in ("Run-9", "Run-7")][:2]
        assert not runs.is_whole
        monkeypatch.setattr(newest_runs, "EVENTS_MAX", 0)
        runs = NewestRuns(connection.log, "acme", list_prices(), await connection.log.last_sequence())
        assert await until_enough(runs, select, lambda _rows: False) is None


async def test_a_page_does_not_wait_for_an_index_that_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_self: IndexFollower) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(IndexFollower, "caught_up", never)
    async with standing(tmp_path) as connection, anyio.create_task_group() as tasks:
        await put(connection, *LOGS[:10])
        lists = Listings(connection.log, tasks, tmp_path / "index")
        first = await lists.page("acme", Both(()), 4)
        assert [row.run for row in first.runs] == ["Run-9", "Run-8", "Run-7", "Run-6"]
        assert first.more
        second = await lists.page("acme", Both(()), 6, before="Run-6")
        assert [row.run for row in second.runs] == [f"Run-{number}" for number in range(5, -1, -1)]
        assert not second.more
        await connection.log.publish(
            OutgoingMessage(connection.log.subjects.gone_subject(RunRef("acme", "Run-9")), b"{}", {})
        )
        assert [row.run for row in (await lists.page("acme", Both(()), 2)).runs] == ["Run-8", "Run-7"]
        tasks.cancel_scope.cancel()


# -- callers -----------------------------------------------------------------------------------------------------------


def test_runs_are_found_at_the_command_line(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    args = workdir.write_one({"text": "the pool is exhausted"})
    for name, customer in (("r1", "acme"), ("r2", "umbrella")):
        ran = workdir.run("run", *args, "--run-id", name, "--tag", f"customer={customer}", "--input", '{"case": 4711}')
        assert ran.exit_code == 0, ran.output

    def listed(question: str) -> list[str]:
        return [row["run"] for row in workdir.run_json("runs", "--where", question)]

    assert listed("tag.customer=acme") == ["r1"]
    assert workdir.run_json("runs", "--where", "tag.customer=acme")[0]["tags"] == {"customer": "acme"}
    assert listed("status=completed and text~'pool exhausted' and input~4711 and started<1h") == ["r2", "r1"]
    assert listed("started>1h") == []
    assert (tmp_path / ".callboard" / "index").is_dir()
    wrong = workdir.run("runs", "--where", "status=failed and custmer=acme")
    assert wrong.exit_code == 2
    assert "find.where: unknown field 'custmer'" in wrong.stderr
    assert "  status=failed and custmer=acme\n                    ^\n" in wrong.stderr
    assert workdir.run("run", *args, "--tag", "1=x").exit_code == 1


async def test_runs_are_found_by_their_attributes(connection: Connection, caller: Caller) -> None:
    paths = {"who": "input.who", "found": "output.sum"}
    registered = {"source": SOURCE, "name": "counted", "attributes": paths}
    assert (await caller.ask("definition", registered))["name"] == "counted"
    assert (await caller.ask("definition", {"name": "counted"}))["attributes"] == paths
    wrong = await caller.refused("definition", {**registered, "attributes": {"who": "who"}})
    assert [problem["code"] for problem in wrong["problems"]] == ["start.attribute"]
    runs = list[str]()
    for who, total in (("ada", 4), ("grace", 40)):
        script = {"turns": {"a": [{"data": {}}], "b": [{"data": {"sum": total}}]}}
        runs.append(await caller.finished(definition={"name": "counted"}, input={"who": who}, script=script))
    # A start can give attributes, and a fork has those of its origin.
    own = {"attributes": {"who": "output.found"}, "input": {"who": "ada"}}
    runs.append(await caller.finished(definition={"name": "counted"}, **own))
    fork = (await caller.ask("fork", {"run_id": runs[1], "from": "b"}))["run_id"]
    await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S})

    async def listed(question: str) -> list[str]:
        return [row["run"] for row in (await caller.ask("runs", {"where": question}))["runs"]]

    assert await listed("attr.who=ada") == [runs[0]]
    assert await listed("attr.found>4") == [fork, runs[1]]
    assert await listed("attr.found<=4") == [runs[2], runs[0]]
    rows = (await caller.ask("runs", {"where": f"run={fork}"}))["runs"]
    assert rows[0]["attributes"] == {"who": "grace", "found": 40}


def test_costs_are_summed_without_counting_children_twice() -> None:
    logs: list[Log] = []
    for number, (definition, parent) in enumerate([("cake", ""), ("cake", ""), ("bread", ""), ("crumb", "Run-0")]):
        log = Log(f"Run-{number}", definition)
        log.wait(40_000 * number)
        log.accepted(parent=Parent(parent, "a#1.1!child", 1) if parent else None)
        log.add(RunStart(definition, None))
        usage = Usage(1_000_000, 100_000)
        models = [ModelUsage("openai:gpt-5", usage)] if number != 1 else [ModelUsage("mine:own", usage)]
        log.add(RunEnd("completed", usage=usage, models=models))
        logs.append(log)
    index = indexed(logs)
    every = where("", STATUSES, NOW)
    assert [(one.name, one.runs, one.usage.tokens, one.cost) for one in index.costs(every, "definition")] == [
        ("cake", 2, 2_200_000, Cost(2.25, 1_100_000)),
        ("bread", 1, 1_100_000, Cost(2.25)),
    ]
    assert [(one.name, one.cost.usd) for one in index.costs(every, "model")] == [("openai:gpt-5", 4.5), ("mine:own", 0)]
    assert sum(one.runs for one in index.costs(every, "day")) == 3
    assert [one.name for one in index.costs(where("definition=bread", STATUSES, NOW), "definition")] == ["bread"]
    assert found(index, "cost>=2.25") == [3, 2, 0]
    assert found(index, "cost>2.3") == []
    assert found(index, "parent=Run-0") == [3]
    assert [row.children for row in index.select(every, 10)] == [0, 0, 0, 1]
    assert [row.children for row in index.select(every, 10, order=Order("tokens"))] == [0, 0, 0, 1]


def test_the_children_of_a_run_are_found_by_an_index() -> None:
    index = indexed(LOGS)
    for question, name in [("parent=Run-1", "children"), ("origin=Run-1", "forks")]:
        found = condition(where(question, STATUSES, NOW))
        plan = index._query(f"EXPLAIN QUERY PLAN SELECT place FROM runs WHERE {found.sql}", found.values)  # pyright: ignore[reportPrivateUsage]
        assert f"USING COVERING INDEX {name} " in plan[0][-1] or f"USING INDEX {name} " in plan[0][-1]
    index.close()
