"""Ordering a run: the start message that a definition's file and the options of the command line amount to.

The definition is read here too, so that its problems are told with their lines before anything is started, and so that
the files which it names travel in the message: no worker reads this disk.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from callboard.bus.events import Problem
from callboard.languages.language import Definition
from callboard.languages.problems import Tree, kind_of
from callboard.languages.source_text import read
from callboard.runtime.cli.authoring import about, authoring, parsed
from callboard.runtime.cli.bundling import Permit, bundled, everything, skills_beside
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.options import Order
from callboard.runtime.cli.texts import document_of, text_of, why
from callboard.runtime.cli.values import NotJson, json_of
from callboard.runtime.definitions import called

STDIN = "-"

AskInputs = Callable[[dict[str, dict[str, Any]]], dict[str, Any]]
"""Asks somebody for inputs: takes their declarations by name, returns their values."""

SCRIPTED = "scripted"
"""The model whose answers stand in a script."""


@dataclass(frozen=True, slots=True)
class Message:
    """A start message, ready to be published. ``source`` is the definition's text, if it is at hand; ``warnings`` are
    about skill files of the project.
    """

    message: dict[str, Any]
    source: str = ""
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered(Message):
    """A start message with the definition that it starts, and the folder that one lies in."""

    definition: Definition[Any]
    folder: Path


def ordered_by_name(order: Order) -> Message:
    """Make the start message of an order whose definition is registered, with all that belongs to it.

    :raises Refused: if the skills or the script cannot be used
    :raises click.BadParameter: if the input or the arguments cannot be read
    :raises click.UsageError: if the model is scripted, and there is no script
    """
    given = _tried_out(order, _with_values(order))
    skills = Path(order.skills) if order.skills else None
    return Message(_message(order, {"definition": {"name": order.file}, "input": given}, skills))


def ordered(order: Order, permit: Permit = everything, ask: AskInputs | None = None) -> Ordered:
    """Make the start message of an order; ``permit`` says which files may be read.

    What its input lacks is asked for, if somebody can be asked.

    :raises Refused: with every problem of the definition, its files, children, skills or script
    :raises click.BadParameter: if the input or the arguments cannot be read
    :raises click.UsageError: if the model is scripted, and there is no script
    """
    path = Path(order.file)
    source = text_of(path)
    unnamed = parsed(source, order.file)
    if isinstance(unnamed, list):
        raise Refused("definition", unnamed, order.file, source)
    definition = called(unnamed, path.stem)
    folder = path.absolute().parent
    known = authoring(definition.language)
    given = _given(order, definition, ask)
    if order.dry_run and not known.dry_runs:
        raise click.UsageError(f"a {definition.language} has no dry run")
    given = _tried_out(order, given)
    message: dict[str, Any] = {"definition": {"language": definition.language, "source": source}, "input": given}
    if definition.name != unnamed.name:
        message["name"] = definition.name
    found = bundled(definition, given, order, permit)
    brought = {"files": found.files, "children": msgspec.to_builtins(found.children)}
    message |= {name: value for name, value in brought.items() if value}
    skills = Path(order.skills) if order.skills else skills_beside(folder, known)
    message = _message(order, message, skills)
    if order.strict and found.warnings:
        raise Refused("start", [msgspec.structs.replace(one, severity="error") for one in found.warnings], order.file)
    return Ordered(message, source, tuple(found.warnings), definition=definition, folder=folder)


def _tried_out(order: Order, given: Any) -> Any:
    """The input of a run that is only to be tried out says so."""
    if not order.dry_run or not (given is None or isinstance(given, dict)):
        return given
    return {**(given or {}), "dryRun": True}


def _message(order: Order, message: dict[str, Any], skills: Path | None) -> dict[str, Any]:
    """Return a start message with what an order says besides the definition."""
    if order.arguments_text is not None:
        message["arguments"] = _arguments(order.arguments_text)
    if options := _options(order, skills):
        message["options"] = options
    if order.state is not None:
        message["state"] = document_of(Path(order.state), "state", dict)
    if order.script is not None:
        message["script"] = document_of(Path(order.script), "script", dict)
    if order.model == SCRIPTED and order.script is None:
        raise click.UsageError("--model scripted needs --script FILE, with the answers that it is to give")
    # A script is there to stand in for the model, whatever the default is; both may still be named.
    model = order.model or (SCRIPTED if order.script is not None else None)
    others = {"model": model, "run_id": order.run_id, "breakpoints": list(order.breakpoints) or None}
    return message | {name: value for name, value in others.items() if value is not None}


def _with_values(order: Order) -> Any:
    """Return the input that an order gives.

    :raises click.BadParameter: if the input cannot be read, or is no object that a single value could be in
    """
    given = input_of(order.input_text)
    if not order.values:
        return given
    if not isinstance(given, dict | None):
        raise click.BadParameter(f"the input is {kind_of(given)}, not an object", param_hint="--value")
    return {**(given or {}), **order.values}


def _given(order: Order, definition: Definition[Any], ask: AskInputs | None) -> Any:
    """Return the input of an order: what it gives, and what somebody was asked for besides."""
    given = _with_values(order)
    if ask is None or not isinstance(given, dict | None):
        return given
    declared = about(definition).inputs
    missing = {name: one for name, one in declared.items() if one.get("required") and name not in (given or {})}
    return {**(given or {}), **ask(missing)} if missing else given


def _arguments(given: str) -> dict[str, Any]:
    found = input_of(given, "--arguments")
    if not isinstance(found, dict):
        message = f"are {kind_of(found)}, and must be an object: a value for each parameter"
        raise click.BadParameter(message, param_hint="--arguments")
    return found


def _options(order: Order, skills: Path | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if skills is not None:
        options["skills"] = document_of(skills, "skills", list)
    if order.config:
        options["config"] = order.config
    if order.offline:
        options["offline"] = True
    if order.strict:
        options["strict"] = True
    if order.autonomous:
        options["autonomous"] = True
    if order.responses:
        options["elicit"] = order.responses
    return {**_more(order.options_text), **options}


def _more(given: str | None) -> dict[str, Any]:
    found = input_of(given, "--options")
    if not isinstance(found, dict | None):
        raise click.BadParameter(f"are {kind_of(found)}, and must be an object", param_hint="--options")
    return found or {}


def input_of(given: str | None, option: str = "--input") -> Any:
    """Read the value of an option such as ``--input``: JSON; ``@file`` for a JSON or YAML file; ``-`` for stdin.

    :raises click.BadParameter: if it is none of these
    """
    if given is None:
        return None
    where, text = _input_text(given, option)
    if where.endswith((".yaml", ".yml")):
        tree = read(text)
        if isinstance(tree, Tree):
            return tree.value
        raise click.BadParameter("; ".join(f"{where}: {problem}" for problem in tree), param_hint=option)
    try:
        return json_of(text)
    except NotJson as error:
        raise click.BadParameter(f"{where} {error}", param_hint=option) from error


def _input_text(given: str, option: str) -> tuple[str, str]:
    """Return where the value's text stands, and the text."""
    if given == STDIN:
        return "stdin", sys.stdin.read()
    if not given.startswith("@"):
        return "the value", given
    try:
        return given[1:], Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{given[1:]} cannot be read: {why(error)}", param_hint=option) from error
