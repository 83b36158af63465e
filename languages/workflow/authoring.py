"""What the workflow language offers to those who write in it."""

from typing import Any

from callboard.languages.authoring import About, Authoring
from callboard.languages.workflow.admit import Options, outline
from callboard.languages.workflow.descriptions import DESCRIPTIONS
from callboard.languages.workflow.document import Workflow
from callboard.languages.workflow.usage import declared_sources


def _files(document: Workflow, given: Any) -> dict[str, str]:
    sources, _problems = declared_sources(document, given if isinstance(given, dict) else {})
    return {field: source.value for field, source in sources.items() if source.kind == "file"}


def _about(document: Workflow) -> About:
    inputs = {name: one.model_dump(exclude_unset=True) for name, one in (document.inputs or {}).items()}
    return About(document.name, document.description, inputs)


def _skills(document: Workflow) -> frozenset[str]:
    return frozenset(skill for node in document.nodes.values() for skill in node.skills)


AUTHORING = Authoring(
    files=_files,
    outline=outline,
    options=Options,
    skills_beside=True,
    dry_runs=True,
    about=_about,
    skills=_skills,
    schema=Workflow.model_json_schema,
    descriptions=DESCRIPTIONS,
)
