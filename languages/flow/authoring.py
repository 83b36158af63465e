"""The flow language's port for authors."""

from typing import Any

from callboard.bus.events import Problem
from callboard.languages.authoring import About, Authoring, Conformance
from callboard.languages.flow.children import find_child_files
from callboard.languages.flow.conformance import CLAIM, find_differences
from callboard.languages.flow.document import Flow
from callboard.languages.flow.interpret import ROOT
from callboard.languages.flow.outline import outline
from callboard.languages.flow.schema import DESCRIPTIONS, flow_schema
from callboard.languages.language import Definition
from callboard.languages.problems import format_location
from callboard.lib.json_decoder import decode_json


def _about(flow: Flow) -> About:
    declared: Any = flow.parameters.schema.get("properties")
    return About(parameters=dict(declared) if isinstance(declared, dict) else {})


def _children(definition: Definition[Flow]) -> dict[str, str]:
    return {format_location(at): file for at, file in find_child_files(decode_json(definition.canonical))}


def _misfits(flow: Flow, arguments: dict[str, Any]) -> list[Problem]:
    found = flow.parameters.find_violation(arguments)
    # The specification requires that such a run starts, and that its Result reports the violation.
    message = "the arguments do not fit the parameters, so the run fails at once"
    violations = (found, *found.all) if found else ()
    return [Problem("ARGUMENTS", f"{message}: {one}", "arguments", severity="warning") for one in violations]


AUTHORING = Authoring(
    outline=lambda flow: outline(flow, ROOT),
    about=_about,
    misfits=_misfits,
    children=_children,
    conformance=Conformance(CLAIM, find_differences),
    schema=flow_schema,
    descriptions=DESCRIPTIONS,
)
