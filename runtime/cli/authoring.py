"""What the command line asks of a language beyond its port: which files a definition names, and its shape.

One entry per language, as the registry has them; a language without one names no files and has no diagram.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from callboard.bus.events import Outline, Problem
from callboard.languages.language import Definition
from callboard.languages.registry import LANGUAGES, detect, language


@dataclass(frozen=True, slots=True)
class About:
    """What a document says of itself; ``inputs`` are the declared fields of its input, by name, as they stand there."""

    title: str = ""
    description: str = ""
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Authoring:
    """``files`` takes a document and a run's input and returns the named paths by field; ``outline`` the shape.

    ``skills_beside`` says that a list of skills may lie beside the definition; ``skills`` returns the ids of those that
    a document asks for, which the project's skill files may define; ``dry_runs`` that a run may only be tried out.
    """

    files: Callable[[Any, Any], dict[str, str]]
    outline: Callable[[Any], Outline]
    skills_beside: bool
    dry_runs: bool = False
    about: Callable[[Any], About] = lambda _document: About()
    skills: Callable[[Any], frozenset[str]] = lambda _document: frozenset()


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
    from callboard.languages.flow.interpret import ROOT
    from callboard.languages.flow.outline import outline

    return Authoring(lambda _document, _input: {}, lambda flow: outline(flow, ROOT), skills_beside=False)


_AUTHORING: dict[str, Callable[[], Authoring]] = {"flow": _flow, "workflow": _workflow}


def authoring(name: str) -> Authoring:
    """Return what is known of a language."""
    return _AUTHORING[name]() if name in _AUTHORING else Authoring(lambda _d, _i: {}, lambda _d: Outline(), False)


def parsed(source: str) -> Definition[Any] | list[Problem]:
    """Read a definition's text in whichever language it is written."""
    name = detect(source)
    if isinstance(name, list):
        return name
    assert name in LANGUAGES
    return language(name).parse(source)
