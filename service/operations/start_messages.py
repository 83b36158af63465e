"""Start messages: what a definition's file and what is asked for with it amount to.

The definition is read here too, so that its problems are told with their lines before anything is started, and so that
the files which it names travel in the message: no worker reads this disk.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.events import Problem
from callboard.languages.language import Definition
from callboard.languages.problems import Tree, kind_of
from callboard.languages.registry import about, authoring, parsed
from callboard.languages.source_text import read
from callboard.languages.triggers import Begun
from callboard.runtime.admission.definitions import give_name
from callboard.runtime.hosting.code_loader import definition_of
from callboard.runtime.hosting.names import named
from callboard.service.operations.bundle_files import Permit, bundled, everything, skills_beside
from callboard.service.operations.errors import RequestRefused, UsageInvalid
from callboard.service.operations.files import document_of, text_of, why
from callboard.service.operations.json_values import NotJson, json_of
from callboard.service.operations.option_values import option_values
from callboard.service.operations.start_request import StartRequest
from callboard.service.operations.trigger_starts import OPTION, begin, begun_of, received_of

STDIN = "-"

AskInputs = Callable[[dict[str, dict[str, Any]]], dict[str, Any]]
"""Asks somebody for inputs: takes their declarations by name, returns their values."""

SCRIPTED = "scripted"
"""The model whose answers stand in a script."""


class Message(Struct, frozen=True):
    """A start message, ready to be published. ``source`` is the definition's text, if it is at hand; ``warnings`` are
    about skill files of the project.
    """

    message: dict[str, Any]
    source: str = ""
    warnings: tuple[Problem, ...] = ()


class PreparedStart(Message, frozen=True, kw_only=True):
    """A start message with the definition that it starts, and the folder that one lies in."""

    definition: Definition[Any]
    folder: Path


def prepared_by_name(request: StartRequest) -> Message:
    """Make the start message of an order whose definition is registered, with all that belongs to it.

    :raises RequestRefused: if the skills or the script cannot be used
    :raises UsageInvalid: if the input or the arguments cannot be read
    :raises UsageInvalid: if the model is scripted, and there is no script
    """
    if request.received is not None:
        raise UsageInvalid("needs the definition itself, which says what its triggers are: a file", OPTION)
    given = _tried_out(request, _with_values(request))
    skills = Path(request.skills) if request.skills else None
    message = {"definition": {"name": request.file}, "input": given}
    return Message(_message(request, message, skills, option_values(request.options)))


def prepared(request: StartRequest, permit: Permit = everything, ask: AskInputs | None = None) -> PreparedStart:
    """Make the start message of an order; ``permit`` says which files may be read.

    What its input lacks is asked for, if somebody can be asked.

    :raises RequestRefused: with every problem of the definition, its files, children, skills or script
    :raises UsageInvalid: if the input or the arguments cannot be read
    :raises UsageInvalid: if the model is scripted, and there is no script
    """
    path, source = _source_of(request)
    unnamed = parsed(source, request.file, request.language)
    if isinstance(unnamed, list):
        raise RequestRefused("definition", unnamed, request.file, source)
    definition = give_name(unnamed, path.stem)
    folder = path.absolute().parent
    known = authoring(definition.language)
    begun = _begun(request, definition)
    given = _given(request, definition, ask if begun is None else None)
    if request.dry_run and not known.dry_runs:
        raise UsageInvalid(f"a {definition.language} has no dry run")
    given = _tried_out(request, given)
    message: dict[str, Any] = {"definition": {"language": definition.language, "source": source}, "input": given}
    if definition.name != unnamed.name:
        message["name"] = definition.name
    found = bundled(definition, given, request, permit)
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
    """Return the file that an order names and the text of its definition; of code that is loaded here, its name."""
    code = named(request.file)
    if code is None:
        path = Path(request.file)
        return path, text_of(path)
    bundle, source = definition_of(*code)
    return bundle.root / Path(code[0]).name, source


def _begun(request: StartRequest, definition: Definition[Any]) -> Begun | None:
    """What a trigger of a definition makes of what came in, if an order has something that did."""
    if request.received is None:
        if request.trigger is not None:
            raise UsageInvalid("chooses among the triggers that something came in for: --received", "--trigger")
        return None
    if request.input_text is not None or request.values:
        raise UsageInvalid("the input of a run is what came in: --input and --value go without it", OPTION)
    return begun_of(definition, received_of(input_of(request.received, OPTION)), request.trigger)


def _tried_out(request: StartRequest, given: Any) -> Any:
    """The input of a run that is only to be tried out says so."""
    if not request.dry_run or not (given is None or isinstance(given, dict)):
        return given
    return {**(given or {}), "dryRun": True}


def _message(
    request: StartRequest, message: dict[str, Any], skills: Path | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return a start message with what an order says besides the definition."""
    if request.arguments_text is not None:
        message["arguments"] = _arguments(request.arguments_text)
    if options := {**_more(request.options_text), **options, **_options(request, skills)}:
        message["options"] = options
    if request.state is not None:
        message["state"] = document_of(Path(request.state), "state", dict)
    if request.script is not None:
        message["script"] = document_of(Path(request.script), "script", dict)
    if request.model == SCRIPTED and request.script is None:
        raise UsageInvalid("--model scripted needs --script FILE, with the answers that it is to give")
    # A script is there to stand in for the model, whatever the default is; both may still be named.
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
    """Return the input that an order gives.

    :raises UsageInvalid: if the input cannot be read, or is no object that a single value could be in
    """
    given = input_of(request.input_text)
    if not request.values:
        return given
    if not isinstance(given, dict | None):
        raise UsageInvalid(f"the input is {kind_of(given)}, not an object", "--value")
    return {**(given or {}), **request.values}


def _given(request: StartRequest, definition: Definition[Any], ask: AskInputs | None) -> Any:
    """Return the input of an order: what it gives, and what somebody was asked for besides."""
    given = _with_values(request)
    if ask is None or not isinstance(given, dict | None):
        return given
    declared = about(definition).inputs
    missing = {name: one for name, one in declared.items() if one.get("required") and name not in (given or {})}
    return {**(given or {}), **ask(missing)} if missing else given


def _arguments(given: str) -> dict[str, Any]:
    found = input_of(given, "--arguments")
    if not isinstance(found, dict):
        message = f"are {kind_of(found)}, and must be an object: a value for each parameter"
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


def _more(given: str | None) -> dict[str, Any]:
    found = input_of(given, "--options")
    if not isinstance(found, dict | None):
        raise UsageInvalid(f"are {kind_of(found)}, and must be an object", "--options")
    return found or {}


def input_of(given: str | None, option: str = "--input") -> Any:
    """Read the value of an option such as ``--input``: JSON; ``@file`` for a JSON or YAML file; ``-`` for stdin.

    :raises UsageInvalid: if it is none of these
    """
    if given is None:
        return None
    where, text = _input_text(given, option)
    if where.endswith((".yaml", ".yml")):
        tree = read(text)
        if isinstance(tree, Tree):
            return tree.value
        raise UsageInvalid("; ".join(f"{where}: {problem}" for problem in tree), option)
    try:
        return json_of(text)
    except NotJson as error:
        raise UsageInvalid(f"{where} {error}", option) from error


def _input_text(given: str, option: str) -> tuple[str, str]:
    """Return where the value's text stands, and the text."""
    if given == STDIN:
        return "stdin", sys.stdin.read()
    if not given.startswith("@"):
        return "the value", given
    try:
        return given[1:], Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageInvalid(f"{given[1:]} cannot be read: {why(error)}", option) from error
