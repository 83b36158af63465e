"""The options of a start, and the start message that is made from them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from callboard.languages.hosting import HostedObject
from callboard.lib.text import encode_json
from callboard.runtime.client.errors import UsageInvalid
from callboard.runtime.hosting.code_loader import load_object
from callboard.service.files.local_files import document_of
from callboard.service.files.start_messages import SCRIPTED, StartMessage, prepare
from callboard.service.files.start_request import StartRequest

DefinitionFile = str | os.PathLike[str]

Startable = DefinitionFile | HostedObject
"""What can be started: a file with a definition, or a workflow of this program."""


class Start(TypedDict, total=False):
    """The options of a start besides the file of its definition: the start message of ``docs/reference/messages.md``.

    Without a file, ``source`` is the text of the definition, or ``registered`` the name of a registered one.
    ``language`` is needed only if the text is valid in several languages. ``run_id`` is the idempotency key: a second
    start with it returns the same run. ``model`` is ``provider`` or ``provider:model``. A ``script``, or the path of
    one, replaces the model. ``files`` are the texts that a ``source`` refers to, by path; files that a definition file
    refers to are read from its folder. ``tags`` and ``attributes`` (named paths in the input and the output) are for
    searching. ``encryption_key`` names the key that encrypts the run's contents.
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


def start_message(file: Startable | None, start: Start) -> StartMessage:
    """Make the start message. If the definition is a file, check it, and read the files that it refers to.

    :raises RequestRefused: with every problem of the definition
    :raises UsageInvalid: if there is not exactly one definition
    :raises CallboardError: ``file.unreadable``
    """
    given: dict[str, Any] = {**start}
    unknown = given.keys() - Start.__annotations__.keys()
    if unknown:
        options = "option" if len(unknown) == 1 else "options"
        raise UsageInvalid(f"unknown start {options}: {', '.join(sorted(unknown))}", "start")
    if sum(one is not None for one in (file, start.get("source"), start.get("registered"))) != 1:
        raise UsageInvalid("pass exactly one definition: a file, source or registered", "start")
    rest = {name: value for name, value in given.items() if name not in _DEFINITION and value is not None}
    if isinstance(script := rest.get("script"), str | os.PathLike):
        rest["script"] = document_of(Path(script), "script", dict)
    if "script" in rest:
        # A script replaces the model, unless the start names one.
        rest.setdefault("model", SCRIPTED)
    if file is None:
        names = {"source": "source", "language": "language", "registered": "name"}
        definition = {names[name]: given[name] for name in _DEFINITION if given.get(name) is not None}
        return StartMessage({"definition": definition, **rest}, given.get("source") or "")
    if not isinstance(file, str | os.PathLike):
        text = load_object(file).definitions[file.name]
        return StartMessage({"definition": {"source": text}, **rest}, text)
    return _of_file(file, start.get("language"), rest)


def _of_file(file: DefinitionFile, language: str | None, rest: dict[str, Any]) -> StartMessage:
    texts = {name: encode_json(rest[name]).decode() for name in ("input", "arguments") if name in rest}
    made = prepare(
        StartRequest(os.fspath(file), texts.get("input"), arguments_text=texts.get("arguments"), language=language)
    )
    files = {**made.message.get("files", {}), **rest.get("files", {})}
    options = {**made.message.get("options", {}), **rest.get("options", {})}
    joined = {"files": files, "options": options}
    message = {**made.message, **rest, **{name: value for name, value in joined.items() if value}}
    return StartMessage(message, made.source, made.warnings)
