"""The sources of a run: by field path, and as the rules and context of a node."""

import re
from collections.abc import Iterator

from pydantic import ValidationError

from callboard.bus.events import Problem
from callboard.languages.problems import Tree, from_pydantic
from callboard.languages.workflow.document import Node, NodeSources, Workflow
from callboard.languages.workflow.sources import Source
from callboard.lib.json_types import JSON

AUGMENTATIONS = ("rules", "context")


_ENTRY = re.compile(r"(.*)\[\d+\]", re.DOTALL)


def declared_sources(document: Workflow, given: JSON) -> tuple[dict[str, Source], list[Problem]]:
    """Collect all sources of a run by field path, in the order of the layers, and the problems of those in the input.

    Field paths: ``input.rules[0]``, ``workflow.context[1]``, ``nodes.<id>.instruction``, ``nodes.<id>.rules[0]``.
    """
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for field in AUGMENTATIONS:
        for name, raw in _input_sources(given, field):
            try:
                sources[name] = Source.model_validate(raw)
            except ValidationError as error:
                found = from_pydantic(error, Source, Tree(raw))
                problems += [Problem(one.code, one.message, name, expected=one.expected) for one in found]
    for field in AUGMENTATIONS:
        layer: list[Source] = getattr(document, field)
        sources |= {f"workflow.{field}[{index}]": source for index, source in enumerate(layer)}
    for node_id, node in document.nodes.items():
        sources[instruction_field(node_id)] = node.instruction
        for field in AUGMENTATIONS:
            own: NodeSources | None = getattr(node, field)
            sources |= {f"nodes.{node_id}.{field}[{i}]": source for i, source in enumerate(own.sources if own else [])}
    return sources, problems


def instruction_field(node_id: str) -> str:
    """Return the field path of a node's instruction."""
    return f"nodes.{node_id}.instruction"


def _input_sources(given: JSON, field: str) -> Iterator[tuple[str, JSON]]:
    """Yield the sources of rules or context in a run's input, a single one or a list. Other values are ordinary
    input."""
    value = given.get(field) if isinstance(given, dict) else None
    items = value if isinstance(value, list) else [value]
    for index, item in enumerate(items):
        if isinstance(item, dict) or (isinstance(item, str) and item.strip()):
            yield f"input.{field}[{index}]", item


Layers = dict[str, list[str]]
"""Texts of rules and context by their place: ``input.rules``, ``workflow.context``, ``nodes.a.rules``."""


def group_layers(contents: dict[str, str]) -> Layers:
    """Group the texts of resolved sources, by field path, into layers."""
    layers: Layers = {}
    for name, text in contents.items():
        entry = _ENTRY.fullmatch(name)
        if entry and text.strip():
            layers.setdefault(entry[1], []).append(text)
    return layers


def effective_texts(layers: Layers, node_id: str, node: Node, field: str) -> list[str]:
    """Return the texts of the rules or context of a node: those of the input, the workflow, and the node itself."""
    own: NodeSources | None = getattr(node, field)
    names = [f"nodes.{node_id}.{field}"]
    if own is None or not own.only:
        names = [f"input.{field}", f"workflow.{field}", *names]
    return [text for name in names for text in layers.get(name, [])]
