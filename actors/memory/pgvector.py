"""The store of texts on PostgreSQL with the extension `vector`: one table per memory, created for its first text.

A row is a text: ``document`` is its JSON, ``facets`` has a hash of each member of its metadata, and ``applied`` are the
latest changes that it has seen, so that an effect that is carried out again does not undo later changes. The search
compares all vectors, unless the operator creates an index.
"""

import importlib
import random
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import anyio

from callboard.actors.carrier import EffectFailed
from callboard.actors.memory.embedder import Vector
from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import APPLIED_MAX, ONCE_CHARS, Document, Unavailable, effect_failed, encode_document
from callboard.actors.memory.text_store import (
    Embedding,
    StoredText,
    TextMatch,
    TextQuery,
    best_of,
    collection_of,
    facet_of,
    facets_of,
    other_dimension,
    other_embedder,
)
from callboard.bus.effects import Failure
from callboard.lib.background_imports import import_beside
from callboard.lib.backoff import backoff_s
from callboard.lib.json_decoder import decode_json

Done = TypeVar("Done")

CONNECT_S = 10.0
ANSWER_S = 30.0
CLOSE_S = 5.0
"""How long connecting, a statement, and closing all connections may take."""

CONNECTIONS_MAX = 8

TOTAL_S = 90.0
TRIES_MAX = 5
TRY_AGAIN_S = 0.25
TRY_AGAIN_MAX_S = 8.0
"""How long all tries may take, how many there are, and the pauses between them."""

MADE_ANEW_MAX = 3
"""How often a table is created if another worker removes it at the same time."""

REASON_CHARS_MAX = 500

PASSING = frozenset({"08", "40", "53", "55", "57"})
"""Classes of SQL states that pass: of the connection, of other transactions, of the server's resources."""

NO_TABLE = "42P01"
BAD_DATA = "22000"
"""The extension's state for a vector of another dimension, too."""

MADE_BY_ANOTHER = frozenset({"23505", "42P07", "42710"})

EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector"
CREATE = """
CREATE TABLE IF NOT EXISTS {table} (id text PRIMARY KEY, document bytea NOT NULL, facets text[] NOT NULL,
embedder text NOT NULL, applied text[] NOT NULL, vector vector({size}) NOT NULL)
"""
SEEN = "SELECT id FROM {table} WHERE id = ANY($1::text[]) AND applied @> ARRAY[$2::text]"
KEEP = f"""
INSERT INTO {{table}} AS kept (id, document, facets, embedder, applied, vector)
VALUES ($1, $2, $3::text[], $4, ARRAY[$5::text], $6::text::vector)
ON CONFLICT (id) DO UPDATE SET document = EXCLUDED.document, facets = EXCLUDED.facets, embedder = EXCLUDED.embedder,
vector = EXCLUDED.vector, applied = (kept.applied || EXCLUDED.applied)[cardinality(kept.applied) + 2 - {APPLIED_MAX}:]
WHERE NOT kept.applied @> EXCLUDED.applied
"""
FIND = """
SELECT document, -(vector <#> $1::text::vector) AS near FROM {table}
WHERE embedder = $2 AND facets @> $3::text[] ORDER BY vector <#> $1::text::vector LIMIT $4
"""
OTHERS = "SELECT count(*) AS count FROM {table} WHERE embedder <> $1"
SIZE = "SELECT vector_dims(vector) AS size FROM {table} LIMIT 1"
GET = "SELECT id, document FROM {table} WHERE id = ANY($1::text[])"
DELETE = "DELETE FROM {table} WHERE id = ANY($1::text[])"
LOCK = "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"
COUNT = "SELECT count(*) AS count FROM {table}"
DROP = "DROP TABLE {table}"


class SqlFailed(EffectFailed):
    """The server refuses a statement; ``state`` is the SQL state."""

    def __init__(self, state: str, words: str) -> None:
        message = f"the store of memories refuses a statement: {state}: {words[:REASON_CHARS_MAX]}"
        super().__init__(Failure("memory.refused", message, retryable=False))
        self.state = state


