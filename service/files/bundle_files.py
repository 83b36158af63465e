"""Bundles a definition with the files it names, since workers cannot read the files of this machine.

If a definition names the file of a child definition, the bundle also contains the files that the child names, and the
skills next to it.

The skill files of a project are in ``.sweny/skills``, ``.claude/skills``, ``.agents/skills`` and ``.gemini/skills``,
the first with the highest rank (workflow specification, *Skills: Multi-Harness Discovery*). The home folder is not
searched. Skill files come with a cloned repository, and the user may not have read them. So a program that a skill file
names as its MCP server is left out unless the user permits it. The text, and servers with a URL, are kept.
"""

import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from posixpath import dirname, isabs, join, normpath
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.bus.commands import Bundle
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.languages.authoring import Authoring
from callboard.languages.plan import Definition
from callboard.languages.problems import Tree, format_location
from callboard.languages.registry import authoring, give_name, parse_definition
from callboard.languages.skills.server_files import SERVER_FILES, kept_servers, read_server_file
from callboard.languages.skills.skill_files import (
    ABSENT,
    FOLDERS,
    in_file,
    read_front_matter,
    read_skill_file,
    unused_files,
)
from callboard.languages.source_text import read_document
from callboard.lib.private_files import LeadsOutside, path_below
from callboard.lib.text_bytes import NotText, read_text
from callboard.runtime.client.errors import RequestRefused
from callboard.service.files.local_files import document_of, why
from callboard.service.files.start_request import StartRequest

SKILL_FILES = ("skills.yaml", "skills.yml", "skills.json")
"""File names of a list of skills next to a definition."""

BESIDE_MAX = 200
"""Maximum number of bundled files that match patterns of a definition."""

Permit = Callable[[Path, str], None]
"""Called with a definition's path and the name of a file before the file is read; raises if reading is forbidden."""


def permit_all(_definition: Path, _name: str) -> None:
    """Permit every file."""


