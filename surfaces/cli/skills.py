"""``callboard skills``: the skills for workflows, and the variables that each one lacks."""

import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from callboard.lib.text_bytes import NotText, read_text
from callboard.surfaces.cli.output import print_answer, problem_text, say, style
from callboard.surfaces.cli.settings import json_option

if TYPE_CHECKING:
    from callboard.bus.events import Problem
    from callboard.languages.skills.skill import Skill


@click.command()
@click.argument("name", required=False)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="The folder of .sweny, .claude, .agents or .gemini with skill files; default: the working directory.",
)
@json_option
def skills(name: str | None, folder: str, as_json: bool) -> None:
    """List the skills that workflows can use: those shipped with Callboard, and skill files (SKILL.md).

    With NAME, show one: its configuration, its tools and their schemas. A skill is reported as available in the
    environment of this command; a worker may have another environment. Needs no server.
    """
    from pathlib import Path

    if name is None:
        list_skills(Path(folder), as_json=as_json)
    else:
        show_skill(name, Path(folder), as_json=as_json)


SHIPPED = "shipped"

LINE_CHARS = 90
"""Longest line of a list of tools, in characters."""


class FoundSkill(NamedTuple):
    """A skill, its origins (a file may replace parts of a shipped one), and the variables that are not set.

    ``missing`` are required variables, and required config keys that no variable provides; without any, the skill is
    available. ``unset`` are optional variables.
    """

    skill: "Skill"
    origin: list[str]
    missing: list[str]
    unset: list[str]

    @property
    def available(self) -> bool:
        return not self.missing

    def to_object(self) -> dict[str, Any]:
        """Return the skill as an object for JSON."""
        skill = self.skill
        return {
            "id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "category": skill.category,
            "available": self.available,
            "missing": self.missing,
            "unset": self.unset,
            "tools": [tool.name for tool in skill.tools],
            "mcp": skill.mcp is not None,
            "origin": self.origin,
        }


def find_skills(folder: Path, env: Mapping[str, str]) -> "tuple[list[FoundSkill], list[Problem]]":
    """Find all skills; return them sorted by id, and warnings about invalid files."""
    from callboard.languages.skills.shipped import shipped_ids, shipped_skill
    from callboard.languages.skills.skill import merge_skills
    from callboard.languages.skills.skill_files import discover, read_skill_file

    files, unreadable = _skill_files(folder)
    custom, passed_over = discover(files)
    ours = [shipped_skill(name) for name in shipped_ids()]
    origin: dict[str, list[str]] = {skill.id: [SHIPPED] for skill in ours}
    read: set[str] = set()
    for path, text in files.items():
        skill, _problems = read_skill_file(text, path)
        if skill is not None and skill.id not in read:
            read.add(skill.id)
            origin.setdefault(skill.id, []).append(path)
    found = sorted(merge_skills(ours, custom, {}).items())
    return [_inspect_skill(skill, origin[name], env) for name, skill in found], [*unreadable, *passed_over]


def _skill_files(folder: Path) -> "tuple[dict[str, str], list[Problem]]":
    """Read the skill files of a folder, highest precedence first, by their relative path."""
    from callboard.bus.events import Problem
    from callboard.languages.skills.skill_files import FOLDERS

    files: dict[str, str] = {}
    problems: list[Problem] = []
    for place in FOLDERS:
        for path in sorted((folder / place).glob("*/SKILL.md")):
            name = path.relative_to(folder).as_posix()
            try:
                files[name] = read_text(path)
            except (OSError, NotText) as error:
                message = f"cannot be read: {error}"
                problems.append(Problem("INVALID_SKILL_FILE", message, name, severity="warning"))
    return files, problems


def _inspect_skill(skill: "Skill", origin: list[str], env: Mapping[str, str]) -> FoundSkill:
    from callboard.languages.skills.skill import missing_config, optional_env, required_env

    missing = [name for name in dict.fromkeys(required_env(skill, {})) if not env.get(name)]
    optional = [name for name in optional_env(skill, {}).values() if not env.get(name)]
    return FoundSkill(skill, origin, [*missing, *missing_config(skill, {})], optional)


