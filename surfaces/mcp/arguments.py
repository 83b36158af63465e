"""Arguments: the input models of the tools, and what each tool does, as their docstrings say.

A call is checked against them, and all problems are reported at once."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from callboard.bus.commands import Verb
from callboard.bus.subjects import token
from callboard.projections.lists.runs import RowStatus

WAIT_MAX_S = 300.0
"""Longest wait of one call, in seconds; most clients give up sooner."""

PAGE_EVENTS_MAX = 200
"""Events in one answer."""

LISTED_MAX = 200
"""Runs in one answer."""

SEQUENCE_MAX = 2**53
"""Limit of sequences: the largest integer that every JSON parser reads exactly."""


def _name(value: str) -> str:
    token(value)
    return value


Name = Annotated[str, Field(min_length=1), AfterValidator(_name)]
RunId = Annotated[
    str,
    Field(min_length=1, description="The run's id, as returned by start_workflow and list_runs."),
    AfterValidator(_name),
]
Wait = Annotated[float, Field(ge=0, le=WAIT_MAX_S)]


class Arguments(BaseModel):
    """Base of all arguments: unknown members and wrong types are errors, so that mistakes are not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ListWorkflows(Arguments):
    """List the workflows that can be started: registered ones, and files in the folders of this server."""

    folder: str | None = Field(None, description="List only files in this folder (one of the server's, or one below).")


class Chosen(Arguments):
    """The chosen definition: exactly one of name, file and source."""

    name: Name | None = Field(
        None,
        description="The name of a registered definition, as returned by list_workflows; NAME@HASH for one version.",
    )
    file: str | None = Field(None, min_length=1, description="The file of a definition, as returned by list_workflows.")
    source: str | None = Field(None, min_length=1, description="The text of a definition, YAML or JSON.")
    files: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="With source: its files, text by path. Those of a file are read from its folder.",
    )

    arguments: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Values for the parameters of a flow; see `arguments` of list_workflows.",
    )

    @model_validator(mode="after")
    def _one(self) -> "Chosen":
        given = [name for name in ("name", "file", "source") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no definition'} given; give exactly one of name, file and source"
            )
        if self.files and self.source is None:
            raise ValueError("files can only be given with source")
        return self


class ValidateWorkflow(Chosen):
    """Report all problems of a workflow, each with its line, without starting it."""

    input: Any = Field(None, description="Also check a start with this input.")


class StartWorkflow(Chosen):
    """Start a run of a workflow; with wait_s, wait for its end and return the result."""

    input: Any = Field(None, description="The run's input: for a workflow, an object with its declared inputs.")
    wait_s: Wait = Field(
        0.0,
        description="Seconds to wait for the end. A run that takes longer continues: see get_run and watch_run.",
    )
    run_id: Name | None = Field(None, description="The run's id; a second start with the same id returns the same run.")
    model: str | None = Field(
        None, min_length=1, description="The model, as provider:model; by default, that of the worker."
    )
    script: dict[str, Any] | None = Field(None, description="Answers of a scripted model, for rehearsals.")
    options: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Options of the definition's language; see `options` of list_workflows.",
    )
    tags: dict[str, str] = Field(
        default_factory=dict[str, str], description="Texts by name, with which the run can be found."
    )
    attributes: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Paths by name, such as input.customer.id or output.total, with whose values the run can be found.",
    )
    encryption_key: Name | None = Field(None, description="The name of the key that encrypts the run's log.")
    dry_run: bool = Field(False, description="Stop where the model would have to choose a route.")
    offline: bool = Field(False, description="Fetch no sources from the web.")
    strict: bool = Field(False, description="Treat warnings as errors: do not start an incomplete definition.")


class GetRun(Arguments):
    """Return the state of a run: status, output and results, error, usage, and open questions and signals."""

    run_id: RunId
    wait_s: Wait = Field(0.0, description="Seconds to wait for the end of the run.")


class ListRuns(Arguments):
    """List runs, newest first."""

    status: RowStatus | None = Field(
        None, description="Only runs with this status; waiting matches every status that begins with it."
    )
    definition: str | None = Field(None, description="Only runs of the definition with this name.")
    where: str = Field(
        "",
        description="Only runs that match this query, such as status=failed and tag.customer=acme and started<2h, or "
        "text~'connection refused', which searches inputs, outputs and errors.",
    )
    limit: int = Field(20, ge=1, le=LISTED_MAX, description="The maximum number of runs, newest first.")
    before: RunId | None = Field(None, description="Only runs accepted before this one; pass the last run of a list.")


class ListQuestions(Arguments):
    """List the open questions of all runs, oldest first; `schema` is the JSON Schema of the response."""

    definition: str | None = Field(None, description="Only questions of runs of the definition with this name.")
    run_id: RunId | None = Field(None, description="Only questions of this run.")
    limit: int = Field(20, ge=1, le=LISTED_MAX, description="The maximum number of questions, oldest first.")


class WatchRun(Arguments):
    """Return the events of a run after a sequence, and the sequence to continue from."""

    run_id: RunId
    after: int = Field(
        0, ge=0, le=SEQUENCE_MAX, description="Begin after this sequence: `next_after` of the last answer."
    )
    limit: int = Field(50, ge=1, le=PAGE_EVENTS_MAX, description="The maximum number of events.")
    types: list[str] = Field(
        default_factory=list[str],
        description="Only events of these types: node.exit, run.*, …; empty for all.",
    )
    detail: Literal["brief", "full"] = Field("brief", description="One line per event, or the whole event.")
    wait_s: Wait = Field(0.0, description="Seconds to wait for a new event, if there is none yet.")


class TellArguments(Arguments):
    """Base of the arguments of a command to a run: the members of the command ``verb``, some under another name."""

    verb: ClassVar[Verb]

    run_id: RunId
    by: str | None = Field(None, description="The person who sends this; recorded with it.")
    id: str | None = Field(
        None,
        min_length=1,
        description="A key that you choose: a repeated call with the same key has no further effect.",
    )


class AnswerQuestion(TellArguments):
    """Answer a question that a run waits for. An answer that does not fit is an error; the question stays open."""

    verb = "answer"

    interaction: str | None = Field(
        None, min_length=1, description="The question's key: `waits_for[].key` of get_run; needed if several are open."
    )
    user_response: Any = Field(alias="response", description="The answer.")
    response_data: Any = Field(None, alias="data", description="Further data of the answer.")


class SignalRun(TellArguments):
    """Send a run a named signal."""

    verb = "signal"

    name: str = Field(min_length=1, description="The signal's name: `waits_for[].signal` of get_run.")
    data: Any = Field(None, description="The data of the signal.")


class ResumeRun(TellArguments):
    """Resume a paused run, or let it perform one node."""

    verb = "resume"

    variables: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Variables to override, in languages with variables."
    )
    step: bool = Field(False, description="Perform only one node, and pause again at the next.")


class CancelRun(TellArguments):
    """Cancel a run: current work is stopped, clean-up is performed, and the run ends as cancelled."""

    verb = "cancel"

    reason: str = Field("", description="The reason; recorded with it.")