class Bundled(Struct, frozen=True):
    """The files and children that are sent with a definition; ``warnings`` are about skill files of the project."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    children: dict[str, Bundle] = field(default_factory=dict[str, Bundle])
    warnings: list[Problem] = field(default_factory=list[Problem])


def build_bundle(
    definition: Definition[Any], given: Any, request: StartRequest, permit: Permit = permit_all
) -> Bundled:
    """Read the files that a definition and its input name; ``request`` names the definition's file.

    :raises RequestRefused: with all files that are missing or not text, and all invalid child definitions
    :raises CallboardError: if reading a file is forbidden
    """
    path = Path(request.file)
    bundling = _Bundling(request, permit, definition, path)
    known = authoring(definition.language)
    found = bundling.files(definition, known, given, path, "")
    for at, name in known.children(definition).items():
        bundling.child(path, name, "", at)
    if bundling.problems:
        raise RequestRefused("definition", bundling.problems, request.file, definition.source)
    return Bundled(found, bundling.children, bundling.warnings)


def skills_beside(folder: Path, known: Authoring) -> Path | None:
    """Return the file with the list of skills next to a definition, if the language uses one.

    :raises CallboardError: ``file.unreadable`` if it is a link to a file outside of the folder
    """
    here = (folder / name for name in SKILL_FILES if known.skills_beside)
    path = next((path for path in here if path.is_file()), None)
    if path is None:
        return None
    try:
        return path_below(folder, path.name)
    except LeadsOutside as error:
        remedy = "Put the file itself there, or name it with --skills."
        raise CallboardError("file.unreadable", f"the list of skills {error} by a link", str(path), remedy) from error


class _Bundling(Struct):
    """Builds the bundle of one definition. A problem of a file is reported at the field that names the file."""

    request: StartRequest
    permit: Permit
    root: Definition[Any]
    path: Path
    children: dict[str, Bundle] = field(default_factory=dict[str, Bundle])
    warnings: list[Problem] = field(default_factory=list[Problem])
    problems: list[Problem] = field(default_factory=list[Problem])

    def files(self, definition: Definition[Any], known: Authoring, given: Any, path: Path, at: str) -> dict[str, str]:
        """Return the files that a definition names, and the skill files of the project that it uses."""
        found: dict[str, str] = {}
        for field_, name in known.files(definition.document, given).items():
            text = self._text(path, name, at or field_)
            if text is not None:
                found[name] = text
        found |= self._beside(known.beside(definition.document, given), path)
        skills = project_skills(self.request, known.skills(definition.document), path.absolute().parent)
        self.warnings += skills.warnings
        defined = known.skills_defined(definition.document)
        for skill, problems in skills.unusable.items():
            if skill in defined or self._gives(skill, path.parent, known):
                self.warnings += problems
            else:
                self.problems += [
                    msgspec.structs.replace(one, severity="error", expected=one.expected or ABSENT) for one in problems
                ]
        named = {normpath(name) for name in found}
        return found | {name: text for name, text in skills.files.items() if name not in named}

    def _gives(self, skill: str, folder: Path, known: Authoring) -> bool:
        """Return whether the start itself brings a skill: in a list of skills, or perhaps in its options."""
        if self.request.options_text is not None or "skills" in self.request.options:
            return True
        given = Path(self.request.skills) if self.request.skills else skills_beside(folder, known)
        listed: list[Any] = document_of(given, "skills", list) if given else []
        return any(isinstance(one, dict) and one.get("id") == skill for one in listed)

    def _beside(self, patterns: Sequence[str], path: Path) -> dict[str, str]:
        """Read the files next to a definition that match patterns, without those that are not text."""
        found: dict[str, str] = {}
        folder = path.absolute().parent
        for file in islice(_matching(patterns, folder), BESIDE_MAX):
            self.permit(path, str(file))
            name = file.relative_to(folder).as_posix()
            try:
                found[name] = read_text(path_below(folder, name))
            except LeadsOutside:
                message = f"{name} is a link to a file outside of {folder}; it is not sent with the start"
                self.warnings.append(Problem("SOURCE_FILE_OUTSIDE_ROOT", message, name, severity="warning"))
            except (OSError, ValueError, RuntimeError):
                continue  # If the run needs the text, it reports that it is missing.
        return found

    def child(self, path: Path, name: str, folder: str, at: str) -> str | None:
        """Add a child definition to the bundle, and return its path there. The definition that names it is the file
        ``path``, and in ``folder`` of the bundle."""
        key = normpath(join(folder, name))
        if isabs(name):
            message = f"{name} is an absolute path of a child definition"
            self._report(at, "CHILD_FILE_ABSOLUTE", message, "a path relative to the definition")
        elif key not in self.children and (source := self._text(path, name, at)) is not None:
            self._take(key, path.parent / name, source, at)
        return key if key in self.children else None

    def _take(self, key: str, path: Path, source: str, at: str) -> None:
        unnamed = parse_definition(source, path.name)
        if isinstance(unnamed, list):
            for problem in unnamed:
                place = f"{key}:{problem.line}" if problem.line else key
                self._report(at, problem.code, f"{place}: {problem.message}", problem.expected)
            return
        definition, known = give_name(unnamed, path.stem), authoring(unnamed.language)
        name = definition.name if definition.name != unnamed.name else None
        # Added before it is complete, because it may name itself as a child.
        self.children[key] = Bundle(source, definition.language, name)
        files = self.files(definition, known, None, path, at)
        beside = skills_beside(path.parent, known)
        skills: list[Any] = document_of(beside, "skills", list) if beside else []
        kin = [self.child(path, one, dirname(key), at) for one in known.children(definition).values()]
        named = sorted({one for one in kin if one is not None})
        self.children[key] = Bundle(source, definition.language, name, files, skills, named)

    def _text(self, path: Path, name: str, at: str) -> str | None:
        self.permit(path, name)
        folder = path.absolute().parent
        try:
            return read_text(_resolve_name(folder, name))
        except LeadsOutside:
            expected = "a file in this folder, or the path of the linked file itself"
            self._report(at, "SOURCE_FILE_OUTSIDE_ROOT", f"{name} is a link to a file outside of {folder}", expected)
        except FileNotFoundError:
            self._report(at, "SOURCE_FILE_NOT_FOUND", f"there is no file {name} in {folder}")
        except (OSError, NotText) as error:
            self._report(at, "SOURCE_FILE_READ_FAILED", f"{name} cannot be read: {why(error)}")
        except (ValueError, RuntimeError) as error:
            self._report(at, "SOURCE_FILE_READ_FAILED", f"{name} cannot be read: {error}")
        return None

    def _report(self, at: str, code: str, message: str, expected: str | None = None) -> None:
        """Report a problem at a field of the root definition, with the line if the text contains the field."""
        tree = read_document(self.root.source)
        if isinstance(tree, Tree):
            # The name of a source's field starts at the workflow, and lacks the list ``sources`` of the long form.
            names = {at, at.removeprefix("workflow."), at.replace("[", ".sources[")}
            location = next((one for one in tree.places if format_location(one) in names), None)
            if location is not None:
                self.problems.append(tree.problem(code, message, location, expected=expected))
                return
        self.problems.append(Problem(code, message, at, expected=expected))


def _resolve_name(folder: Path, name: str) -> Path:
    """Return the path of a file that a definition names. The name may lead out of the folder, but a link may not.

    :raises LeadsOutside: if the name is in the folder, but the file is not
    """
    if isabs(name) or normpath(name).split("/")[0] == "..":
        return folder / name
    return path_below(folder, name)


def _matching(patterns: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that match patterns. Invalid patterns match no files."""
    for pattern in patterns:
        try:
            yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())
        except (OSError, ValueError, IndexError):
            continue  # not a valid pattern


