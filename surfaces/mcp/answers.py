"""Answers: what each tool returns, as structured content; their JSON Schemas are the tools' output schemas."""

import datetime as dt
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Problem
from callboard.lib.json_types import JSON
from callboard.projections.run.causes import Cause
from callboard.projections.run.failures import RunFailures
from callboard.projections.run.run_result import NodeState


class Workflow(Struct, frozen=True, omit_defaults=True):
    """A definition that can be started: pass ``name`` or ``file``, whichever it has, to start_workflow.

    ``inputs`` are the declared fields of its input; ``arguments`` are the parameters of a flow, whose values are passed
    as arguments; ``options`` are the names of its language's options. ``problems`` is the number of errors if the
    definition is invalid.
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
    """``more`` says that the list is incomplete; name a folder to narrow it."""

    workflows: list[Workflow]
    more: bool


class Validation(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether a definition can be started. ``files`` are the files that it names; warnings are among the problems."""

    valid: bool = msgspec.field()
    language: str = ""
    problems: list[Problem] = []
    files: list[str] = []


class Waiting(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A question, signal or call that a run waits for. Answer a question with answer_question and ``key``, send a
    ``signal`` with signal_run."""

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


class Run(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a run.

    ``output`` is its final value, ``results`` the result in the form of its language's specification. Until the run
    has ended, ``nodes`` has the result of each node. ``path`` lists the nodes that it passed. ``cause`` is the error
    with its causes and their places. ``failures`` has the event in which the failure arose that ended the run, and
    counts the steps that failed. ``continued_as`` is the run that continues this one.
    """

    run_id: str
    status: str
    ended: bool
    definition: str = ""
    continued_as: str = ""
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    cause: Cause | None = None
    failures: RunFailures | None = None
    usage: Usage = Usage()
    path: list[str] = []
    nodes: list[NodeState] = []
    waits_for: list[Waiting] = []
    warnings: list[Problem] = []
    duplicate: bool = False


class Seen(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event: ``text`` describes it (brief), ``event`` is the whole event from the log (full)."""

    sequence: int
    type: str
    time: dt.datetime
    path: str = ""
    text: str | None = None
    event: Any = None


class Page(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Events of a run. Pass ``next_after`` as ``after`` for the next page; ``more`` says that it has events already.

    ``ended`` says that the run's end is in this page or before it; ``status`` is its final status.
    """

    events: list[Seen]
    next_after: int
    more: bool
    ended: bool
    status: str | None = None


class Told(Struct, frozen=True, omit_defaults=True):
    """The result of a command to a run.

    ``verdict`` is accepted, or pending: the command is stored, but the run has not handled it yet. ``recorded`` is the
    number of the resulting event in the run's log, if there is one yet; ``text`` describes the result.
    """

    run_id: str
    verb: str
    verdict: str
    recorded: int | None = None
    text: str = ""


def schema_of(answer: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of an answer: an object at its root, as MCP requires."""
    _references, components = msgspec.json.schema_components([answer], ref_template="#/$defs/{name}")
    root = components.pop(answer.__name__)
    return {**root, "$defs": components} if components else root
