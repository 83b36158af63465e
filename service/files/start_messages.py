"""Builds start messages from the file of a definition and the options of a request.

The definition is parsed here, so that its problems are reported with their lines before a run is started. The files
that it names become part of the message, since workers cannot read the files of this machine.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.events import Problem
from callboard.languages.plan import Definition
from callboard.languages.problems import Tree, kind_of
from callboard.languages.registry import about, authoring, give_name, parse_definition
from callboard.languages.source_text import read_document
from callboard.languages.triggers import Begun
from callboard.lib.text_bytes import NotText, argument_text, decode_text, read_text
from callboard.runtime.client.errors import RequestRefused, UsageInvalid
from callboard.runtime.hosting.names import split_code_name
from callboard.service.files.bundle_files import Permit, build_bundle, permit_all, skills_beside
from callboard.service.files.json_values import NotJson, json_of
from callboard.service.files.local_files import document_of, text_of, why
from callboard.service.files.option_values import option_values
from callboard.service.files.start_request import StartRequest
from callboard.service.files.trigger_starts import OPTION, apply_trigger, begin, parse_received

STDIN = "-"

AskInputs = Callable[[dict[str, dict[str, Any]]], dict[str, Any]]
"""Asks the user for inputs: takes their declarations by name, returns their values."""

SCRIPTED = "scripted"
"""The name of the model that answers from a script."""


class StartMessage(Struct, frozen=True):
    """A start message, ready to be published. ``source`` is the definition's text, if it is known; ``warnings`` are
    about skill files of the project.
    """

    message: dict[str, Any]
    source: str = ""
    warnings: tuple[Problem, ...] = ()


class PreparedStart(StartMessage, frozen=True, kw_only=True):
    """A start message with its definition, and the folder of the definition's file."""

    definition: Definition[Any]
    folder: Path


def prepare_by_name(request: StartRequest) -> StartMessage:
    """Build the start message for a request that names a registered definition.

    :raises RequestRefused: if the skills or the script cannot be used
    :raises UsageInvalid: if the input or the arguments cannot be read
    :raises UsageInvalid: if the model is scripted, and no script is given
    """
    if request.received is not None:
        raise UsageInvalid("needs the definition's file, which has the triggers, not a registered name", OPTION)
    given = _mark_dry_run(request, _with_values(request))
    skills = Path(request.skills) if request.skills else None
    message = {"definition": {"name": request.file}, "input": given}
    return StartMessage(_message(request, message, skills, option_values(request.options)))


def prepare(request: StartRequest, permit: Permit = permit_all, ask: AskInputs | None = None) -> PreparedStart:
    """Build the start message for a request; ``permit`` decides which files may be read.

    ``ask`` is called for required inputs that are missing.

    :raises RequestRefused: with every problem of the definition, its files, children, skills or script
    :raises UsageInvalid: if the input or the arguments cannot be read
    :raises UsageInvalid: if the model is scripted, and no script is given
    """
    path, source = _source_of(request)
    unnamed = parse_definition(source, request.file, request.language)
    if isinstance(unnamed, list):
        raise RequestRefused("definition", unnamed, request.file, source)
    definition = give_name(unnamed, path.stem)
    folder = path.absolute().parent
    known = authoring(definition.language)
    begun = _apply_trigger(request, definition)
    given = _complete_input(request, definition, ask if begun is None else None)
    if request.dry_run and not known.dry_runs:
        raise UsageInvalid(f"the language {definition.language} has no dry run")
    given = _mark_dry_run(request, given)
    message: dict[str, Any] = {"definition": {"language": definition.language, "source": source}, "input": given}
    if definition.name != unnamed.name:
        message["name"] = definition.name
    found = build_bundle(definition, given, request, permit)
    brought = {"files": found.files, "children": msgspec.to_builtins(found.children)}
    message |= {name: value for name, value in brought.items() if value}
    skills = Path(request.skills) if request.skills else skills_beside(folder, known)
    message = _message(request, message, skills, option_values(request.options, definition.language))
    if begun is not None:
        message = begin(message, begun, definition, definition.name or unnamed.name)
    if request.strict and found.warnings:
        problems = [msgspec.structs.replace(one, severity="error") for one in found.warnings]
        raise RequestRefused("start", problems, request.file)
    return PreparedStart(message, source, tuple(found.warnings), definition=definition, folder=folder)


def _source_of(request: StartRequest) -> tuple[Path, str]:
    """Return the file that a request names, and the text of its definition. For hosted code, the text is its name."""
    code = split_code_name(request.file)
    if code is None:
        path = Path(request.file)
        return path, text_of(path)

    from callboard.runtime.hosting.code_loader import definition_of

    return definition_of(*code)


