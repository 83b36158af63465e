"""Skill files: ``SKILL.md`` with YAML front matter and a text, in the form that agents of several vendors read.

Files come with the start message, and their folder determines their rank (specification, *Skills: Multi-Harness
Discovery*). An invalid file is ignored with a warning, since it must not stop a run that does not need it.

Many files are invalid YAML, above all because a description has ``: `` in it. Other agents read them nevertheless: the
values of top-level fields that cannot be read are taken literally, up to the end of the line, with a warning.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from posixpath import basename, dirname, normpath
from typing import Any

import msgspec
from pydantic import Field, ValidationError

from callboard.bus.events import Problem
from callboard.languages.parts import Part
from callboard.languages.problems import Tree, format_location, from_pydantic
from callboard.languages.skills.near_misses import UNFILLED, server_near_misses
from callboard.languages.skills.skill import CATEGORIES, ConfigField, McpServer, Skill, skill_id_fault
from callboard.languages.yaml12 import read_yaml
from callboard.lib.text import encode_json

FOLDERS = (".sweny/skills", ".claude/skills", ".agents/skills", ".gemini/skills")
"""The folders of skill files, the highest rank first."""

DESCRIBING = frozenset({"name", "description", "category", "license", "version", "author", "metadata", "compatibility"})
"""Fields of a front matter that need no warning, besides ``config`` and ``mcp``: they are used or only descriptive."""

ALLOWED_TOOLS = ("allowed-tools", "allowed_tools")
"""The names of the field with which Agent Skills approve tools in advance."""

NAMED_MAX = 5
"""How many unused files a warning names."""

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)(.*)\Z", re.DOTALL | re.MULTILINE)


class _FrontMatter(Part):
    config: dict[str, ConfigField] = Field(default_factory=dict[str, ConfigField])
    mcp: McpServer | None = None


INVALID = "INVALID_SKILL_FILE"
"""The code of the problem that a file cannot be used."""

LITERAL = "SKILL_FIELD_LITERAL"
"""The code of the warning that the value of a field is taken literally."""

ABSENT = "a file that can be used, or `optional: true` for the skill in the workflow's `skills`"
"""The remedy for a file that cannot be used."""

_MEANINGFUL = ("name", "config", "mcp")
"""Fields that are not taken literally."""

_FIELD = re.compile(r"(?P<name>[A-Za-z_][\w.-]*):[ \t]+(?P<value>\S.*)")
_PLACE = re.compile(r'files\["(?P<path>.*)"\]')
_CONTINUED = re.compile(r"[ \t]+\S")


def discover(files: Mapping[str, str]) -> tuple[list[Skill], list[Problem]]:
    """Find the skills among a run's files, the highest rank first; return them, and warnings about ignored files."""
    skills: list[Skill] = []
    warnings: list[Problem] = []
    origin: dict[str, str] = {}
    for folder in FOLDERS:
        pattern = re.compile(rf"(?:\./)?{re.escape(folder)}/[^/]+/SKILL\.md")
        for path in sorted(path for path in files if pattern.fullmatch(normpath(path))):
            skill, problems = read_skill_file(files[path], path)
            warnings += problems
            if skill is None:
                continue
            if skill.id in origin:
                message = f"the skill {skill.id!r} is already defined in {origin[skill.id]}"
                warnings.append(_warning("DUPLICATE_SKILL", message, path))
            else:
                origin[skill.id] = path
                skills.append(skill)
                beside = [name for name in files if _is_beside(normpath(name), normpath(path))]
                if beside:
                    warnings.append(
                        unused_files(sorted(posixpath.relpath(name, dirname(path)) for name in beside), path)
                    )
    return skills, warnings


def find_unusable(warnings: Sequence[Problem], wanted: Collection[str]) -> list[Problem]:
    """Return the warnings about files that cannot be used and that, by their folders, have skills that are wanted."""
    return [one for one in warnings if one.code == INVALID and basename(dirname(file_of(one))) in wanted]


def file_of(problem: Problem) -> str:
    """Return the path of the file that a problem is about."""
    named = _PLACE.match(problem.where)
    return named["path"] if named is not None else problem.where


def in_file(problem: Problem) -> Problem:
    """Return a problem whose place is the path of its file, with line and column, as the command line writes it."""
    return msgspec.structs.replace(problem, where=_PLACE.sub(r"\g<path>", problem.where))


def read_skill_file(text: str, path: str) -> tuple[Skill | None, list[Problem]]:
    """Read a ``SKILL.md``; return the skill, None if the file is invalid, and warnings whose ``where`` is the path."""
    match = _FRONT_MATTER.match(text.removeprefix("\ufeff"))
    if match is None:
        return None, [_warning(INVALID, "has no front matter", path, "--- YAML --- and a text")]
    tree, literal = read_front_matter(match[1])
    if not isinstance(tree, Tree):
        return None, [_of_yaml(INVALID, problem, path) for problem in tree]
    if not isinstance(tree.value, dict):
        return None, [_warning(INVALID, "has no fields in its front matter", path, "at least a name")]
    skill, problems = _skill_of(tree, match[2].strip(), path)
    return skill, [*(_of_yaml(LITERAL, problem, path) for problem in literal if skill is not None), *problems]


