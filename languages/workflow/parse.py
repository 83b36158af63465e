"""Read the text of a workflow: the result is a definition, or all problems of the text."""

from pydantic import ValidationError

from callboard.bus.events import Problem
from callboard.languages.plan import Definition
from callboard.languages.problems import Tree, from_pydantic, kind_of
from callboard.languages.source_text import read_document
from callboard.languages.workflow.document import Workflow
from callboard.languages.workflow.validate import beyond_schema, structure
from callboard.lib.canonical_json import canonical


def parse(source: str) -> Definition[Workflow] | list[Problem]:
    """Read a workflow document, YAML or JSON; its canonical form is the canonical JSON of the document as written."""
    tree = read_document(source)
    if not isinstance(tree, Tree):
        return tree
    if not isinstance(tree.value, dict):
        message = f"expected a workflow object, got {kind_of(tree.value)}"
        return [tree.problem("SCHEMA", message, expected="id, name, entry, nodes and edges")]
    problems = structure(tree)
    try:
        document = Workflow.model_validate(tree.value)
    except ValidationError as error:
        places = {problem.where for problem in problems}
        schema = from_pydantic(error, Workflow, tree)
        return in_order([*(problem for problem in schema if problem.where not in places), *problems])
    problems += beyond_schema(document, tree)
    if any(problem.severity == "error" for problem in problems):
        return in_order(problems)
    warnings = tuple(in_order(problems))
    return Definition("workflow", document.id, source, canonical(tree.value), document, warnings)


def in_order(problems: list[Problem]) -> list[Problem]:
    """Sort problems by their place in the text, errors and warnings together."""
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
