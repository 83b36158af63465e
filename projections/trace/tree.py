"""The trace of a run as plain data: its tree of node executions with effects, retries, routes, progress and warnings.

The tree is the same for all languages. Views in a language's own shape are made from events or from this tree.
"""

import datetime as dt

from msgspec import Struct

from callboard.bus.effects import Failure, Usage
from callboard.bus.prices import Cost
from callboard.lib.json_types import JSON


class Attempt(Struct, frozen=True, omit_defaults=True):
    """A retry: its ``number`` within the iteration, from 1, and the reason why the previous attempt failed.

    ``path`` is set if a part of a node retries and not the node itself, such as a middleware: ``main/fetch:mw0``.
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
    """A route taken from a node, with the names of the definition."""

    at: dt.datetime
    source: str
    target: str
    reason: str = ""
    edge: int | str | None = None


class Effect(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An effect from its intent to its outcome.

    ``kind`` is model, tool, timer, human, signal, child, pause or the kind of an ``effect.call``. ``name`` is the
    model, tool, purpose or question. ``outcome`` is ok, failed, cancelled or (for a question) timeout, and None while
    it is open. ``executions`` counts how often workers have executed it: one more for each claim of the run while it
    was open. ``run`` is the id of a child run. ``cost`` is that of ``usage`` at the reader's prices.
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
    """A node execution with its subtree. The root is the run itself, with path ``""`` and kind ``run``."""

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
    """A run's tree with its times. ``until`` is the time of the last event; ``claims`` counts the claims of the run.

    A fork names its ``origin``. ``parted_at`` is the last event that they share, and ``shared_until`` its time. The
    root begins when the fork resumed. Nodes and effects that the origin executed have the times of the origin.
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
