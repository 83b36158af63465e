"""Finding runs at the command line: the questions that options amount to, and the runs that they find."""

import datetime as dt

from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import Both, Term, Where, where
from callboard.service.api.connection import Connection
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.run_listing import listings


async def found_runs(connection: Connection, question: Where) -> list[str]:
    """The ids of the tenant's runs that are wanted, the oldest first."""
    async with listings(connection) as found:
        return await found.ids(connection.config.tenant, question)


def wanted(text: str | None, *, status: str | None = None, definition: str | None = None) -> Where:
    """Return the question that options amount to; without a ``text`` of one it is about every run.

    :raises UsageInvalid: if the text is empty, as that of a variable which no one has set: no one means all runs so
    :raises WhereInvalid: if its text cannot be understood
    """
    if text is not None and not text.strip():
        raise UsageInvalid(
            "the question is empty; expected one such as status=failed",
            "--where",
            "To mean every run, say --all instead, or leave --where away where there is no --all.",
        )
    question = where(text or "", STATUSES, dt.datetime.now(dt.UTC))
    tests = [
        Term(name, "=", value) for name, value in (("status", status), ("definition", definition)) if value is not None
    ]
    return Both((*tests, question))
