"""Bundling: what a definition on this disk names, read beside it, so that it travels along: no worker reads this disk.

A definition that it has run as a child, by its file, brings in turn what that one names, and the skills beside it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from posixpath import dirname, isabs, join, normpath
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from callboard.bus.commands import Bundle
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.languages.authoring import Authoring
from callboard.languages.language import Definition
from callboard.languages.problems import Tree, dotted
from callboard.languages.registry import authoring, parsed
from callboard.languages.source_text import read
from callboard.lib.folders import LeadsOutside, path_below
from callboard.runtime.admission.definitions import give_name
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.files import document_of, why
from callboard.service.operations.start_request import StartRequest

if TYPE_CHECKING:
    from callboard.service.operations.skill_files import SkillFiles

SKILL_FILES = ("skills.yaml", "skills.yml", "skills.json")
"""Names under which a list of skills is found beside a definition."""

BESIDE_MAX = 200
"""How many files that a pattern matches travel along."""

Permit = Callable[[Path, str], None]
"""Told of a definition's path and of a file that it names before that is read; raises if it must not be."""


def everything(_definition: Path, _name: str) -> None:
    """Permit everything."""


class Bundled(Struct, frozen=True):
    """What travels along with a definition; ``warnings`` are about skill files of the project."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    children: dict[str, Bundle] = field(default_factory=dict[str, Bundle])
    warnings: list[Problem] = field(default_factory=list[Problem])


def bundled(definition: Definition[Any], given: Any, request: StartRequest, permit: Permit = everything) -> Bundled:
    """Read what a definition, in the file of an order, and its input name, by the path they are named.

    :raises RequestRefused: with all that is missing or no text, or none sound where a child is run
    :raises CallboardError: if something may not be read
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
    """Return the list of skills that lies beside a definition, if its language looks for one.

    :raises CallboardError: ``file.unreadable`` if it is a link that leads out of the folder
    """
    here = (folder / name for name in SKILL_FILES if known.skills_beside)
    path = next((path for path in here if path.is_file()), None)
    if path is None:
        return None
    try:
        return path_below(folder, path.name)
    except LeadsOutside as error:
        remedy = "put the file there, or name it with --skills"
        raise CallboardError("file.unreadable", f"the list of skills {error} by a link", str(path), remedy) from error


class _Bundling(Struct):
    """One definition's bundle in the making. Whatever is wrong is told at the place in it that leads there."""

    request: StartRequest
    permit: Permit
    root: Definition[Any]
    path: Path
    children: dict[str, Bundle] = field(default_factory=dict[str, Bundle])
    warnings: list[Problem] = field(default_factory=list[Problem])
    problems: list[Problem] = field(default_factory=list[Problem])

    def files(self, definition: Definition[Any], known: Authoring, given: Any, path: Path, at: str) -> dict[str, str]:
        """Return the files that a definition names, and skill files of the project that it asks for."""
        found: dict[str, str] = {}
        for field_, name in known.files(definition.document, given).items():
            text = self._text(path, name, at or field_)
            if text is not None:
                found[name] = text
        found |= self._beside(known.beside(definition.document, given), path)
        skills = project_skills(self.request, known.skills(definition.document), path.absolute().parent)
        self.warnings += skills.warnings
        named = {normpath(name) for name in found}
        return found | {name: text for name, text in skills.files.items() if name not in named}

    def _beside(self, patterns: Sequence[str], path: Path) -> dict[str, str]:
        """Read the files beside a definition that match patterns; those that are not text are left out."""
        found: dict[str, str] = {}
        folder = path.absolute().parent
        for file in islice(_matching(patterns, folder), BESIDE_MAX):
            self.permit(path, str(file))
            name = file.relative_to(folder).as_posix()
            try:
                found[name] = path_below(folder, name).read_text(encoding="utf-8-sig")
            except LeadsOutside:
                self._warn_of_link(name, folder)
            except (OSError, ValueError, RuntimeError):
                continue  # the run says that it lacks the text, if it needs it
        return found

    def child(self, path: Path, name: str, folder: str, at: str) -> str | None:
        """Take in a definition that another one, at ``path`` on disk and in ``folder`` of the bundle, names."""
        key = normpath(join(folder, name))
        if isabs(name):
            self._tell(at, "CHILD_FILE_ABSOLUTE", f"{name} is to be run as a child", "a path from the definition on")
        elif key not in self.children and (source := self._text(path, name, at)) is not None:
            self._take(key, path.parent / name, source, at)
        return key if key in self.children else None

    def _take(self, key: str, path: Path, source: str, at: str) -> None:
        unnamed = parsed(source, path.name)
        if isinstance(unnamed, list):
            for problem in unnamed:
                place = f"{key}:{problem.line}" if problem.line else key
                self._tell(at, problem.code, f"{place}: {problem.message}", problem.expected)
            return
        definition, known = give_name(unnamed, path.stem), authoring(unnamed.language)
        name = definition.name if definition.name != unnamed.name else None
        # Known before it is whole: it may name itself.
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
            return _named(folder, name).read_text(encoding="utf-8-sig")
        except LeadsOutside:
            expected = "a file in this folder, or the path of the file itself, with .. where it leads out"
            self._tell(at, "SOURCE_FILE_OUTSIDE_ROOT", f"{name} is a link that leads out of {folder}", expected)
        except FileNotFoundError:
            self._tell(at, "SOURCE_FILE_NOT_FOUND", f"there is no file {name} in {folder}")
        except (OSError, UnicodeDecodeError) as error:
            self._tell(at, "SOURCE_FILE_READ_FAILED", f"{name} cannot be read: {why(error)}")
        except (ValueError, RuntimeError) as error:
            self._tell(at, "SOURCE_FILE_READ_FAILED", f"{name} cannot be read: {error}")
        return None

    def _warn_of_link(self, name: str, folder: Path) -> None:
        message = f"{name} is a link that leads out of {folder}; it is not sent with the start"
        self.warnings.append(Problem("SOURCE_FILE_OUTSIDE_ROOT", message, name, severity="warning"))

    def _tell(self, at: str, code: str, message: str, expected: str | None = None) -> None:
        """Tell of a problem at a field of the root, with its place in the text if it stands there."""
        tree = read(self.root.source)
        if isinstance(tree, Tree):
            # A source's field is named from the whole workflow down, and without the list that a long form puts there.
            names = {at, at.removeprefix("workflow."), at.replace("[", ".sources[")}
            location = next((one for one in tree.places if dotted(one) in names), None)
            if location is not None:
                self.problems.append(tree.problem(code, message, location, expected=expected))
                return
        self.problems.append(Problem(code, message, at, expected=expected))


def _named(folder: Path, name: str) -> Path:
    """Return the path of a file that a definition names. A name may lead out of the folder, but no link may do so
    unseen.

    :raises LeadsOutside: if the name stays in the folder, and the file does not
    """
    if isabs(name) or normpath(name).split("/")[0] == "..":
        return folder / name
    return path_below(folder, name)


def _matching(patterns: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that match patterns; none for a pattern that no file could match."""
    for pattern in patterns:
        try:
            yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())
        except (OSError, ValueError, IndexError):
            continue  # a name that no file can have


def project_skills(request: StartRequest, wanted: Collection[str], folder: Path) -> "SkillFiles":
    """Find the skills that a definition asks for among the skill files of its project."""
    from callboard.service.operations.skill_files import SkillFiles, project_of, skill_files

    project = project_of(folder, Path.cwd()) if wanted and request.project_skills else None
    return skill_files(project, wanted, commands=request.skill_commands) if project else SkillFiles()
