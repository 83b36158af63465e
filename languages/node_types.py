"""Node types: what a node of each type is configured with, takes in and puts out, as tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from callboard.lib.json_types import JSON

ValueType = Literal["string", "integer", "number", "boolean", "array", "object"]


class Field(Struct, frozen=True):
    """A configuration, an input or an output.

    ``instead`` names keys any of which may represent a required one; one that is ``granted`` comes from the account
    that is connected, so that it need not be given. ``options``, ``min`` and ``max`` are told, and not enforced.
    """

    type: ValueType
    required: bool = False
    default: JSON = None
    options: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    instead: tuple[str, ...] = ()
    granted: bool = False


class NodeSpec(Struct, frozen=True):
    """What is known of a subtype."""

    type: str
    subtype: str
    title: str
    configurations: dict[str, Field]
    input_params: dict[str, Field]
    output_params: dict[str, Field]


class NodeType(Struct, frozen=True):
    """A type: its subtypes that have a table, and those that are known without one.

    A node that is configured with one of the keys in ``instead`` needs nothing that its table requires.
    """

    name: str
    subtypes: dict[str, NodeSpec]
    unspecified: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


class NodeTypes(Struct, frozen=True):
    """The types of a language by their names; ``common`` are the fields that every configuration has besides."""

    names: Sequence[str]
    of: Callable[[str], NodeType]
    common: Mapping[str, Field]
