"""The models of the workflow document, which follow the published JSON Schema but have more helpful errors.

Inner objects are closed, and the top level is open. `validate` checks rules that concern several places of a document,
which a JSON Schema cannot express.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)

from callboard.languages.parts import Maybe, Part, Text, Texts, Whole
from callboard.languages.problems import VARIANT, Complaint
from callboard.languages.skills.skill import InlineSkill, JsonSchemaField
from callboard.languages.workflow.checks import OutputMatch
from callboard.languages.workflow.evaluators import Evaluator
from callboard.languages.workflow.inputs import InputField
from callboard.languages.workflow.sources import Source

JUDGE_MODEL = "claude-haiku-4-5"
"""The default model of judges (specification, *Nodes: Judge mechanics*)."""

JUDGE_BUDGET = 50
"""The number of expected judge calls in a run above which a warning is due, by default."""

RESERVED_NODE_IDS = frozenset({"input"})
"""Ids of nodes that would hide the run's input in the context of other nodes."""

_AtLeastOne = Maybe[Annotated[list[Text], Field(min_length=1)]]
_Positive = Annotated[Whole, Field(ge=1)]


class NodeSources(Part):
    """A node's own rules or context; ``only`` leaves out what it would inherit."""

    only: bool = False
    sources: list[Source]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, raw: Any) -> Any:
        return {"sources": raw} if isinstance(raw, list) else raw

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of this part of a document: a list of sources, or the object."""
        whole = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [whole["properties"]["sources"], {**whole}]}


class Requires(Part):
    """What must hold before a model is asked."""

    output_required: _AtLeastOne = None
    output_matches: Maybe[Annotated[list[OutputMatch], Field(min_length=1)]] = None
    on_fail: Literal["fail", "skip"] = "fail"

    @model_validator(mode="after")
    def _something(self) -> "Requires":
        if self.output_required is None and self.output_matches is None:
            raise Complaint("SCHEMA", "requires nothing", "output_required or output_matches")
        return self


class ToolFilter(Part):
    allow: _AtLeastOne = None
    deny: _AtLeastOne = None

    @model_validator(mode="after")
    def _something(self) -> "ToolFilter":
        if self.allow is None and self.deny is None:
            raise Complaint("SCHEMA", "filters nothing", "allow or deny")
        return self


def _true(value: bool) -> bool:
    if not value:
        raise Complaint("SCHEMA", "is false", "true, or no instruction for the plain list")
    return value


class AutoFeedback(Part):
    """The model itself says what went wrong."""

    auto: Annotated[bool, AfterValidator(_true)]


class ReflectFeedback(Part):
    """The model answers the author's question about what went wrong."""

    reflect: Text


def _feedback_variant(raw: Any) -> str:
    match raw:
        case str():
            return f"{VARIANT}text"
        case AutoFeedback() | {"auto": _}:
            return f"{VARIANT}auto"
        case _:
            return f"{VARIANT}reflect"


Feedback = Annotated[
    Annotated[Text, Tag(f"{VARIANT}text")]
    | Annotated[AutoFeedback, Tag(f"{VARIANT}auto")]
    | Annotated[ReflectFeedback, Tag(f"{VARIANT}reflect")],
    Discriminator(_feedback_variant),
]


class Retry(Part):
    max: _Positive
    instruction: Maybe[Feedback] = None


class Node(Part):
    """One step: an instruction for a model, what it may use, and what must hold before and after.

    ``disallowed_tools`` names tools that an agent runtime has built in. Ours has none, so they are never offered.
    """

    name: Text
    instruction: Source
    skills: list[str] = Field(default_factory=list[str])
    output: Maybe[JsonSchemaField] = None
    max_turns: Maybe[_Positive] = None
    model: Maybe[Text] = None
    disallowed_tools: Texts = Field(default_factory=list[str])
    tools: Maybe[ToolFilter] = None
    fail_soft: bool = False
    rules: Maybe[NodeSources] = None
    context: Maybe[NodeSources] = None
    requires: Maybe[Requires] = None
    eval: Maybe[Annotated[list[Evaluator], Field(min_length=1)]] = None
    eval_policy: Literal["all_pass", "any_pass", "weighted"] = "all_pass"
    judge_model: Maybe[Text] = None
    retry: Maybe[Retry] = None

    @property
    def output_keys(self) -> list[str] | None:
        """The declared keys of the structured output; None if no keys are declared."""
        properties: Any = (self.output or {}).get("properties")
        return list(properties) if isinstance(properties, dict) and properties else None


class Edge(Part):
    source: Text = Field(alias="from")
    target: Text = Field(alias="to")
    when: Maybe[str] = None
    max_iterations: Maybe[_Positive] = None

    @property
    def condition(self) -> str | None:
        """The condition; None if it is missing or blank."""
        return self.when if self.when and self.when.strip() else None


class Workflow(BaseModel):
    """The document."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)

    id: Text
    name: Text
    description: str = ""
    entry: Text
    nodes: dict[str, Node]
    edges: list[Edge]
    skills: dict[Text, InlineSkill] = Field(default_factory=dict[str, InlineSkill])
    rules: list[Source] = Field(default_factory=list[Source])
    context: list[Source] = Field(default_factory=list[Source])
    workflow_type: Literal["pr_review", "e2e_test", "content_generation", "monitor", "data_sync", "generic"] = "generic"
    model: Maybe[Text] = None
    judge_model: Maybe[Text] = None
    judge_budget: Annotated[Whole, Field(ge=0)] = JUDGE_BUDGET
    inputs: Maybe[dict[str, InputField]] = None
