"""Which languages there are: a name to each, and which one a text is written in.

A new language is a new folder and one entry in `LANGUAGES`. Its module is imported when it is first asked for.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from callboard.bus.effects import JSON
from callboard.bus.events import Problem
from callboard.languages.language import Language
from callboard.languages.problems import FIELDS_LISTED_MAX, Tree, kind_of
from callboard.languages.source_text import read


@dataclass(frozen=True, slots=True)
class Entry:
    """A language: the module that has it as ``LANGUAGE``, and how its documents look.

    ``recognises`` is asked with the fields of a YAML or JSON document, or None for a text that is neither. A text that
    nobody recognises is taken for this language if its file's name ends in one of ``suffixes``.
    """

    module: str
    recognises: Callable[[dict[str, Any] | None, str], bool]
    looks_like: str
    suffixes: tuple[str, ...] = ()


def _named(fields: dict[str, Any] | None, source: str, names: str) -> set[str]:
    """Return the top-level fields; of a text that cannot be read, those of ``names`` that begin a line."""
    if fields is not None:
        return set(fields)
    return set(re.findall(rf"^[ \t]*[{{\"]*({names})\"?[ \t]*:", source, re.MULTILINE))


def _is_workflow(fields: dict[str, Any] | None, source: str) -> bool:
    """A broken document is recognised by the same fields, so that its own language tells what is wrong with it."""
    return {"nodes", "entry"} <= _named(fields, source, "nodes|entry")


def _is_flow(fields: dict[str, Any] | None, source: str) -> bool:
    return {"entrypoint", "steps"} <= _named(fields, source, "entrypoint|steps")


def _is_graph(fields: dict[str, Any] | None, source: str) -> bool:
    named = _named(fields, source, "nodes|entry|metadata|connections")
    return "nodes" in named and bool(named & {"metadata", "connections"}) and "entry" not in named


_PLAYBOOK_HEADING = re.compile(r"^##\s+(STEP\s+\d+:\s|(?i:SYSTEM|SYSTEM\s+PROMPT|INPUTS|ARTIFACTS)\s*$)", re.MULTILINE)


def _is_playbook(fields: dict[str, Any] | None, source: str) -> bool:
    """To a reader of YAML headings are comments, and the text between them may be anything."""
    others = _is_workflow(fields, source) or _is_flow(fields, source) or _is_graph(fields, source)
    return not others and _PLAYBOOK_HEADING.search(source.replace("\r", "\n")) is not None


LANGUAGES: dict[str, Entry] = {
    "flow": Entry("callboard.languages.flow.language", _is_flow, "JSON with $schema, entrypoint and steps"),
    "graph": Entry("callboard.languages.graph.language", _is_graph, "JSON with metadata, nodes, connections"),
    "playbook": Entry(
        "callboard.languages.playbook.language",
        _is_playbook,
        "markdown with # Title and ## STEP 1: Title",
        (".md", ".markdown"),
    ),
    "workflow": Entry("callboard.languages.workflow.language", _is_workflow, "YAML or JSON with entry, nodes, edges"),
}


def language(name: str) -> Language[Any]:
    """Return a language by name.

    :raises KeyError: if there is none of that name
    """
    return import_module(LANGUAGES[name].module).LANGUAGE


def detect(source: str, file: str = "") -> str | list[Problem]:
    """Say which language a definition is written in; problems if it is none, or could be several.

    ``file`` is the name of its file, if there is one: that says it where the text does not.
    """
    tree = read(source)
    fields = tree.value if isinstance(tree, Tree) and isinstance(tree.value, dict) else None
    found = [name for name, entry in LANGUAGES.items() if entry.recognises(fields, source)]
    if len(found) == 1:
        return found[0]
    if not found:
        found = [name for name, entry in LANGUAGES.items() if entry.suffixes and file.endswith(entry.suffixes)]
        if len(found) == 1:
            return found[0]
    known = "; ".join(f"{name}: {entry.looks_like}" for name, entry in LANGUAGES.items())
    if found:
        message = f"the text could be any of {', '.join(found)}; say which"
        return [Problem("UNKNOWN_LANGUAGE", message, "definition.language", expected=known)]
    if not isinstance(tree, Tree):
        # It cannot be read at all: where it breaks off helps more than a list of languages.
        return tree
    message = f"no language recognises this text{_seen(tree.value)}"
    return [Problem("UNKNOWN_LANGUAGE", message, "definition.language", expected=known)]


def _seen(value: JSON) -> str:
    """Say what was read instead of a definition."""
    match value:
        case None:
            return ": it is empty"
        case dict() if value:
            shown = ", ".join(list(value)[:FIELDS_LISTED_MAX])
            return f", which has {shown}" + (" …" if len(value) > FIELDS_LISTED_MAX else "")
        case dict():
            return ": it is an empty object"
        case _:
            return f": it is {kind_of(value)}"
