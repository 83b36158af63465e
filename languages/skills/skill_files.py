"""Skill files: ``SKILL.md`` with YAML front matter and a text, in the form that agents of several vendors read.

Files come with the start message, and their folder determines their rank (specification, *Skills: Multi-Harness
Discovery*). An invalid file is ignored with a warning, since it must not stop a run that does not need it.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import basename, dirname, normpath
from typing import Any

from pydantic import Field, ValidationError

from callboard.bus.events import Problem
from callboard.languages.parts import Part
from callboard.languages.problems import Tree, format_location, from_pydantic
from callboard.languages.skills.near_misses import UNFILLED, server_near_misses
from callboard.languages.skills.skill import CATEGORIES, ConfigField, McpServer, Skill, skill_id_fault
from callboard.languages.yaml12 import read_yaml
from callboard.lib.text_bytes import plain_text

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


def read_skill_file(text: str, path: str) -> tuple[Skill | None, list[Problem]]:
    """Read a ``SKILL.md``; return the skill, None if the file is invalid, and warnings whose ``where`` is the path."""
    match = _FRONT_MATTER.match(plain_text(text))
    if match is None:
        return None, [_warning("INVALID_SKILL_FILE", "has no front matter", path, "--- YAML --- and a text")]
    tree = read_yaml(match[1])
    if not isinstance(tree, Tree):
        return None, [_warning("INVALID_SKILL_FILE", problem.message, path) for problem in tree]
    if not isinstance(tree.value, dict):
        return None, [_warning("INVALID_SKILL_FILE", "has no fields in its front matter", path, "at least a name")]
    return _skill_of(tree, match[2].strip(), path)


def _skill_of(tree: Tree, body: str, path: str) -> tuple[Skill | None, list[Problem]]:
    front: dict[str, Any] = tree.value
    name = front.get("name")
    if not isinstance(name, str) or not name:
        return None, [_warning("INVALID_SKILL_FILE", "has no name", path, "name: the skill's id")]
    if fault := skill_id_fault(name):
        return None, [_warning("INVALID_SKILL_FILE", fault, path, "lower-case letters, digits and single hyphens")]
    try:
        parts = _FrontMatter.model_validate({key: front[key] for key in ("config", "mcp") if front.get(key)})
    except ValidationError as error:
        problems = from_pydantic(error, _FrontMatter, tree)
        return None, [_warning("INVALID_SKILL_FILE", str(problem), path) for problem in problems]
    if not body and parts.mcp is None:
        return None, [_warning("INVALID_SKILL_FILE", "offers nothing", path, "a text or an mcp server")]
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
