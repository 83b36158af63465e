"""Bundles: definitions that travel along with a start, or with a registered one, for the child runs that name them.

A path is relative to the place of whoever names it, with ``/`` between its parts; what a start brings is known by paths
relative to its own definition, and what a child brings, by paths relative to that of the child.
"""

from collections.abc import Mapping
from posixpath import dirname, normpath
from typing import Any

import msgspec

from callboard.bus.commands import Bundle, Registration, StartRun
from callboard.bus.events import ChildStart, Problem
from callboard.languages.kit import kits


def child_message(start: StartRun, intent: ChildStart) -> dict[str, Any] | Problem:
    """Return a child's start message; the model, and with it the script, is its parent's unless it names one, and so is
    the key that it is encrypted with.

    A definition that is named by its file came with the parent's start, and with it all that it needs in turn.
    """
    given, named = intent.start, dict(intent.definition)
    message: dict[str, Any] = {} if "model" in given else {"model": start.model, "script": start.script}
    message |= {"encryption_key": start.encryption_key} if start.encryption_key else {}
    brought: dict[str, Any] = {}
    if (file := named.pop("file", None)) is not None:
        path = normpath(str(file))
        if path not in start.children:
            known = ", ".join(start.children) or "none"
            problem = f"no file {file!r} has travelled with the run"
            return Problem("child.file_unknown", problem, "definition.file", expected=f"one of {known}")
        brought = _start_of(start.children, path)
        named = brought["definition"] | named
    message |= brought | given
    if options := brought.get("options", {}) | given.get("options", {}):
        message["options"] = options
    return message | {"definition": named, "input": intent.input, "run_id": intent.child}


def _start_of(children: Mapping[str, Bundle], path: str) -> dict[str, Any]:
    """Return what a bundle says of the start message of its run."""
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
    """Return a start that names a registered definition with all that was registered; what it brings itself counts."""
    skills = {"skills": kept.skills} if kept.skills else {}
    # Where a definition is code, its files are the sources, which a worker has been given otherwise.
    is_code = kept.language in kits() and bool(kits()[kept.language].code_module)
    return msgspec.structs.replace(
        start,
        files=start.files if is_code else {**kept.files, **start.files},
        children={**kept.children, **start.children},
        options={**skills, **start.options},
        attributes={**kept.attributes, **start.attributes},
    )


def seen_from(folder: str, path: str) -> str:
    """Return a path as it is seen from a folder: both normal, and relative to one place."""
    here, there = [part for part in folder.split("/") if part], path.split("/")
    common = 0
    while common < min(len(here), len(there) - 1) and here[common] == there[common]:
        common += 1
    return "/".join([*[".."] * (len(here) - common), *there[common:]])


def _descendants(children: Mapping[str, Bundle], bundle: Bundle) -> set[str]:
    """Return the paths of all that a bundle names, and that those name, as far as they are there."""
    found: set[str] = set()
    open_ones = list(bundle.children)
    while open_ones:
        path = open_ones.pop()
        if path in children and path not in found:
            found.add(path)
            open_ones += children[path].children
    return found
