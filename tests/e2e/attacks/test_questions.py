"""A query of runs that SQLite cannot take is refused, and does not rebuild the index."""

import datetime as dt
import sqlite3
from pathlib import Path

import pytest

from callboard.features.index.index_follower import QuestionFailed
from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import WhereInvalid, where
from callboard.service.operations.operation import ApiError
from callboard.service.operations.operations import _parse_conditions  # pyright: ignore[reportPrivateUsage]
from callboard.service.operations.requests import CountRuns
from tests.features.index.test_find import LOGS, following, put, runs_of, standing

ODD = ["a\0b", "\0", "x\ud83d"]


@pytest.mark.parametrize("text", ODD)
def test_characters_that_sqlite_cannot_take_are_refused(text: str) -> None:
    with pytest.raises(WhereInvalid):
        where(f"text~'{text}'", STATUSES, dt.datetime.now(dt.UTC))
    for request in (CountRuns(q=text), CountRuns(definition=text)):
        with pytest.raises(ApiError) as found:
            _parse_conditions(request)
        assert (found.value.status, found.value.code) == (400, "find.where")


async def test_an_error_of_one_query_keeps_the_index(tmp_path: Path) -> None:
    async with standing(tmp_path) as connection:
        await put(connection, *LOGS[:2])
        async with following(connection, tmp_path / "index") as index:
            before = await runs_of(index)

            def fail(_index: object) -> None:
                raise sqlite3.ProgrammingError("planted")

            with pytest.raises(QuestionFailed):
                await index.ask(fail)
            assert await runs_of(index) == before
            assert index.taken
