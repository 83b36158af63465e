"""Configurations that have no effect: warnings about them, and the refusal of controls that nothing enforces. Pure.

The tables of the node types say which configurations these are (`Field.effect`). A value that is the default, or that
describes what happens anyway, is not reported.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from callboard.languages.graph.coercion import UNFIT, coerce, unwrap
from callboard.languages.graph.node_specs import ENGINE_FIELDS, NODE_TYPES, Field, NodeSpec, node_type
from callboard.languages.graph.templates import is_placeholder
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

NO_EFFECT, UNENFORCED = "NO_EFFECT", "UNENFORCED"
"""The codes of a configuration without effect, and of a control that is refused."""

INEFFECTIVE = "graph.no_effect"
"""The code of the warning in a run."""

_EMPTY = (None, "", [], {})


class Ineffective(Struct, frozen=True):
    """A configuration that has no effect. ``name`` has the member, if only that has none: ``safety_config.rules``.

    ``value`` is the value, if only that has none.
    """

    name: str
    refused: bool = False
    advice: str = ""
    value: JSON = None

    @property
    def written(self) -> str:
        """The configuration with its value, if only that value is refused: ``wait_type: approval``."""
        return self.name if self.value is None else f"{self.name}: {self.value}"


def find_ineffective(spec: NodeSpec | None, type: str, configurations: Mapping[str, JSON]) -> list[Ineffective]:
    """Return the configurations of a node that have no effect, in the node's order.

    One that a template of the node refers to (`$config.key`) has the effect that the author gives it.
    """
    found = [one for key, value in configurations.items() for one in _of_key(_field(spec, type, key), key, value)]
    if not found:
        return []
    text = canonical(dict(configurations)).decode()
    return [one for one in found if not re.search(rf"config\W+{re.escape(one.name.partition('.')[0])}\b", text)]


def describe(found: list[Ineffective]) -> str:
    """Say which configurations have no effect, with what to do instead."""
    names = ", ".join(f"{one.written} ({one.advice})" if one.advice else one.written for one in found)
    return f"{names} {'has' if len(found) == 1 else 'have'} no effect"


def _field(spec: NodeSpec | None, type: str, key: str) -> Field | None:
    """Return the declaration of a configuration: that of the subtype, else one without effect of another subtype."""
    if spec is not None and key in spec.configurations:
        return spec.configurations[key]
    if key in ENGINE_FIELDS:
        return ENGINE_FIELDS[key]
    others = node_type(type).subtypes.values() if type in NODE_TYPES else ()
    declared = [other.configurations[key] for other in others if key in other.configurations]
    unused = all(field.effect != "" or field.reads for field in declared)
    return declared[0] if declared and unused else None


def _of_key(field: Field | None, key: str, value: JSON) -> Iterator[Ineffective]:
    if field is None or (field.effect in ("", "text") and not field.reads and not field.idle):
        return
    given = coerce(unwrap(value, field.type), field.type)
    if given is UNFIT or given in _EMPTY or is_placeholder(given) or given == field.default or given in field.actual:
        return
    if field.idle and given not in field.idle:
        return
    if field.required and field.default in _EMPTY and not field.refused:
        return  # The author has to set it, so a value does not mean that an effect is expected.
    if isinstance(given, dict):
        yield from _of_members(field, key, given)
        return
    alone = given if given in (*field.refused, *field.idle) else None
    yield Ineffective(key, field.effect == "refused" or given in field.refused, field.advice, alone)


def _of_members(field: Field, key: str, given: Mapping[str, JSON]) -> Iterator[Ineffective]:
    defaults = field.default if isinstance(field.default, dict) else {}
    for name, value in given.items():
        usual = defaults.get(name)
        if name in field.reads or value in _EMPTY or value == usual or (usual is None and value is False):
            continue
        yield Ineffective(f"{key}.{name}", field.effect == "refused" or name in field.refused, field.advice)
