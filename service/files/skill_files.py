"""Finds the skill files of a project that a definition uses, so that the start message can contain them.

They are in ``.sweny/skills``, ``.claude/skills``, ``.agents/skills`` and ``.gemini/skills`` of the project, the first
with the highest rank (workflow specification, *Skills: Multi-Harness Discovery*). The home folder is not searched.

Skill files come with a cloned repository, and the user may not have read them. So a program that a skill file names as
its MCP server is left out unless the user permits it. The text, and servers with a URL, are kept.
"""

import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.bus.events import Problem
from callboard.languages.problems import Tree
from callboard.languages.skills.skill_files import FOLDERS, read_skill_file, unused_files
from callboard.languages.yaml12 import read_yaml
from callboard.lib.folders import LeadsOutside, path_below

FILE = "SKILL.md"

FOLDERS_MAX = 500
"""Maximum number of skills that are read in one folder."""

FILE_BYTES_MAX = 256 * 1024
"""Largest skill file that is accepted, since its text becomes part of every instruction that uses it."""

_FRONT_MATTER = re.compile(r"(---[ \t]*\r?\n)(.*?)((?:^|\r?\n)---[ \t]*(?:\r?\n|\Z).*)\Z", re.DOTALL | re.MULTILINE)


class SkillFiles(Struct, frozen=True):
    """Skill files by path within the project, and warnings about them."""

    files: dict[str, str] = field(default_factory=dict[str, str])
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
            found.warnings.extend(msgspec.structs.replace(problem, where=name) for problem in problems)
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
    return found


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
        return real.read_text(encoding="utf-8-sig")
    except LeadsOutside:
        return _warning("INVALID_SKILL_FILE", "is a link to a file outside of the project", name)
    except (OSError, ValueError, RuntimeError) as error:
        return _warning("INVALID_SKILL_FILE", f"cannot be read: {error}", name)


def _without_command(text: str) -> str:
    """Return a skill file without the program of its server; the URL is kept. The front matter becomes JSON."""
    match = _FRONT_MATTER.match(text)
    tree = read_yaml(match[2]) if match else []
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