def read_front_matter(text: str) -> tuple[Tree | list[Problem], list[Problem]]:
    """Read the YAML of a front matter, or else with the values that cannot be read taken literally.

    Return the tree or its fault, and a problem for each value that is taken literally.
    """
    tree = read_yaml(text)
    if isinstance(tree, Tree):
        return tree, []
    lines, problems = _take_literally(text.splitlines())
    again = read_yaml("\n".join(lines)) if problems else tree
    return (again, problems) if isinstance(again, Tree) else (tree, [])


def _take_literally(lines: list[str]) -> tuple[list[str], list[Problem]]:
    """Put the values of top-level fields that are not YAML in quotes, each with the lines that continue it."""
    found: list[str] = []
    problems: list[Problem] = []
    at = 0
    while at < len(lines):
        end = at + 1
        while end < len(lines) and _CONTINUED.match(lines[end]):
            end += 1
        field = _FIELD.fullmatch(lines[at])
        fault = read_yaml("\n".join(lines[at:end])) if field is not None else None
        if field is None or not isinstance(fault, list) or field["name"] in _MEANINGFUL:
            found += lines[at:end]
        else:
            value = " ".join([field["value"].strip(), *(line.strip() for line in lines[at + 1 : end])])
            # Blank lines keep the numbers of the lines that follow.
            found += [f"{field['name']}: {encode_json(value).decode()}", *[""] * (end - at - 1)]
            message = f"{field['name']} is taken literally, because it is no YAML: {fault[0].message}"
            problems.append(msgspec.structs.replace(fault[0], message=message, line=at + (fault[0].line or 1)))
        at = end
    return found, problems


def _of_yaml(code: str, problem: Problem, path: str) -> Problem:
    """Return a problem of a front matter as a warning about its file.

    The line is part of its place, because the lines of other problems are those of the definition.
    """
    # The first line of the file is the mark before the front matter.
    at = "" if problem.line is None else f":{problem.line + 1}:{problem.column or 1}"
    message = f"{problem.where}: {problem.message}" if problem.where else problem.message
    return Problem(code, message, f'files["{path}"]{at}', expected=problem.expected, severity="warning")


def _skill_of(tree: Tree, body: str, path: str) -> tuple[Skill | None, list[Problem]]:
    front: dict[str, Any] = tree.value
    name = front.get("name")
    if not isinstance(name, str) or not name:
        return None, [_warning(INVALID, "has no name", path, "name: the skill's id")]
    if fault := skill_id_fault(name):
        return None, [_warning(INVALID, fault, path, "lower-case letters, digits and single hyphens")]
    try:
        parts = _FrontMatter.model_validate({key: front[key] for key in ("config", "mcp") if front.get(key)})
    except ValidationError as error:
        problems = from_pydantic(error, _FrontMatter, tree)
        return None, [_of_yaml(INVALID, problem, path) for problem in problems]
    if not body and parts.mcp is None:
        return None, [_warning(INVALID, "offers nothing", path, "a text or an mcp server")]
    category = front.get("category")
    fields: dict[str, Any] = {
        "id": name,
        "name": name,
        "description": str(front.get("description") or f"Custom skill: {name}"),
        "category": category if category in CATEGORIES else "general",
        "config": {key: field.model_copy(update={"env": field.env or key}) for key, field in parts.config.items()},
        "instruction": body or None,
        "mcp": parts.mcp,
    }
    skill = Skill.model_validate({field: value for field, value in fields.items() if value is not None})
    return skill, [*_find_ignored(front, path), *_find_unfilled(parts.mcp, path)]


def _find_unfilled(server: McpServer | None, path: str) -> Iterator[Problem]:
    """Warn of references in the configuration of an MCP server that are not replaced with a variable's value."""
    for location, message, expected in server_near_misses(server) if server else ():
        yield _warning(UNFILLED, f"mcp.{format_location(location)}: {message}", path, expected)


def _find_ignored(front: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Warn of fields that other agents use but Callboard ignores."""
    fields = [name for name in map(str, front) if name not in DESCRIBING and name not in ("config", "mcp")]
    if not fields:
        return
    offers = any(name in ALLOWED_TOOLS for name in fields)
    expected = "the tools that a node may use in its `tools.allow`" if offers else None
    yield _warning("SKILL_FIELD_IGNORED", f"these fields have no effect here: {', '.join(fields)}", path, expected)


def unused_files(names: Sequence[str], path: str) -> Problem:
    """Make the warning that files beside a ``SKILL.md`` are not sent, so a model can neither read nor run them."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    message = (
        f"only SKILL.md is used; {', '.join(names[:NAMED_MAX])}{more} beside it cannot be read or run by the model"
    )
    expected = "the texts in SKILL.md or in a node's context, and scripts as tools of a skill"
    return _warning("SKILL_FILES_IGNORED", message, path, expected)


def _is_beside(name: str, path: str) -> bool:
    return name.startswith(f"{dirname(path)}/") and basename(name) != basename(path)


def _warning(code: str, message: str, path: str, expected: str | None = None) -> Problem:
    return Problem(code, message, f'files["{path}"]', expected=expected, severity="warning")