def project_skills(request: StartRequest, wanted: Collection[str], folder: Path) -> "SkillFiles":
    """Find the skills that a definition uses among the skill files of its project."""

    project = project_of(folder, Path.cwd()) if wanted and request.project_skills else None
    return skill_files(project, wanted, commands=request.skill_commands) if project else SkillFiles()


FILE = "SKILL.md"

FOLDERS_MAX = 500
"""Maximum number of skills that are read in one folder."""

FILE_BYTES_MAX = 256 * 1024
"""Largest skill file that is accepted, since its text becomes part of every instruction that uses it."""

_FRONT_MATTER = re.compile(r"(---[ \t]*\r?\n)(.*?)((?:^|\r?\n)---[ \t]*(?:\r?\n|\Z).*)\Z", re.DOTALL | re.MULTILINE)


class SkillFiles(Struct, frozen=True):
    """Skill files by path within the project, and warnings about them.

    ``unusable`` has the warnings about skills of which no file can be used.
    """

    files: dict[str, str] = field(default_factory=dict[str, str])
    unusable: dict[str, list[Problem]] = field(default_factory=dict[str, list[Problem]])
    warnings: list[Problem] = field(default_factory=list[Problem])


def project_of(folder: Path, working: Path, home: Path | None = None) -> Path | None:
    """Return the project of a folder: the nearest folder with ``.git``, else the working folder.

    Return None if that is the home folder or above it, because files there do not belong to a project.
    """
    home = (home or Path.home()).resolve()
    above = [home, *home.parents]
    for place in (folder.resolve(), *folder.resolve().parents):
        if place in above:
            break
        if (place / ".git").exists():
            return place
    found = working.resolve()
    return None if found in above else found


