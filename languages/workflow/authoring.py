"""The workflow language for editors and for commands that read definitions: descriptions, files, skills."""

from collections.abc import Mapping
from typing import Any

from callboard.languages.authoring import About, Authoring
from callboard.languages.problems import Tree
from callboard.languages.skills.shipped import shipped_ids
from callboard.languages.source_text import read_document
from callboard.languages.workflow.admit import WorkflowOptions, outline
from callboard.languages.workflow.document import Workflow
from callboard.languages.workflow.usage import declared_sources
from callboard.lib.canonical_json import canonical

_INPUT = {
    "description": "What the input is for.",
    "required": "Whether a start has to give it.",
    "type": "The type of the value: string, number, boolean or string[].",
    "default": "The value if a start gives none.",
    "enum": "The only values that are permitted.",
}
_INPUTS = ("BooleanInput", "NumberInput", "StringInput", "StringsInput")
DESCRIPTIONS: Mapping[str, str] = {
    # By ``Owner.member``, or by ``member`` for all owners.
    "id": "The id of the workflow: letters, digits, `-` and `_`. Runs are listed under it.",
    "name": "A name for people.",
    "description": "What it is for.",
    "entry": "The id of the node that a run begins with.",
    "nodes": "The steps, by id.",
    "edges": "The ways between nodes. A model decides among those of a node that have a condition.",
    "skills": "Skills that this workflow brings along, by id.",
    "rules": "Rules that hold in every node: texts, files or URLs.",
    "context": "Background that every node gets: texts, files or URLs.",
    "workflow_type": "What kind of work it is; a label.",
    "model": "The model, as `provider:model`. Without one, that of the workflow or of the start.",
    "judge_model": "The model that judges answers.",
    "judge_budget": "How often judges may be asked in a run.",
    "inputs": "The inputs that a start gives, by name.",
    **{f"{kind}.{name}": text for kind in _INPUTS for name, text in _INPUT.items()},
    "AutoFeedback.auto": "Have the model itself say what went wrong, before it tries again.",
    "ReflectFeedback.reflect": "A question to the model about what went wrong, before it tries again.",
    "Edge.from": "The node that the edge leaves.",
    "Edge.to": "The node that it leads to.",
    "Edge.when": "The condition, in plain language. Without one it is the default edge.",
    "max_iterations": "How often this edge may be taken in a run.",
    "FunctionEvaluator.name": "A name for the check, which its failure reports.",
    "JudgeEvaluator.name": "A name for the check, which its failure reports.",
    "ValueEvaluator.name": "A name for the check, which its failure reports.",
    "kind": "What checks the answer: `value` (the output), `function` (the tools called) or `judge` (a model).",
    "rubric": "What a judging model checks the answer for.",
    "pass_when": "The word with which the judge lets the node pass.",
    "instruction": "What the model is to do: a text, a file or a URL.",
    "mcp": "The MCP server that has the tools of the skill.",
    "timeout": "How long a call may take: `30s`, `2m`.",
    "retries": "How often a failed call is repeated.",
    "concurrency": "How many calls may be under way at once.",
    "McpServer.type": "`stdio` runs a program; `http`, which `streamable-http` means too, asks a URL.",
    "command": "The program to run.",
    "args": "The arguments of the program.",
    "McpServer.url": "The address of the server.",
    "headers": "Headers of requests. `${NAME}` stands for a variable that `env` declares.",
    "env": "Variables that the server needs, each with what it is for.",
    "limits": "Limits by tool, where they differ from those of the server.",
    "scope": "How long the server lives: as a `node` is executed, or as the `run`.",
    "approve": "Which calls need the decision of a person.",
    "Node.skills": "The ids of the skills whose tools the model may call.",
    "optional": "Nodes run without the skill if its file cannot be used.",
    "output": "A JSON Schema that the answer has to fit.",
    "max_turns": "How many turns the model has, tool calls included. Default: 20.",
    "disallowed_tools": "Tools of an agent runtime that must not be offered. Callboard offers none.",
    "tools": "Which tools of the skills the model may call.",
    "fail_soft": "Whether a failure of the model counts as success, with the error in the output.",
    "Node.rules": "Rules of this node, beside those of the workflow.",
    "Node.context": "Background of this node, beside that of the workflow.",
    "requires": "What must hold before the model is asked.",
    "eval": "Checks of the answer.",
    "eval_policy": "How checks count together. Only `all_pass` is supported.",
    "Node.judge_model": "The model that judges the answers of this node.",
    "retry": "Try again when a check fails.",
    "NodeSources.only": "Leave out what the node would inherit from the workflow.",
    "sources": "Texts, files or URLs.",
    "path": "What to look at: `node.member`, `any:list[*].member`.",
    "equals": "The value that it has to have; null is a value.",
    "in": "The values that it may have.",
    "matches": "A regular expression of JavaScript that it has to match.",
    "output_required": "Paths that must be there in the output of a node.",
    "output_matches": "Comparisons of values in the output.",
    "on_fail": "What becomes of the node if they do not hold: `fail` or `skip`.",
    "max": "How many further tries there are.",
    "Retry.instruction": "What the model is told before it tries again.",
    "any_tool_called": "At least one of these tools must have been called.",
    "all_tools_called": "All of these tools must have been called.",
    "no_tool_called": "None of these tools may have been called.",
    "inline": "The text itself.",
    "file": "A path relative to the workflow.",
    "url": "An address that the text is fetched from.",
    "type": "How the URL is read; `fetch` is the only way.",
    "allow": "The only tools that are offered.",
    "deny": "Tools that are not offered.",
}


def _files(document: Workflow, given: Any) -> dict[str, str]:
    sources, _problems = declared_sources(document, given if isinstance(given, dict) else {})
    return {field: source.value for field, source in sources.items() if source.kind == "file"}


def _about(document: Workflow) -> About:
    inputs = {name: one.model_dump(exclude_unset=True) for name, one in (document.inputs or {}).items()}
    return About(document.name, document.description, inputs)


def _skills(document: Workflow) -> frozenset[str]:
    return frozenset(skill for node in document.nodes.values() for skill in node.skills)


def _skills_defined(document: Workflow) -> frozenset[str]:
    return frozenset(document.skills).union(shipped_ids())


def _with_prompt(source: str, node: str, prompt: str) -> str | None:
    tree = read_document(source)
    document: Any = tree.value if isinstance(tree, Tree) else None
    if not isinstance(document, dict) or node not in document.get("nodes", {}):
        return None
    document["nodes"][node]["instruction"] = prompt
    return canonical(document).decode()


AUTHORING = Authoring(
    files=_files,
    outline=outline,
    options=WorkflowOptions,
    skills_beside=True,
    dry_runs=True,
    about=_about,
    with_prompt=_with_prompt,
    skills=_skills,
    skills_defined=_skills_defined,
    schema=Workflow.model_json_schema,
    descriptions=DESCRIPTIONS,
)
