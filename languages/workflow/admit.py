"""The admission of a start: its input, options and skills are checked, and defaults are filled in.

A start with any detectable error is refused as a whole, with all problems at once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import AfterValidator, Field, ValidationError

from callboard.bus.commands import StartRun
from callboard.bus.events import Environment, Outline, OutlineEdge, OutlineNode, Problem
from callboard.languages.parts import Part, Whole
from callboard.languages.plan import Definition, Plan
from callboard.languages.problems import Complaint, Location, Tree, format_location, from_pydantic, hint_at
from callboard.languages.skills.near_misses import UNFILLED, server_near_misses
from callboard.languages.skills.server_files import discover_servers
from callboard.languages.skills.skill import (
    Skill,
    Variable,
    aliases,
    merge_skills,
)
from callboard.languages.skills.skill_files import ABSENT, discover, find_unusable
from callboard.languages.source_text import read_document
from callboard.languages.workflow.document import Workflow
from callboard.languages.workflow.inputs import resolve_input, unknown_inputs
from callboard.languages.workflow.provision import Lacks, anywhere, lacks, needs, shipped_for
from callboard.languages.workflow.usage import declared_sources

MAX_STEPS = 200
"""How many node visits a run may make by default."""


def _distinct(skills: list[Skill]) -> list[Skill]:
    counts = Counter(skill.id for skill in skills)
    if doubled := sorted(one for one, count in counts.items() if count > 1):
        raise Complaint("DUPLICATE_SKILL", f"defines {', '.join(doubled)} more than once", "one skill per id")
    return skills


class WorkflowOptions(Part):
    """The options of a start of a workflow.

    ``config`` has values of the skills' config fields, which take precedence over those of the environment.
    """

    max_steps: Annotated[Whole, Field(ge=1)] = MAX_STEPS
    skills: Annotated[list[Skill], AfterValidator(_distinct)] = Field(default_factory=list[Skill])
    config: dict[Variable, str] = Field(default_factory=dict[str, str])
    offline: bool = False


def admit(definition: Definition[Workflow], start: StartRun) -> Plan[Workflow] | list[Problem]:
    """Make a plan of a definition and a start, or return all problems of the start.

    ``Plan.options`` has ``max_steps``, ``offline``, ``skills`` (all skills of the start, the files and the workflow,
    merged and complete), ``shipped`` (the shipped skills that nodes list, if any) and ``config``, which maps each given
    key to the name of its value in the environment of the tools, so that the log holds no value.

    ``Plan.needs`` has ``skills`` and ``environment``. The former maps the id of a skill to the variables without which
    it is unavailable, and ``id.KEY`` to the variable of an optional value; both have the prefix ``shipped:`` for a
    shipped skill. The latter has all variables that the tools may get and whose values must not be recorded.
    """
    document = definition.document
    tree = Tree({"options": start.options})
    problems = [*_surplus(start), *_breakpoints(document, start)]
    options = WorkflowOptions()
    try:
        options = WorkflowOptions.model_validate(start.options)
    except ValidationError as error:
        problems += from_pydantic(error, WorkflowOptions, tree, ("options",))
    given = resolve_input(document.inputs, start.input)
    if isinstance(given, list):
        problems += given
        given = {}
    problems += _sources(document, given, offline=options.offline)
    if problems:
        return problems
    custom, warnings = discover(start.files)
    listed = {name for node in document.nodes.values() for name in node.skills}
    servers, ignored = discover_servers(start.files, listed - set(document.skills))
    skills = merge_skills(options.skills, custom, {**servers, **document.skills})
    shipped = shipped_for(document, options.skills, custom)
    unusable = find_unusable(warnings, listed - skills.keys() - shipped.keys() - set(document.skills))

    def shortfalls(environment: Environment) -> list[Problem]:
        return _warn_of_lacks(definition, lacks(document, skills, shipped, options.config, environment))

    return Plan(
        definition=definition,
        input=given,
        arguments={},
        options=_recorded_options(options, skills, shipped),
        outline=outline(document),
        needs=needs(document, skills, shipped, options.config),
        warnings=(
            *definition.warnings,
            *warnings,
            *ignored,
            *unknown_inputs(document.inputs, given),
            *shortfalls(anywhere(shipped)),
            *_server_warnings(options.skills),
            *_alias_warnings(skills | shipped),
            *_config_warnings(skills | shipped, options.config),
        ),
        shortfalls=shortfalls,
        objections=tuple(replace(one, severity="error", expected=one.expected or ABSENT) for one in unusable),
    )


def _surplus(start: StartRun) -> list[Problem]:
    """Refuse members of a start that only other languages use."""
    problems: list[Problem] = []
    if start.arguments:
        problems.append(Problem("SCHEMA", "a workflow takes no arguments", "arguments", expected="input"))
    if start.state is not None:
        problems.append(
            Problem("SCHEMA", "a workflow takes no state document", "state", expected="none; a fork goes on")
        )
    return problems


def _breakpoints(document: Workflow, start: StartRun) -> list[Problem]:
    return [
        Problem("UNKNOWN_BREAKPOINT", f"unknown node {name!r}", f"breakpoints[{index}]", expected="a node's id")
        for index, name in enumerate(start.breakpoints)
        if name not in document.nodes
    ]


def _sources(document: Workflow, given: dict[str, Any], *, offline: bool) -> list[Problem]:
    sources, problems = declared_sources(document, given)
    for field, source in sources.items() if offline else []:
        if source.kind == "url":
            message = f"offline, but {source.value} must be fetched"
            problems.append(Problem("SOURCE_OFFLINE_REQUIRES_FETCH", message, field, expected="a file or a text"))
    return problems


def _warn_of_lacks(definition: Definition[Workflow], found: Lacks) -> list[Problem]:
    """Warn of the skills that nodes run without, each at the first node that lists it."""
    if not found:
        return []
    read_again = read_document(definition.source)
    tree = read_again if isinstance(read_again, Tree) else Tree(None)
    places: dict[str, Location] = {}
    for node, spec in definition.document.nodes.items():
        for index, name in enumerate(spec.skills):
            places.setdefault(name, ("nodes", node, "skills", index))
    return [tree.problem(code, reason, places[name], warning=True) for name, (code, reason) in found.items()]


def _server_warnings(skills: Sequence[Skill]) -> Iterator[Problem]:
    """Warn of references in the MCP servers of a start that are not replaced with a variable's value."""
    for index, skill in enumerate(skills):
        for below, message, expected in server_near_misses(skill.mcp) if skill.mcp else ():
            where = format_location(("options", "skills", index, "mcp", *below))
            yield Problem(UNFILLED, message, where, expected=expected, severity="warning")


