"""Code reads each member of a document that the models of a language accept, or the member is listed here."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import callboard

ROOT = Path(callboard.__file__).parent

FOLDERS = ("languages", "runtime", "service", "actors", "projections", "features", "surfaces", "bus")

UNREAD = {
    "workflow.Workflow.workflow_type": "a hint for pages; execution must not depend on it",
    "workflow.Node.disallowed_tools": "tools that an agent runtime has built in; Callboard offers none",
    "workflow.AutoFeedback.auto": "its only value is true, and the class says that it was given",
    "graph.GraphOptions.skip_trigger_validation": "accepted without effect, as the language's page says",
    "graph.Metadata.created_time": "for people",
    "playbook.PlaybookOptions.top_p": "read by its name, as all parameters of a model",
    "playbook.PlaybookOptions.top_k": "likewise",
    "playbook.PlaybookOptions.frequency_penalty": "likewise",
    "playbook.PlaybookOptions.presence_penalty": "likewise",
    "playbook.PlaybookOptions.stop_sequences": "likewise",
    "playbook.PlaybookOptions.safety_settings": "likewise",
}
"""Members that no code reads by their names, with the reason."""


@cache
def list_attributes() -> frozenset[str]:
    """Return the names of all attributes that the code reads, also by patterns."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            # Without strings, except formatted ones, which read attributes.
            text = re.sub(r'(?<!f)"[^"\n]*"', '""', path.read_text(encoding="utf-8"))
            found.update(re.findall(r"\.([a-z_]\w*)", text))
            found.update(name for case in re.findall(r"^ *case .*", text, re.M) for name in re.findall(r"(\w+)=", case))
    return frozenset(found)


def list_members(language: str) -> Iterator[str]:
    """Yield the members of the models of a language, as ``language.Model.member``."""
    base = f"callboard.languages.{language}"
    for found in pkgutil.walk_packages(importlib.import_module(base).__path__, f"{base}."):
        for name, model in vars(importlib.import_module(found.name)).items():
            if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == found.name:
                yield from (f"{language}.{name}.{member}" for member in model.model_fields)


@pytest.mark.parametrize("language", ["workflow", "flow", "playbook", "graph", "skills"])
def test_every_member_is_read_or_listed(language: str) -> None:
    unread = {one for one in list_members(language) if one.rpartition(".")[2] not in list_attributes()}
    assert unread == {one for one in UNREAD if one.startswith(f"{language}.")}
