"""What the command line asks of a language beyond its port: which files a definition names, and its shape.

One entry per language, as the registry has them; a language without one names no files and has no diagram.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from callboard.bus.events import Outline, Problem
from callboard.languages.language import Definition
from callboard.languages.problems import dotted
from callboard.languages.registry import LANGUAGES, detect, language
from callboard.languages.titles import title_of


@dataclass(frozen=True, slots=True)
class About:
    """What a document says of itself.

    ``inputs`` are the declared fields of its input, by name, as they stand there; ``parameters`` are what it takes as
    arguments.
    """

    title: str = ""
    description: str = ""
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Authoring:
    """``files`` takes a document and a run's input and returns the named paths by field; ``outline`` the shape.

    ``skills_beside`` says that a list of skills may lie beside the definition; ``skills`` returns the ids of those that
    a document asks for, which the project's skill files may define; ``dry_runs`` that a run may only be tried out.
    ``misfits`` returns what is wrong with the arguments that a start is to bring. ``beside`` returns patterns of files
    that travel along if they are there. ``report`` makes the result of a check, given every problem, in the shape that
    the language's specification has for it. ``forms`` writes a definition's text in another form, by the name of that,
    and ``from_forms`` reads it back. ``children`` returns the paths, by field, of definitions that are run as children;
    ``of_start`` are codes of warnings that say nothing of a definition by itself.
    """

    files: Callable[[Any, Any], dict[str, str]]
    outline: Callable[[Any], Outline]
    skills_beside: bool
    dry_runs: bool = False
    about: Callable[[Any], About] = lambda _document: About()
    skills: Callable[[Any], frozenset[str]] = lambda _document: frozenset()
    misfits: Callable[[Any, dict[str, Any]], list[Problem]] = lambda _document, _arguments: []
    beside: Callable[[Any, Any], list[str]] = lambda _document, _input: []
    of_start: frozenset[str] = frozenset()
    report: Callable[[str, Sequence[Problem]], Any] | None = None
    forms: Mapping[str, Callable[[str], str | list[Problem]]] = field(default_factory=dict[str, Any])
    from_forms: Mapping[str, Callable[[str], str | list[Problem]]] = field(default_factory=dict[str, Any])
    children: Callable[[Definition[Any]], dict[str, str]] = lambda _definition: {}


def _workflow() -> Authoring:
    from callboard.languages.workflow.admit import outline
    from callboard.languages.workflow.document import Workflow
    from callboard.languages.workflow.usage import declared_sources

    def files(document: Workflow, given: Any) -> dict[str, str]:
        sources, _problems = declared_sources(document, given if isinstance(given, dict) else {})
        return {field: source.value for field, source in sources.items() if source.kind == "file"}

    def about(document: Workflow) -> About:
        inputs = {name: one.model_dump(exclude_unset=True) for name, one in (document.inputs or {}).items()}
        return About(document.name, document.description, inputs)

    def skills(document: Workflow) -> frozenset[str]:
        return frozenset(skill for node in document.nodes.values() for skill in node.skills)

    return Authoring(files, outline, skills_beside=True, dry_runs=True, about=about, skills=skills)


def _flow() -> Authoring:
    from callboard.languages.flow.children import child_files
    from callboard.languages.flow.document import Flow
    from callboard.languages.flow.interpret import ROOT
    from callboard.languages.flow.outline import outline

    def about(flow: Flow) -> About:
        declared: Any = flow.parameters.schema.get("properties")
        return About(parameters=dict(declared) if isinstance(declared, dict) else {})

    def children(definition: Definition[Flow]) -> dict[str, str]:
        return {dotted(at): file for at, file in child_files(msgspec.json.decode(definition.canonical))}

    def misfits(flow: Flow, arguments: dict[str, Any]) -> list[Problem]:
        found = flow.parameters.violation(arguments)
        # Such a run is started all the same, and its Result tells of it: the specification wants it so.
        message = "the arguments do not fit the parameters, so the run fails at once"
        violations = (found, *found.all) if found else ()
        return [Problem("ARGUMENTS", f"{message}: {one}", "arguments", severity="warning") for one in violations]

    return Authoring(
        lambda _document, _input: {},
        lambda flow: outline(flow, ROOT),
        skills_beside=False,
        about=about,
        misfits=misfits,
        children=children,
    )


def _graph() -> Authoring:
    from callboard.languages.graph.outline import outline
    from callboard.languages.graph.wiring import Graph

    def about(graph: Graph) -> About:
        return About(graph.name, graph.description)

    return Authoring(lambda _document, _input: {}, outline, skills_beside=False, about=about)


def _playbook() -> Authoring:
    from callboard.languages.playbook.convert import to_json, to_markdown
    from callboard.languages.playbook.document import Playbook
    from callboard.languages.playbook.files import prompt_files
    from callboard.languages.playbook.outline import outline
    from callboard.languages.playbook.report import report

    def about(playbook: Playbook) -> About:
        return About(playbook.title, playbook.description, {one.name: declared(one) for one in playbook.inputs})

    def declared(one: Any) -> dict[str, Any]:
        told = one.model_dump(mode="json", exclude={"name", "line"}, exclude_defaults=True)
        return {**told, "type": one.type, "required": one.required}

    return Authoring(
        lambda _document, _input: {},
        outline,
        skills_beside=False,
        about=about,
        beside=prompt_files,
        of_start=frozenset({"UNKNOWN_CONNECTION"}),
        report=report,
        forms={"json": to_json},
        from_forms={"json": to_markdown},
    )


_AUTHORING: dict[str, Callable[[], Authoring]] = {
    "flow": _flow,
    "graph": _graph,
    "playbook": _playbook,
    "workflow": _workflow,
}


def authoring(name: str) -> Authoring:
    """Return what is known of a language."""
    return _AUTHORING[name]() if name in _AUTHORING else Authoring(lambda _d, _i: {}, lambda _d: Outline(), False)


def about(definition: Definition[Any]) -> About:
    """Return what a definition says of itself; the first sentence of a comment is its title."""
    found = authoring(definition.language).about(definition.document)
    comment = definition.comment.strip()
    return replace(found, title=title_of(comment), description=comment) if comment else found


def parsed(source: str, file: str = "") -> Definition[Any] | list[Problem]:
    """Read a definition's text in whichever language it is written; ``file`` is the name of its file, if it has one."""
    name = detect(source, file)
    if isinstance(name, list):
        return name
    assert name in LANGUAGES
    return language(name).parse(source)
