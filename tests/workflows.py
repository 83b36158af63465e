"""Short workflows for tests: documents from a few words, and runs of them on a fake stage."""

import json
from dataclasses import dataclass, replace
from typing import Any

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.languages.language import Definition, End, Plan
from callboard.languages.registry import language
from callboard.languages.workflow.document import Workflow
from tests.fake_stage import FakeStage, Script

WORKFLOW = language("workflow")


def document(nodes: dict[str, dict[str, Any]], edges: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Make a document: nodes get a name and an instruction, edges may be ``(from, to)`` or ``(from, to, when)``."""
    return {
        "id": "w",
        "name": "W",
        "entry": next(iter(nodes)),
        "nodes": {name: {"name": name, "instruction": f"Do {name}.", **node} for name, node in nodes.items()},
        "edges": [_edge(edge) for edge in edges or []],
        **fields,
    }


def _edge(edge: Any) -> dict[str, Any]:
    if isinstance(edge, dict):
        return edge
    source, target, *when = edge
    return {"from": source, "to": target, **({"when": when[0]} if when else {})}


def parsed(raw: dict[str, Any] | str) -> Definition[Workflow]:
    source = raw if isinstance(raw, str) else json.dumps(raw)
    definition = WORKFLOW.parse(source)
    assert isinstance(definition, Definition), [str(problem) for problem in definition]
    return definition


def problems_of(raw: dict[str, Any] | str) -> list[Problem]:
    source = raw if isinstance(raw, str) else json.dumps(raw)
    problems = WORKFLOW.parse(source)
    return [] if isinstance(problems, Definition) else problems


def codes_of(raw: dict[str, Any] | str) -> list[str]:
    return [problem.code for problem in problems_of(raw) if problem.severity == "error"]


def start(**fields: Any) -> StartRun:
    return StartRun(DefinitionSource("workflow", "…"), **fields)


def admitted(raw: dict[str, Any] | str, **fields: Any) -> Plan[Workflow]:
    plan = WORKFLOW.admit(parsed(raw), start(**fields))
    assert isinstance(plan, Plan), [str(problem) for problem in plan]
    return plan


def refused(raw: dict[str, Any] | str, **fields: Any) -> list[Problem]:
    problems = WORKFLOW.admit(parsed(raw), start(**fields))
    assert isinstance(problems, list)
    return problems


@dataclass
class Ran:
    """A finished run: how it ended, and the stage with all that happened."""

    end: End
    stage: FakeStage

    def data(self, node: str) -> dict[str, Any]:
        return self.end.results[node]["data"]

    def status(self, node: str) -> str:
        return self.end.results[node]["status"]

    def routes(self) -> list[tuple[str, str, str]]:
        found = [record.payload for record in self.stage.of("route")]
        return [(route["from"], route["to"], route["reason"]) for route in found]

    def warnings(self) -> list[str]:
        return [record.payload["code"] for record in self.stage.of("node.warning")]


def run(
    raw: dict[str, Any] | str,
    script: Script | None = None,
    *,
    input: Any = None,
    options: dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
    strict: bool = False,
    **stage: Any,
) -> Ran:
    """Admit a workflow and drive it to its end. Without a script every node answers ``ok``."""
    plan = admitted(raw, input=input, options=options or {}, files=files or {})
    plan = replace(plan, options={**plan.options, "strict": strict})
    fake = FakeStage(script if script is not None else {"default": {"text": "ok"}}, files=files, **stage)
    return Ran(fake.drive(WORKFLOW.interpret(plan, fake.stage)), fake)


def scripted_skill(skill_id: str, *names: str, **fields: Any) -> dict[str, Any]:
    """Make a skill; its tools are those named, which the script answers for, or the ``tools`` among the fields."""
    return {
        "id": skill_id,
        "name": skill_id.title(),
        "description": "for tests",
        "category": "general",
        "config": {},
        "tools": [{"name": tool, "description": tool, "input_schema": {"type": "object"}} for tool in names],
        **fields,
    }
