"""Bundles: definitions of child runs that are included in a start or in a registered definition.

A path is relative to the definition that names it, with ``/`` between its parts. The bundles of a start have paths
relative to the definition of the start, and those of a child have paths relative to the definition of the child.
"""

from collections.abc import Mapping
from posixpath import dirname, normpath
from typing import Any

import msgspec

from callboard.bus.commands import Bundle, Registration, StartRun
from callboard.bus.events import ChildStart, Problem
from callboard.languages.kit import kits


def child_message(start: StartRun, intent: ChildStart) -> dict[str, Any] | Problem:
    """Return a child's start message.

    The child uses the model and script of its parent unless it names a model, and always the parent's encryption key. A
    definition that is named by its file came with the parent's start, together with everything that it needs.
    """
    given, named = intent.start, dict(intent.definition)
    message: dict[str, Any] = {} if "model" in given else {"model": start.model, "script": start.script}
    message |= {"encryption_key": start.encryption_key} if start.encryption_key else {}
    brought: dict[str, Any] = {}
    if (file := named.pop("file", None)) is not None:
        path = normpath(str(file))
        if path not in start.children:
            known = ", ".join(start.children) or "none"
            problem = f"the start of the run did not include the file {file!r}"
            return Problem("child.file_unknown", problem, "definition.file", expected=f"one of {known}")
        brought = _start_of(start.children, path)
        named = brought["definition"] | named
    message |= brought | given
    if options := brought.get("options", {}) | given.get("options", {}):
        message["options"] = options
    return message | {"definition": named, "input": intent.input, "run_id": intent.child}


def _start_of(children: Mapping[str, Bundle], path: str) -> dict[str, Any]:
    """Return the members of a start message that a bundle determines."""
    bundle, folder = children[path], dirname(path)
    kin = {
        seen_from(folder, one): msgspec.structs.replace(
            children[one], children=[seen_from(folder, name) for name in children[one].children]
        )
        for one in _descendants(children, bundle)
    }
    fields = {
        "definition": {"language": bundle.language, "source": bundle.source},
        "name": bundle.name,
        "files": bundle.files,
        "options": {"skills": bundle.skills} if bundle.skills else {},
        "children": msgspec.to_builtins(kin),
    }
    return {name: value for name, value in fields.items() if value}


def with_registered(start: StartRun, kept: Registration) -> StartRun:
    """Return a start completed with the files, children and options of its registered definition.

    Members of the start itself take precedence.
    """
    skills = {"skills": kept.skills} if kept.skills else {}
    # The files of a definition in code are its sources, which a worker has from elsewhere.
    is_code = kept.language in kits() and bool(kits()[kept.language].code_module)
    return msgspec.structs.replace(
        start,
        files=start.files if is_code else {**kept.files, **start.files},
        children={**kept.children, **start.children},
        options={**skills, **start.options},
        attributes={**kept.attributes, **start.attributes},
    )


def seen_from(folder: str, path: str) -> str:
    """Return a path relative to a folder. Both must be normalised and relative to the same place."""
    here, there = [part for part in folder.split("/") if part], path.split("/")
    common = 0
    while common < min(len(here), len(there) - 1) and here[common] == there[common]:
        common += 1
    return "/".join([*[".."] * (len(here) - common), *there[common:]])


def _descendants(children: Mapping[str, Bundle], bundle: Bundle) -> set[str]:
    """Return the paths of all existing bundles that a bundle names, directly or indirectly."""
    found: set[str] = set()
    open_ones = list(bundle.children)
    while open_ones:
        path = open_ones.pop()
        if path in children and path not in found:
            found.add(path)
            open_ones += children[path].children
    return found