def _apply_trigger(request: StartRequest, definition: Definition[Any]) -> Begun | None:
    """Return the start that a trigger of a definition makes of the received request; None without ``--received``."""
    if request.received is None:
        if request.trigger is not None:
            raise UsageInvalid("chooses the trigger for a received request; pass it with --received", "--trigger")
        return None
    if request.input_text is not None or request.values:
        raise UsageInvalid("the received request is the input of the run; omit --input and --value", OPTION)
    return apply_trigger(definition, parse_received(input_of(request.received, OPTION)), request.trigger)


def _mark_dry_run(request: StartRequest, given: Any) -> Any:
    """Return the input, marked as dry run if the request is one."""
    if not request.dry_run or not (given is None or isinstance(given, dict)):
        return given
    return {**(given or {}), "dryRun": True}


def _message(
    request: StartRequest, message: dict[str, Any], skills: Path | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return a start message with the other options of a request."""
    if request.arguments_text is not None:
        message["arguments"] = _arguments(request.arguments_text)
    if options := {**_parse_options(request.options_text), **options, **_options(request, skills)}:
        message["options"] = options
    if request.state is not None:
        message["state"] = document_of(Path(request.state), "state", dict)
    if request.script is not None:
        message["script"] = document_of(Path(request.script), "script", dict)
    if request.model == SCRIPTED and request.script is None:
        raise UsageInvalid("--model scripted needs --script FILE, with the model's answers")
    # A script replaces the default model, but not an explicitly named one.
    model = request.model or (SCRIPTED if request.script is not None else None)
    others = {
        "model": model,
        "run_id": request.run_id,
        "breakpoints": list(request.breakpoints) or None,
        "tags": request.tags or None,
        "attributes": request.attributes or None,
        "limits": option_values(request.limits) or None,
        "encryption_key": request.encryption_key,
    }
    return message | {name: value for name, value in others.items() if value is not None}


def _with_values(request: StartRequest) -> Any:
    """Return the input of a request, including its single values.

    :raises UsageInvalid: if the input cannot be read, or single values are given and it is not an object
    """
    given = input_of(request.input_text)
    if not request.values:
        return given
    if not isinstance(given, dict | None):
        raise UsageInvalid(f"needs an object as input, but the input is {kind_of(given)}", "--value")
    try:
        values = {argument_text(name): argument_text(text) for name, text in request.values.items()}
    except NotText as error:
        raise UsageInvalid(str(error), "--value") from error
    return {**(given or {}), **values}


def _complete_input(request: StartRequest, definition: Definition[Any], ask: AskInputs | None) -> Any:
    """Return the input of a request, including the missing values for which the user was asked."""
    given = _with_values(request)
    if ask is None or not isinstance(given, dict | None):
        return given
    declared = about(definition).inputs
    missing = {name: one for name, one in declared.items() if one.get("required") and name not in (given or {})}
    return {**(given or {}), **ask(missing)} if missing else given


def _arguments(given: str) -> dict[str, Any]:
    found = input_of(given, "--arguments")
    if not isinstance(found, dict):
        message = f"are {kind_of(found)}; expected an object with a value for each parameter"
        raise UsageInvalid(message, "--arguments")
    return found


def _options(request: StartRequest, skills: Path | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if skills is not None:
        options["skills"] = document_of(skills, "skills", list)
    if request.config:
        options["config"] = request.config
    if request.offline:
        options["offline"] = True
    if request.strict:
        options["strict"] = True
    return options


def _parse_options(given: str | None) -> dict[str, Any]:
    found = input_of(given, "--options")
    if not isinstance(found, dict | None):
        raise UsageInvalid(f"are {kind_of(found)}; expected an object", "--options")
    return found or {}


def input_of(given: str | None, option: str = "--input") -> Any:
    """Read the value of an option such as ``--input``: JSON; ``@file`` for a JSON or YAML file; ``-`` for stdin.

    :raises UsageInvalid: if the file cannot be read, or the value is not valid
    """
    if given is None:
        return None
    where, text = _input_text(given, option)
    if where.endswith((".yaml", ".yml")):
        tree = read_document(text)
        if isinstance(tree, Tree):
            return tree.value
        raise UsageInvalid("; ".join(f"{where}: {problem}" for problem in tree), option)
    try:
        return json_of(text)
    except NotJson as error:
        raise UsageInvalid(f"{where} {error}", option) from error


def _stdin_bytes() -> bytes:
    """Read standard input; a program may have replaced it by a stream of text."""
    binary = getattr(sys.stdin, "buffer", None)
    return binary.read() if binary is not None else sys.stdin.read().encode("utf-8", "surrogateescape")


def _input_text(given: str, option: str) -> tuple[str, str]:
    """Return the source of the value's text, for messages, and the text."""
    where = "stdin" if given == STDIN else given[1:] if given.startswith("@") else "the value"
    try:
        if given == STDIN:
            return where, decode_text(_stdin_bytes())
        return where, read_text(Path(where)) if given.startswith("@") else argument_text(given)
    except (OSError, NotText) as error:
        raise UsageInvalid(f"{where} cannot be read: {why(error)}", option) from error