def skill_files(project: Path, wanted: Collection[str], *, commands: bool = False) -> SkillFiles:
    """Find the skill files of a project that define the wanted skills; for each skill, the file with the highest rank.

    ``commands`` permits the programs that the files name.
    """
    found = SkillFiles()
    taken: dict[str, str] = {}
    for path in _candidates(project):
        name = path.relative_to(project).as_posix()
        text = _read(path, project)
        skill, problems = read_skill_file(text, name) if isinstance(text, str) else (None, [text])
        # Problems of skills that the definition does not use are not reported.
        if (skill.id if skill else path.parent.name) not in wanted:
            continue
        if skill is None or not isinstance(text, str):
            faults = [in_file(problem) for problem in problems]
            found.unusable.setdefault(path.parent.name, []).extend(faults)
            continue  # Admission reports the problems of files that are sent.
        if skill.id in taken:
            message = f"the skill {skill.id!r} is already defined in {taken[skill.id]}"
            found.warnings.append(_warning("DUPLICATE_SKILL", message, name))
            continue
        taken[skill.id] = name
        if skill.mcp is not None and skill.mcp.command and not commands:
            text = _without_command(text)
            message = f"its MCP server ({skill.mcp.command}) is left out: a skill file may not name programs to run"
            expected = "--skill-commands, if you trust this project"
            found.warnings.append(_warning("SKILL_COMMAND", message, name, expected))
            if not skill.instruction and not skill.mcp.url:
                continue
        found.files[name] = text
        if beside := _beside(path):
            found.warnings.append(msgspec.structs.replace(unused_files(beside, name), where=name))
    for usable in taken.keys() & found.unusable.keys():
        found.warnings.extend(found.unusable.pop(usable))
    _add_servers(found, project, set(wanted) - taken.keys(), commands=commands)
    return found


def _add_servers(found: "SkillFiles", project: Path, wanted: Collection[str], *, commands: bool) -> None:
    """Add the wanted MCP servers of the project's files for other programs, without the other servers in them."""
    for name in SERVER_FILES:
        if not (project / name).exists():
            continue
        text = _read(project / name, project)
        if not isinstance(text, str):
            found.warnings.append(text)
            continue
        servers, problems = read_server_file(text, name, wanted)
        found.warnings.extend(problems)
        for server, skill in list(servers.items()):
            if skill.mcp is not None and skill.mcp.is_program and not commands:
                message = f"the MCP server {server} ({skill.mcp.command}) is left out: a file of a project may not name"
                expected = "--skill-commands, if you trust this project"
                found.warnings.append(_warning("SKILL_COMMAND", f"{message} programs to run", name, expected))
                del servers[server]
        if servers:
            found.files[name] = msgspec.json.encode(kept_servers(servers)).decode()
            wanted = set(wanted) - servers.keys()


def _candidates(project: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        try:
            names = sorted((project / folder).iterdir())
        except OSError:
            continue  # The folder does not exist, or cannot be read.
        yield from (name / FILE for name in names[:FOLDERS_MAX] if (name / FILE).exists())


def _beside(path: Path) -> list[str]:
    """Return the names of the files and folders next to a skill file, without hidden ones."""
    try:
        return sorted(
            f"{one.name}/" if one.is_dir() else one.name
            for one in path.parent.iterdir()
            if one.name != FILE and not one.name.startswith(".")
        )
    except OSError:
        return []  # The folder cannot be read.


def _read(path: Path, project: Path) -> str | Problem:
    name = path.relative_to(project).as_posix()
    try:
        real = path_below(project, name)
        found = real.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:
            message = "is not a regular file of acceptable size"
            return _warning("INVALID_SKILL_FILE", message, name, f"a text file of at most {FILE_BYTES_MAX} bytes")
        return read_text(real)
    except LeadsOutside:
        return _warning("INVALID_SKILL_FILE", "is a link to a file outside of the project", name)
    except (OSError, ValueError, RuntimeError) as error:
        return _warning("INVALID_SKILL_FILE", f"cannot be read: {error}", name)


def _without_command(text: str) -> str:
    """Return a skill file without the program of its server; the URL is kept. The front matter becomes JSON."""
    match = _FRONT_MATTER.match(text)
    tree, _literal = read_front_matter(match[2]) if match else ([], [])
    assert match is not None
    assert isinstance(tree, Tree), "it has been read before"
    front: dict[str, Any] = dict(tree.value)
    server: dict[str, Any] = front.pop("mcp")
    if server.get("url"):
        kept = {name: value for name, value in server.items() if name not in ("type", "command", "args")}
        front["mcp"] = kept
    return f"{match[1]}{msgspec.json.encode(front).decode()}\n---\n{match[3].lstrip().partition(chr(10))[2]}"


def _warning(code: str, message: str, path: str, expected: str | None = None) -> Problem:
    return Problem(code, message, path, expected=expected, severity="warning")
