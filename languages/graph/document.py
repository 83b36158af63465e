"""The models of the graph document as people write it; members that older editors add are ignored.

`callboard.languages.graph.validate` checks rules that concern several places of a document. The interpreter works with
the `callboard.languages.graph.topology.Graph` that `callboard.languages.graph.parse` makes of the document.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from callboard.languages.problems import Complaint

RESULT = "result"
"""The input port of every node, and the output port of a connection that names none."""

CONFIRMED, REJECTED, UNRELATED, TIMEOUT = "confirmed", "rejected", "unrelated", "timeout"
"""The labels of answers to people's questions, which are also the ports at which the node's output leaves."""

Text = Annotated[str, StringConstraints(min_length=1)]


class _Part(BaseModel):
    """An object of a document: types are strict, unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)


def _no_blanks(name: str) -> str:
    if any(character.isspace() for character in name):
        raise Complaint("BLANK_IN_NAME", "a node's name has no blanks", "such as send_mail")
    return name


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def _or_none(value: Any) -> Any:
    return [] if value is None else value


Object = Annotated[dict[str, Any], BeforeValidator(_or_empty, json_schema_input_type=dict[str, Any] | None)]
"""An object; null represents an empty one."""

Ids = Annotated[list[Text], BeforeValidator(_or_none, json_schema_input_type=list[Text] | None)]
"""A list of ids; null represents an empty one."""


class Metadata(_Part):
    """The metadata of a workflow; statistics and deployment data are ignored."""

    id: Text
    name: Text
    description: str | None = None
    version: str | None = None
    created_by: str | None = None
    created_time: int | float | None = None
    tags: list[str] | None = None


class Node(_Part):
    """A node. ``attached_nodes`` are the tools and memories of an agent."""

    id: Text
    name: Annotated[Text, AfterValidator(_no_blanks)]
    description: str | None = None
    type: Text
    subtype: Text
    configurations: Object = Field(default_factory=dict)
    input_params: Object = Field(default_factory=dict)
    output_params: Object = Field(default_factory=dict)
    attached_nodes: Ids = Field(default_factory=list)


class Connection(_Part):
    """A connection from an output port of a node to the port `RESULT` of another."""

    from_node: Text
    to_node: Text
    id: str | None = None
    output_key: str | None = RESULT
    conversion_function: str | None = None


class Workflow(_Part):
    """A whole document."""

    metadata: Metadata
    nodes: Annotated[list[Node], Field(min_length=1)]
    connections: Annotated[
        list[Connection], BeforeValidator(_or_none, json_schema_input_type=list[Connection] | None)
    ] = Field(default_factory=list)
    triggers: Ids = Field(default_factory=list)
    variables: Object = Field(default_factory=dict)
