"""Prompt references: where the text of a prompt comes from, and which files a start has to bring for its prompts.

A text that the start brought, in its options or as a file, is used as it is. The worker provides all other prompts, by
an effect of kind ``prompt``.
"""

import re
from collections.abc import Iterator, Mapping
from posixpath import normpath

import msgspec
from msgspec import Struct

from callboard.bus.effects import McpTools
from callboard.languages.language import Node, Ok
from callboard.languages.playbook.directives import scheme_of
from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.interpolation import TextTooLong, render
from callboard.languages.playbook.names import Names, text_of
from callboard.languages.playbook.options import PlaybookOptions
from callboard.languages.playbook.patterns import PLACEHOLDER, VARIABLE
from callboard.lib.json_types import JSON


class MissingText(Struct, frozen=True):
    """The text is missing. ``undefined`` is the variable that should hold it; it is empty for all other reasons."""

    reason: str
    undefined: str = ""


async def prompt_text(
    node: Node, slot: str, reference: str, names: Names, options: PlaybookOptions, files: Mapping[str, str]
) -> str | MissingText:
    """Find the text of a prompt reference, the text in the parentheses of ``@prompt``."""
    if variable := VARIABLE.fullmatch(reference.strip()):
        found = names.find(variable[1])
        return MissingText(f"the variable {variable[1]!r} is not defined", variable[1]) if found is None else found
    try:
        wanted = render(reference, names.find).text.strip()
    except TextTooLong as error:
        return MissingText(str(error))
    if wanted in options.prompts:
        return options.prompts[wanted]
    # A value that holds a colon does not make a scheme.
    scheme = scheme_of(reference)
    identifier = wanted.partition(":")[2].strip() if scheme is not None else wanted
    match scheme:
        case "file":
            return _file(identifier, files)
        case None | "library" | "mcp":
            request: JSON = {"scheme": scheme or "", "identifier": identifier, **_server(scheme, identifier, options)}
            asked = await node.call(slot, "prompt", request)
            if isinstance(asked, Ok) and isinstance(asked.value, str):
                return asked.value
            return MissingText(f"there is no prompt {wanted!r}" if isinstance(asked, Ok) else asked.error.message)
        case _:
            return MissingText(f"the scheme {scheme!r} is not supported, and the start brought no prompt {wanted!r}")


def _server(scheme: str | None, identifier: str, options: PlaybookOptions) -> dict[str, JSON]:
    """Return the MCP server that an identifier names, if the start has a connection to it."""
    source = options.source(identifier.partition("/")[0]) if scheme == "mcp" else None
    return {"source": msgspec.to_builtins(source)} if isinstance(source, McpTools) else {}


def _file(path: str, files: Mapping[str, str]) -> str | MissingText:
    if is_outside(path):
        return MissingText(f"the path {path!r} leads out of the playbook's folder")
    wanted = normpath(path)
    for name, text in files.items():
        if normpath(name) == wanted:
            return text
    brought = ", ".join(sorted(files)) or "none"
    return MissingText(f"the start brought no file {path!r} (it brought {brought})")


def is_outside(path: str) -> bool:
    """Whether a path is absolute or has a part that leads upward, on any system."""
    parts = path.replace("\\", "/").split("/")
    return ".." in parts or parts[0] == "" or parts[0].endswith(":")


_GLOB = re.compile(r"([*?\[])")
_MANY = re.compile(r"\*{2,}")


def prompt_files(playbook: Playbook, given: JSON) -> list[str]:
    """Return the paths in ``@prompt(file:…)`` as patterns of `glob`, with an asterisk for each unknown value."""
    known = {one.name: one.default for one in playbook.inputs if not one.required}
    known |= {name: text_of(value) for name, value in (given if isinstance(given, dict) else {}).items()}
    paths = (reference.partition(":")[2].strip() for reference in _file_references(playbook))
    patterns = dict.fromkeys(_glob_pattern(path, known) for path in paths)
    return [pattern for pattern in patterns if pattern and not is_outside(pattern)]


def _file_references(playbook: Playbook) -> Iterator[str]:
    for step in playbook.steps:
        for one in (step, *(inner for branch in step.branches for inner in branch.steps)):
            if one.prompt_ref is not None and scheme_of(one.prompt_ref.prompt_id) == "file":
                yield one.prompt_ref.prompt_id


def _glob_pattern(path: str, known: Mapping[str, str]) -> str:
    pieces: list[str] = []
    at = 0
    for match in PLACEHOLDER.finditer(path):
        value = known.get(match[1])
        pieces += [_GLOB.sub(r"[\1]", path[at : match.start()]), "*" if value is None else _GLOB.sub(r"[\1]", value)]
        at = match.end()
    return _MANY.sub("*", "".join([*pieces, _GLOB.sub(r"[\1]", path[at:])]))