def _alias_warnings(skills: dict[str, Skill]) -> list[Problem]:
    _groups, contested = aliases(list(skills.values()))
    return [
        Problem(
            "CONTESTED_ALIAS",
            f"the alias {name!r} is ignored, since several skills claim it",
            "options.skills",
            severity="warning",
        )
        for name in contested
    ]


def _config_warnings(skills: dict[str, Skill], config: dict[str, str]) -> list[Problem]:
    """Warn of given values that no skill has a field for."""
    known = {key for skill in skills.values() for key in skill.config}
    return [
        Problem(
            "UNKNOWN_CONFIG",
            f"no skill of this run has a value of this name{hint_at(key, known)}",
            f"options.config.{key}",
            expected=f"one of {', '.join(sorted(known))}" if known else None,
            severity="warning",
        )
        for key in config
        if key not in known
    ]


def _recorded_options(options: WorkflowOptions, skills: dict[str, Skill], shipped: dict[str, Skill]) -> dict[str, Any]:
    return {
        "max_steps": options.max_steps,
        "offline": options.offline,
        "config": {key: key if value else "" for key, value in options.config.items()},
        "skills": _dump_skills(skills),
        **({"shipped": _dump_skills(shipped)} if shipped else {}),
    }


def _dump_skills(skills: dict[str, Skill]) -> list[dict[str, Any]]:
    return [skill.model_dump(mode="json", by_alias=True, exclude_none=True) for skill in skills.values()]


def outline(document: Workflow) -> Outline:
    """Return the nodes and edges of a workflow."""
    return Outline(
        nodes=[OutlineNode(name, node.name, "node") for name, node in document.nodes.items()],
        edges=[OutlineEdge(edge.source, edge.target, edge.condition) for edge in document.edges],
    )
