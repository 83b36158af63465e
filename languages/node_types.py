"""Node types: tables of the configuration, inputs and outputs of each type of node."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from callboard.lib.json_types import JSON

ValueType = Literal["string", "integer", "number", "boolean", "array", "object"]


class Field(Struct, frozen=True):
    """A configuration, an input or an output.

    Any of the keys in ``instead`` satisfies the requirement too. A ``granted`` field comes from the connected account
    and may be omitted. ``options``, ``min`` and ``max`` are shown to authors, and not enforced.

    ``effect`` is empty if a configuration is read; else it is a ``text`` for people, or has no effect (``none``). A
    control without effect is ``refused`` where it is set. ``reads`` are the only members of an object that are used;
    ``refused`` are members of an object, or values, that are refused; ``actual`` are values that describe what happens
    anyway; ``idle`` are values without an effect of a configuration that is read. ``advice`` says what to do instead.
    """

    type: ValueType
    required: bool = False
    default: JSON = None
    options: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    instead: tuple[str, ...] = ()
    granted: bool = False
    effect: Literal["", "text", "none", "refused"] = ""
    reads: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    actual: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    advice: str = ""


class NodeSpec(Struct, frozen=True):
    """The table of a subtype."""

    type: str
    subtype: str
    title: str
    configurations: dict[str, Field]
    input_params: dict[str, Field]
    output_params: dict[str, Field]


class NodeType(Struct, frozen=True):
    """A type with its ``subtypes``; the ``unspecified`` ones are known, but have no table.

    A node that is configured with one of the keys in ``instead`` needs none of the fields that its table requires.
    """

    name: str
    subtypes: dict[str, NodeSpec]
    unspecified: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


class NodeTypes(Struct, frozen=True):
    """The node types of a language, by name; ``common`` are the fields that every configuration may have."""

    names: Sequence[str]
    of: Callable[[str], NodeType]
    common: Mapping[str, Field]
