"""Ordering a run: the start message that a definition's file and the options of the command line amount to.

The definition is read here too, so that its problems are told with their lines before anything is started, and so that
the files which it names travel in the message: no worker reads this disk.
"""

import itertools
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

import click

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.languages.language import Definition
from callboard.languages.problems import Tree, dotted, kind_of
from callboard.languages.source_text import read
from callboard.runtime.cli.authoring import Authoring, authoring, parsed
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.options import Order
from callboard.runtime.cli.values import NotJson, json_of
from callboard.runtime.definitions import called

if TYPE_CHECKING:
    from callboard.runtime.cli.skillfiles import SkillFiles

SKILL_FILES = ("skills.yaml", "skills.yml", "skills.json")
"""Names under which a list of skills is found beside a definition."""

STDIN = "-"

BESIDE_MAX = 200
"""How many files that a pattern matches travel along."""

SCRIPTED = "scripted"
"""The model whose answers stand in a script."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A start message, ready to be published, with the definition it starts and the folder that one lies in.

    ``warnings`` are about skill files of the project.
    """

    message: dict[str, Any]
    definition: Definition[Any]
    folder: Path
    warnings: tuple[Problem, ...] = ()


def ordered(order: Order) -> Ordered:
    """Make the start message of an order.

    :raises Refused: with every problem of the definition, its files, skills or script
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
    given = input_of(order.input_text)
    if order.dry_run and not known.dry_runs:
        raise click.UsageError(f"a {definition.language} has no dry run")
    if order.dry_run:
        given = {**given, "dryRun": True} if isinstance(given, dict) else {"dryRun": True} if given is None else given
    message: dict[str, Any] = {"definition": {"language": definition.language, "source": source}, "input": given}
    if definition.name != unnamed.name:
        message["name"] = definition.name
    if order.arguments_text is not None:
        message["arguments"] = _arguments(order.arguments_text)
    files = bundled(definition, known, given, order.file) | beside(known.beside(definition.document, given), folder)
    found = project_skills(order, known.skills(definition.document), folder)
    named = {normpath(name) for name in files}
    files |= {name: text for name, text in found.files.items() if name not in named}
    if files:
        message["files"] = files
    if options := _options(order, known, folder):
        message["options"] = options
    if order.script is not None:
        message["script"] = _document(Path(order.script), "script", dict)
    if order.model == SCRIPTED and order.script is None:
        raise click.UsageError("--model scripted needs --script FILE, with the answers that it is to give")
    # A script is there to stand in for the model, whatever the default is; both may still be named.
    model = order.model or (SCRIPTED if order.script is not None else None)
    others = {"model": model, "run_id": order.run_id, "breakpoints": list(order.breakpoints) or None}
    message |= {name: value for name, value in others.items() if value is not None}
    return Ordered(message, definition, folder, tuple(found.warnings))


def _arguments(given: str) -> dict[str, Any]:
    found = input_of(given, "--arguments")
    if not isinstance(found, dict):
        message = f"are {kind_of(found)}, and must be an object: a value for each parameter"
        raise click.BadParameter(message, param_hint="--arguments")
    return found


def project_skills(order: Order, wanted: Collection[str], folder: Path) -> "SkillFiles":
    """Find the skills that a definition asks for among the skill files of its project."""
    from callboard.runtime.cli.skillfiles import SkillFiles, project_of, skill_files

    project = project_of(folder, Path.cwd()) if wanted and order.project_skills else None
    return skill_files(project, wanted, commands=order.skill_commands) if project else SkillFiles()


def bundled(definition: Definition[Any], known: Authoring, given: Any, file: str) -> dict[str, str]:
    """Read the files that a definition and its input name, relative to its own ``file``, by the path they are named.

    :raises Refused: if any is missing or no text
    """
    folder = Path(file).absolute().parent
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for field, name in known.files(definition.document, given).items():
        try:
            found[name] = (folder / name).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            problems.append(_at(definition, field, "SOURCE_FILE_NOT_FOUND", f"there is no file {name} in {folder}"))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(_at(definition, field, "SOURCE_FILE_READ_FAILED", f"{name} cannot be read: {_why(error)}"))
    if problems:
        raise Refused("definition", problems, file, definition.source)
    return found


def beside(patterns: Sequence[str], folder: Path) -> dict[str, str]:
    """Read the files in a folder that match patterns, by their paths in it; what is no text is passed over."""
    found: dict[str, str] = {}
    for path in itertools.islice(matching(patterns, folder), BESIDE_MAX):
        try:
            found[path.relative_to(folder).as_posix()] = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue  # the run tells that it lacks the text, if it comes to that
    return found


def matching(patterns: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that match patterns; none for a pattern that no file could match."""
    for pattern in patterns:
        try:
            yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())
        except (OSError, ValueError, IndexError):
            continue  # a name that no file can have


def _at(definition: Definition[Any], field: str, code: str, message: str) -> Problem:
    """Make a problem of a field, with its place in the definition if it stands there."""
    tree = read(definition.source)
    if isinstance(tree, Tree):
        # A source's field is named from the whole workflow down, and without the list that a long form puts around it.
        names = {field, field.removeprefix("workflow."), field.replace("[", ".sources[")}
        location = next((one for one in tree.places if dotted(one) in names), None)
        if location is not None:
            return tree.problem(code, message, location)
    return Problem(code, message, field)


def _options(order: Order, known: Authoring, folder: Path) -> dict[str, Any]:
    options: dict[str, Any] = {}
    skills = Path(order.skills) if order.skills else None
    if skills is None and known.skills_beside:
        skills = next((folder / name for name in SKILL_FILES if (folder / name).is_file()), None)
    if skills is not None:
        options["skills"] = _document(skills, "skills", list)
    if order.config:
        options["config"] = order.config
    if order.offline:
        options["offline"] = True
    return options


def _document(path: Path, what: str, shape: type[dict[Any, Any]] | type[list[Any]]) -> Any:
    source = text_of(path)
    tree = read(source)
    if not isinstance(tree, Tree):
        raise Refused(what, tree, str(path), source)
    if not isinstance(tree.value, shape):
        expected = "a list" if shape is list else "an object"
        problem = tree.problem("SCHEMA", f"the {what} are {kind_of(tree.value)}", expected=expected)
        raise Refused(what, [problem], str(path), source)
    return tree.value


def text_of(path: Path) -> str:
    """Read a text file.

    :raises CallboardError: ``file.unreadable``
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallboardError("file.unreadable", f"the file cannot be read as text: {_why(error)}", str(path)) from error


def _why(error: OSError | UnicodeDecodeError) -> str:
    """Say why a file cannot be read, without its name, which stands beside it."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


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
        raise click.BadParameter(f"{given[1:]} cannot be read: {_why(error)}", param_hint=option) from error
