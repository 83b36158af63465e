"""Answers: what each tool returns, as structured content; their JSON Schemas are the tools' output schemas."""

import datetime as dt
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Problem
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import Question
from callboard.projections.lists.runs import RunRow
from callboard.projections.run.causes import Cause


class Workflow(Struct, frozen=True, omit_defaults=True):
    """A definition that can be started: pass ``name`` or ``file``, whichever it has, to start_workflow.

    ``inputs`` are the declared fields of its input; ``arguments`` are the parameters of a flow, whose values go into
    arguments; ``options`` are the names of those that its language has. ``problems`` counts the errors of one that is
    not valid.
    """

    id: str
    language: str
    title: str = ""
    description: str = ""
    name: str | None = None
    file: str | None = None
    nodes: list[str] = []
    inputs: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    options: list[str] = []
    problems: int = 0


class Workflows(Struct, frozen=True, kw_only=True):
    """``more`` says that there are more than are listed; name a folder."""

    workflows: list[Workflow]
    more: bool


class Validation(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether a definition can be started. ``files`` are the files that it names; warnings are among the problems."""

    valid: bool = msgspec.field()
    language: str = ""
    problems: list[Problem] = []
    files: list[str] = []


class Waiting(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a run waits for. A question is answered with answer_question and ``key``, a ``signal`` with signal_run."""

    type: str
    key: str
    since: dt.datetime
    path: str = ""
    question: str | None = None
    options: list[Any] = []
    data: JSON = None
    signal: str | None = None
    tool: str | None = None
    input: JSON = None


class NodeResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a node last stood; ``outcome`` is missing while it goes on."""

    path: str
    iteration: int
    outcome: str | None = None
    result: JSON = None
    error: Failure | None = None


class Run(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a run stands.

    ``output`` is the one value that it came to, ``results`` what its language's specification has as a result;
    until it has ended, ``nodes`` tells what each node has come to. ``path`` is the way it took. ``cause`` is the error
    with what led to it, and the places.
    """

    run_id: str
    status: str
    ended: bool
    definition: str = ""
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    cause: Cause | None = None
    usage: Usage = Usage()
    path: list[str] = []
    nodes: list[NodeResult] = []
    waits_for: list[Waiting] = []
    warnings: list[Problem] = []
    duplicate: bool = False


class Runs(Struct, frozen=True, kw_only=True):
    """The newest first. ``more`` says that older ones match; ask again with ``before``, the last one's ``run``."""

    runs: list[RunRow]
    more: bool


class Questions(Struct, frozen=True, kw_only=True):
    """The oldest first; an answer names ``run`` and ``key``. ``more`` says that younger ones match."""

    questions: list[Question]
    more: bool


class Seen(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event: ``text`` says what happened (brief), ``event`` is the event as the log has it (full)."""

    sequence: int
    type: str
    time: dt.datetime
    path: str = ""
    text: str | None = None
    event: Any = None


class Page(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Events of a run. Ask again with ``after``: ``next_after``; ``more`` says that there are some already.

    ``ended`` says that the run's end is in this page or before it; ``status`` is how it ended.
    """

    events: list[Seen]
    next_after: int
    more: bool
    ended: bool
    status: str | None = None


class Told(Struct, frozen=True, omit_defaults=True):
    """What became of something that a run was told.

    ``verdict`` is accepted, or pending: the command is durable, and what the run makes of it is not known yet.
    ``recorded`` is the number of the event in the run's log, if there is one by now; ``text`` says what it is.
    """

    run_id: str
    verb: str
    verdict: str
    recorded: int | None = None
    text: str = ""


def schema_of(answer: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of an answer: an object at its root, as MCP wants it."""
    _references, components = msgspec.json.schema_components([answer], ref_template="#/$defs/{name}")
    root = components.pop(answer.__name__)
    return {**root, "$defs": components} if components else root
