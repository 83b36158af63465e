"""The trace of a run as plain data: its tree of node executions with effects, retries, routes, progress and warnings.

The same for all languages; views in a language's own shape are made from events or from this.
"""

import datetime as dt

from msgspec import Struct

from callboard.bus.effects import JSON, Failure, Usage
from callboard.bus.prices import Cost


class Attempt(Struct, frozen=True, omit_defaults=True):
    """A retry: the ``number``-th (from 1) of its iteration, and why the attempt before it did not do.

    ``path`` is that of what retries where it is no node itself, such as a middleware: ``main/fetch:mw0``.
    """

    number: int
    at: dt.datetime
    reason: str
    error: Failure | None = None
    delay: float | None = None
    path: str = ""


class Note(Struct, frozen=True, omit_defaults=True):
    """A line of progress (no code) or a warning."""

    at: dt.datetime
    message: str
    code: str = ""
    fields: list[str] = []


class Step(Struct, frozen=True, omit_defaults=True):
    """A way taken on from a node; names as in the definition."""

    at: dt.datetime
    source: str
    target: str
    reason: str = ""
    edge: int | str | None = None


class Effect(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An effect from its intent to its outcome.

    ``kind`` is model, tool, timer, human, signal, child, pause or the kind of an ``effect.call``; ``name`` the model,
    tool, purpose or question; ``outcome`` ok, failed, cancelled or (a question) timeout, None while it is open.
    ``executions`` counts how often workers have taken it on: one more for each claim of the run that it was open
    across. ``run`` is the id of a child run. ``cost`` is what ``usage`` comes to by the reader's prices.
    """

    key: str
    type: str
    kind: str
    name: str
    attempt: int
    started_at: dt.datetime
    ended_at: dt.datetime | None = None
    outcome: str | None = None
    error: Failure | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    run: str | None = None
    executions: int = 1
    first_n: int = 0
    last_n: int = 0


class Node(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node execution with all below it; the run itself is the root, with path ``""`` and kind ``run``."""

    path: str
    iteration: int
    kind: str
    node: str
    name: str
    entered_at: dt.datetime | None = None
    exited_at: dt.datetime | None = None
    outcome: str | None = None
    result: JSON = None
    error: Failure | None = None
    attempts: list[Attempt] = []
    effects: list[Effect] = []
    routes: list[Step] = []
    progress: list[Note] = []
    warnings: list[Note] = []
    children: list["Node"] = []
    first_n: int = 0
    last_n: int = 0


class Trace(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run's tree with its times; ``until`` is the time of the last event, ``claims`` how often it was taken on.

    A fork names its ``origin``, and by ``parted_at`` the last event that they share, which is as old as
    ``shared_until``; the run itself began when it went on. Nodes and effects have the times that they had at its
    origin, as far as they were carried out there.
    """

    run: str
    definition: str
    language: str
    root: Node
    origin: str = ""
    parted_at: int = 0
    shared_until: dt.datetime | None = None
    until: dt.datetime | None = None
    claims: int = 0
    sources: dict[str, dict[str, JSON]] = {}