def list_skills(folder: Path, *, as_json: bool) -> None:
    """Print the list of skills."""
    found, warnings = find_skills(folder, os.environ)
    told = {"skills": [one.to_object() for one in found], "warnings": warnings}
    print_answer(told, _list_lines(found), as_json=as_json)
    for warning in () if as_json else warnings:
        say(problem_text(warning), err=True)


def _list_lines(found: list[FoundSkill]) -> Iterator[str]:
    heads = [(one.skill.id, one.skill.category, ", ".join(one.origin)) for one in found]
    width, category, origin = (max(len(head[column]) for head in heads) for column in range(3))
    for one, head in zip(found, heads, strict=True):
        yield f"{head[0]:{width}}  {head[1]:{category}}  {head[2]:{origin}}  {_availability_text(one)}"
        for line in textwrap.wrap(_describe_offer(one.skill), LINE_CHARS, break_on_hyphens=False):
            yield f"{'':{width}}  {line}"


def show_skill(name: str, folder: Path, *, as_json: bool) -> None:
    """Print one skill with its tools and their schemas.

    :raises CallboardError: ``skill.unknown``
    """
    from callboard.bus.errors import CallboardError

    found, _warnings = find_skills(folder, os.environ)
    one = next((one for one in found if one.skill.id == name), None)
    if one is None:
        known = ", ".join(one.skill.id for one in found)
        raise CallboardError("skill.unknown", "unknown skill", name, f"Known skills: {known}.")
    whole = one.skill.model_dump(mode="json", by_alias=True, exclude_none=True)
    told = {**whole, **{key: one.to_object()[key] for key in ("available", "missing", "unset", "origin")}}
    print_answer(told, _skill_lines(one), as_json=as_json)


def _skill_lines(one: FoundSkill) -> Iterator[str]:
    skill = one.skill
    yield f"{style(skill.name, bold=True)}: {skill.description}"
    yield f"{skill.id}, {skill.category}, {_availability_text(one)} ({', '.join(one.origin)})"
    for key, field in skill.config.items():
        needed = "required" if field.required else "optional"
        yield f"\n{key} ({needed}, {_variable_text(field.env)})\n  {field.description}"
    for tool in skill.tools:
        yield f"\n{style(tool.name, bold=True)}: {tool.description}"
        for line in _argument_lines(tool.input_schema):
            yield f"  {line}"
    if skill.mcp:
        server = [skill.mcp.command, *skill.mcp.args] if skill.mcp.command else [skill.mcp.url or ""]
        yield f"\nMCP server: {' '.join(server)}"
    if skill.instruction:
        yield f"\n{skill.instruction}"


def _availability_text(one: FoundSkill) -> str:
    if one.missing:
        verb = "is" if len(one.missing) == 1 else "are"
        return style(f"unavailable: {', '.join(one.missing)} {verb} not set", fg="yellow")
    without = [field.env for field in one.skill.config.values() if field.env and field.secret is not False]
    if without and set(without) <= set(one.unset):
        return style(f"available, but useless without one of {', '.join(without)}", fg="yellow")
    return style("available", fg="green")


def _describe_offer(skill: "Skill") -> str:
    parts = [tool.name for tool in skill.tools]
    parts += ["tools of an MCP server"] if skill.mcp else []
    return ", ".join([*parts, *(["expertise"] if skill.instruction else [])])


def _variable_text(variable: str | None) -> str:
    if variable is None:
        return "no variable"
    return f"${variable}, {'set' if os.environ.get(variable) else 'not set'}"


def _argument_lines(schema: dict[str, Any]) -> list[str]:
    """Return a line for each member of an input; required ones have a star."""
    required: list[str] = schema.get("required", [])
    lines: list[str] = []
    for name, member in schema.get("properties", {}).items():
        told = member if isinstance(member, dict) else {}
        star = "*" if name in required else ""
        lines.append(f"{name}{star} ({told.get('type', 'any')}) {told.get('description', '')}".rstrip())
    return lines
