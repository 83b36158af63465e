"""Arguments: what each tool takes. What a model sends is checked against these, every problem at once."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from callboard.bus.subjects import token
from callboard.projections.lists.runs import RowStatus

WAIT_MAX_S = 300.0
"""Longest wait of one call, in seconds; most clients give up sooner."""

PAGE_EVENTS_MAX = 200
"""Events in one answer."""

LISTED_MAX = 200
"""Runs in one answer."""

SEQUENCE_MAX = 2**53
"""Sequences of the stream stay below what every JSON reader keeps exactly."""


def _name(value: str) -> str:
    token(value)
    return value


Name = Annotated[str, Field(min_length=1), AfterValidator(_name)]
RunId = Annotated[
    str,
    Field(min_length=1, description="The run's id, as start_workflow and list_runs give it."),
    AfterValidator(_name),
]
Wait = Annotated[float, Field(ge=0, le=WAIT_MAX_S)]
By = Annotated[str | None, Field(description="Who says so; recorded with it.")]


class Arguments(BaseModel):
    """What all have in common: closed and strict, so that a mistake is told and not swallowed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ListWorkflows(Arguments):
    folder: str | None = Field(None, description="Look for files in this folder only (one of the server's, or below).")


class Chosen(Arguments):
    """Which definition: exactly one of the three."""

    name: Name | None = Field(
        None,
        description="A registered definition, by name, as list_workflows gives it; NAME@HASH: one version.",
    )
    file: str | None = Field(None, min_length=1, description="A definition's file, as list_workflows gives it.")
    source: str | None = Field(None, min_length=1, description="A definition's text, YAML or JSON.")
    files: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="With source: the files that it names, path to text. Those of a file are read beside it.",
    )

    arguments: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Values for the parameters of a flow: `arguments` of list_workflows says which it has.",
    )

    @model_validator(mode="after")
    def _one(self) -> "Chosen":
        given = [name for name in ("name", "file", "source") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no definition'} given; give exactly one of name, file and source"
            )
        if self.files and self.source is None:
            raise ValueError("files go with source only")
        return self


class ValidateWorkflow(Chosen):
    input: Any = Field(None, description="Check a start with this input too.")


class StartWorkflow(Chosen):
    input: Any = Field(None, description="The run's input: for a workflow an object with what its inputs declare.")
    wait_s: Wait = Field(
        0.0,
        description="Wait so many seconds for the end. A run that takes longer goes on: see get_run and watch_run.",
    )
    run_id: Name | None = Field(None, description="The run's id; a second start with the same id is the same run.")
    model: str | None = Field(None, min_length=1, description="The model, as provider:model; the worker has a default.")
    script: dict[str, Any] | None = Field(None, description="Answers of a scripted model, for rehearsals.")
    options: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Options of the definition's language: `options` of list_workflows says which it has.",
    )
    tags: dict[str, str] = Field(default_factory=dict[str, str], description="Texts by name, to find the run by.")
    attributes: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Paths by name, such as input.customer.id or output.total, to find the run by what stands there.",
    )
    encryption_key: Name | None = Field(None, description="The name of a key that what it says is encrypted with.")
    dry_run: bool = Field(False, description="Stop where the model would have to choose a way.")
    offline: bool = Field(False, description="Fetch no sources from the web.")
    strict: bool = Field(False, description="Take warnings for errors: start nothing that lacks something.")


class GetRun(Arguments):
    run_id: RunId
    wait_s: Wait = Field(0.0, description="Wait so many seconds for the end, if it has not come.")


class ListRuns(Arguments):
    status: RowStatus | None = Field(
        None, description="Only runs of this status; waiting is any status that begins so."
    )
    definition: str | None = Field(None, description="Only runs of the definition of this name.")
    where: str = Field(
        "",
        description="Only runs for which this holds, such as status=failed and tag.customer=acme and started<2h, or "
        "text~'connection refused', which is looked for in inputs, outputs and errors.",
    )
    limit: int = Field(20, ge=1, le=LISTED_MAX, description="At most so many, the newest.")
    before: RunId | None = Field(None, description="Only runs accepted before this one: the last one of a list.")


class ListQuestions(Arguments):
    definition: str | None = Field(None, description="Only those of runs of the definition of this name.")
    run_id: RunId | None = Field(None, description="Only those of this run.")
    limit: int = Field(20, ge=1, le=LISTED_MAX, description="At most so many, the oldest.")


class WatchRun(Arguments):
    run_id: RunId
    after: int = Field(
        0, ge=0, le=SEQUENCE_MAX, description="Begin behind this sequence: `next_after` of the last answer."
    )
    limit: int = Field(50, ge=1, le=PAGE_EVENTS_MAX, description="At most so many events.")
    types: list[str] = Field(
        default_factory=list[str],
        description="Only events of these types: node.exit, run.*, …; all if there are none.",
    )
    detail: Literal["brief", "full"] = Field("brief", description="One line per event, or the whole event.")
    wait_s: Wait = Field(0.0, description="Wait so many seconds for an event, if there is none yet.")


TellId = Annotated[
    str | None,
    Field(min_length=1, description="A key of your own: sent again with the same key, it acts once."),
]


class AnswerQuestion(Arguments):
    run_id: RunId
    interaction: str | None = Field(
        None, min_length=1, description="The question's key: `waits_for[].key` of get_run; needed if several are open."
    )
    response: Any = Field(description="The answer.")
    data: Any = Field(None, description="Further data of the answer.")
    by: By = None
    id: TellId = None


class SignalRun(Arguments):
    run_id: RunId
    name: str = Field(min_length=1, description="The signal's name: `waits_for[].signal` of get_run.")
    data: Any = Field(None, description="What the signal carries.")
    by: By = None
    id: TellId = None


class ResumeRun(Arguments):
    run_id: RunId
    variables: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Variables to override, in languages that have any."
    )
    step: bool = Field(False, description="Go on by one node only, and pause again at the next.")
    by: By = None
    id: TellId = None


class CancelRun(Arguments):
    run_id: RunId
    reason: str = Field("", description="Why; recorded with it.")
    by: By = None
    id: TellId = None