class PgVector:
    """Texts in the tables of a database. ``namespace`` is part of their names: others may use the database."""

    def __init__(self, url: str, password: str, namespace: str) -> None:
        self._url = url
        self._password = password
        self._namespace = namespace
        self._opening = anyio.Lock()
        self._pool: Any = None

    async def keep(self, asked: MemoryOperation, texts: Sequence[StoredText], embedding: Embedding) -> None:
        table, once = self._table(asked), asked.once[:ONCE_CHARS]
        by_id = {_id(one.id): one for one in texts}
        seen = {row["id"] for row in await self._rows(SEEN.format(table=table), list(by_id), once)}
        new = {id: one for id, one in by_id.items() if id not in seen}
        if not new:
            return
        vectors = await embedding.of([one.text for one in new.values()], "texts")
        rows: list[tuple[Any, ...]] = []
        for (id, one), vector in zip(new.items(), vectors, strict=True):
            document = encode_document({**one._asdict(), "at_ms": asked.at_ms})
            rows.append((id, document, facets_of(one.metadata), embedding.embedder.name, once, _encode_vector(vector)))
        await self._keep(table, rows, vectors[0], embedding)

    async def find(self, asked: MemoryOperation, wanted: TextQuery, embedding: Embedding) -> list[TextMatch]:
        table, embedder = self._table(asked), embedding.embedder
        [vector] = await embedding.of([wanted.query], "query")
        facets = [facet_of(*pair) for pair in wanted.filters.items()]
        try:
            rows = await self._rows(
                FIND.format(table=table), _encode_vector(vector), embedder.name, facets, wanted.most
            )
        except SqlFailed as refused:
            raise await self._mismatch(table, vector, embedding, refused) from refused
        found = [TextMatch(decode_json(row["document"]), embedder.likeness(row["near"])) for row in rows]
        if not found:
            for row in await self._rows(OTHERS.format(table=table), embedder.name):
                if row["count"]:
                    raise other_embedder(embedder.name, row["count"])
        return best_of(found, wanted)

    async def get(self, asked: MemoryOperation, ids: Sequence[str]) -> list[Document]:
        rows = await self._rows(GET.format(table=self._table(asked)), [_id(id) for id in ids])
        found = {row["id"]: decode_json(row["document"]) for row in rows}
        return [found[_id(id)] for id in ids if _id(id) in found]

    async def delete(self, asked: MemoryOperation, ids: Sequence[str]) -> None:
        await self._rows(DELETE.format(table=self._table(asked)), [_id(id) for id in ids])

    async def clear(self, asked: MemoryOperation) -> int:
        # The table is dropped as well: the next texts may have vectors of another dimension.
        table = self._table(asked)

        async def drop_table(connection: Any) -> int:
            await connection.execute(LOCK.format(table=table))
            [row] = await connection.fetch(COUNT.format(table=table))
            await connection.execute(DROP.format(table=table))
            return row["count"]

        try:
            return await self._run_in_transaction(drop_table)
        except SqlFailed as refused:
            if refused.state != NO_TABLE:
                raise
            return 0

    async def aclose(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            with anyio.move_on_after(CLOSE_S) as closing:
                await self._pool.close()
            if closing.cancelled_caught:
                self._pool.terminate()

    def _table(self, asked: MemoryOperation) -> str:
        return collection_of(self._namespace, asked.place)

    async def _keep(self, table: str, rows: Sequence[tuple[Any, ...]], vector: Vector, embedding: Embedding) -> None:
        for _ in range(MADE_ANEW_MAX):
            try:
                await self._run_in_transaction(
                    lambda connection: connection.executemany(KEEP.format(table=table), rows)
                )
                return
            except SqlFailed as refused:
                if refused.state != NO_TABLE:
                    raise await self._mismatch(table, vector, embedding, refused) from refused
            for statement in (EXTENSION, CREATE.format(table=table, size=len(vector))):
                try:
                    await self._run_in_transaction(
                        lambda connection, statement=statement: connection.execute(statement)
                    )
                except SqlFailed as refused:
                    if refused.state not in MADE_BY_ANOTHER:
                        raise
        raise Unavailable("its table was removed again and again")

    async def _mismatch(self, table: str, vector: Vector, embedding: Embedding, refused: SqlFailed) -> Exception:
        """Return the failure of a refused statement with vectors."""
        if refused.state == BAD_DATA:
            for row in await self._rows(SIZE.format(table=table)):
                if row["size"] != len(vector):
                    return other_dimension(embedding.embedder.name, len(vector), row["size"])
        return refused

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a statement; an empty list if the table does not exist."""
        try:
            return await self._run_in_transaction(lambda connection: connection.fetch(statement, *values))
        except SqlFailed as refused:
            if refused.state != NO_TABLE:
                raise
            return []

    async def _run_in_transaction(self, work: Callable[[Any], Awaitable[Done]]) -> Done:
        """Do work in a transaction, and again after a failure that may pass, so it must be repeatable.

        :raises EffectFailed: ``memory.unavailable``, ``memory.refused``
        """
        deadline = anyio.current_time() + TOTAL_S
        tries = 0
        while True:
            tries += 1
            pool = await self._open_pool()
            try:
                async with pool.acquire(timeout=CONNECT_S) as connection, connection.transaction():
                    return await work(connection)
            except Exception as error:
                if not _passes(error):
                    raise
                wait = backoff_s(tries, TRY_AGAIN_S, TRY_AGAIN_MAX_S) * (0.5 + random.random() / 2)
                if tries == TRIES_MAX or anyio.current_time() + wait >= deadline:
                    raise Unavailable(f"{type(error).__name__} {error}".strip() + f", in {tries} tries") from error
            await anyio.sleep(wait)

    async def _open_pool(self) -> Any:
        async with self._opening:
            if self._pool is None:
                await import_beside("asyncpg")
                asyncpg = _driver()
                self._pool = await asyncpg.create_pool(
                    self._url,
                    password=self._password or None,
                    min_size=0,
                    max_size=CONNECTIONS_MAX,
                    timeout=CONNECT_S,
                    command_timeout=ANSWER_S,
                    statement_cache_size=0,  # a pooler between us and the server has no prepared statements
                    server_settings={"application_name": "callboard"},
                )
        return self._pool


def _driver() -> Any:
    """Import the driver, which is needed for this store only.

    :raises EffectFailed: ``memory.refused`` with what to install
    """
    try:
        return importlib.import_module("asyncpg")
    except ImportError as error:
        message = f"asyncpg cannot be imported ({error}): install it with pip install 'callboard[pgvector]'"
        raise effect_failed("memory.refused", message) from error


def _passes(error: Exception) -> bool:
    """Return whether another try may help.

    :raises SqlFailed: if the server refuses the statement, or to connect
    """
    state: str | None = getattr(error, "sqlstate", None)
    if state is not None:
        if state[:2] not in PASSING:
            raise SqlFailed(state, str(error)) from error
        return True
    # The driver's error for a lost connection, and errors of the network.
    return isinstance(error, OSError | TimeoutError | _driver().InterfaceError) and not isinstance(error, ValueError)


def _id(id: str) -> str:
    return sha256(id.encode("utf-8", "replace")).hexdigest()[:40]


def _encode_vector(vector: Vector) -> str:
    return f"[{','.join(map(repr, vector))}]"
