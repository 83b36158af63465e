"""What a start says: the definition, and what a run of it is given; and the start message that this amounts to."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from callboard.bus.text import encode_json
from callboard.runtime.operations.errors import UsageInvalid
from callboard.runtime.operations.files import document_of
from callboard.runtime.operations.start_messages import SCRIPTED, Message, prepared
from callboard.runtime.operations.start_request import StartRequest

DefinitionFile = str | os.PathLike[str]


class Start(TypedDict, total=False):
    """What a start may say besides the file of its definition; see the start message in ``docs/messages.md``.

    Without a file, ``source`` is the definition's text, or ``registered`` the name under which it is kept. ``language``
    is needed only where a text could be of several. ``run_id`` is the idempotency key: who starts it twice gets the
    same run. ``model`` is ``provider`` or ``provider:model``; a ``script``, or the file that one is in, stands in for
    it. ``files`` are texts that a source names, by path; what a file names is read beside it. By its ``tags`` a run is
    found, and by ``attributes``, paths in its input and output by name; what it says is encrypted with the key that
    ``encryption_key`` names.
    """

    source: str
    language: str
    registered: str
    input: Any
    arguments: Mapping[str, Any]
    model: str
    script: Mapping[str, Any] | DefinitionFile
    run_id: str
    options: Mapping[str, Any]
    limits: Mapping[str, Any]
    breakpoints: Sequence[str]
    files: Mapping[str, str]
    state: Mapping[str, Any]
    tags: Mapping[str, str]
    attributes: Mapping[str, str]
    encryption_key: str


_DEFINITION = ("source", "language", "registered")


def start_message(file: DefinitionFile | None, start: Start) -> Message:
    """Make the start message; a definition that is a file is checked, and what it names is read.

    :raises RequestRefused: with every problem of the definition
    :raises UsageInvalid: if there is not exactly one definition
    :raises CallboardError: ``file.unreadable``
    """
    given: dict[str, Any] = {**start}
    unknown = given.keys() - Start.__annotations__.keys()
    if unknown:
        raise UsageInvalid(f"a start has no {', '.join(sorted(unknown))}", "start")
    if sum(one is not None for one in (file, start.get("source"), start.get("registered"))) != 1:
        raise UsageInvalid("give one definition: a file, or source, or registered", "start")
    rest = {name: value for name, value in given.items() if name not in _DEFINITION and value is not None}
    if isinstance(script := rest.get("script"), str | os.PathLike):
        rest["script"] = document_of(Path(script), "script", dict)
    if "script" in rest:
        # A script is there to stand in for the model.
        rest.setdefault("model", SCRIPTED)
    if file is None:
        names = {"source": "source", "language": "language", "registered": "name"}
        definition = {names[name]: given[name] for name in _DEFINITION if given.get(name) is not None}
        return Message({"definition": definition, **rest}, given.get("source") or "")
    return _of_file(file, start.get("language"), rest)


def _of_file(file: DefinitionFile, language: str | None, rest: dict[str, Any]) -> Message:
    texts = {name: encode_json(rest[name]).decode() for name in ("input", "arguments") if name in rest}
    made = prepared(
        StartRequest(os.fspath(file), texts.get("input"), arguments_text=texts.get("arguments"), language=language)
    )
    files = {**made.message.get("files", {}), **rest.get("files", {})}
    options = {**made.message.get("options", {}), **rest.get("options", {})}
    joined = {"files": files, "options": options}
    message = {**made.message, **rest, **{name: value for name, value in joined.items() if value}}
    return Message(message, made.source, made.warnings)
