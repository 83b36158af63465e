"""The outline of a playbook: its steps in order, and below a branching step the sub-steps of each branch.

The id of a node is its path. Its ``type`` is ``step`` or ``substep``; its ``subtype`` is ``tool``, ``elicit``,
``branch`` or ``model``. The ``when`` of an edge into a branch is the condition of the branch, or ``else``.
"""

from callboard.bus.events import Outline, OutlineEdge, OutlineNode
from callboard.bus.paths import child, encode_id
from callboard.languages.playbook.document import Branch, Playbook, Step

ELSE = "else"


def outline(playbook: Playbook) -> Outline:
    """Return the shape of a playbook; steps that share a number are one node."""
    nodes: dict[str, OutlineNode] = {}
    edges: list[OutlineEdge] = []
    before: str | None = None
    for step in playbook.steps:
        at = encode_id(step.label)
        nodes.setdefault(at, OutlineNode(at, step.title, "step", _does(step)))
        if before is not None and before != at:
            edges.append(OutlineEdge(before, at))
        before = at
        for branch in step.branches:
            _draw(branch, at, nodes, edges)
    return Outline(list(nodes.values()), edges)


def _draw(branch: Branch, at: str, nodes: dict[str, OutlineNode], edges: list[OutlineEdge]) -> None:
    source, when = at, condition_text(branch)
    for step in branch.steps:
        below = child(at, encode_id(step.label))
        nodes.setdefault(below, OutlineNode(below, step.title, "substep", _does(step)))
        edges.append(OutlineEdge(source, below, when))
        source, when = below, None


def condition_text(branch: Branch) -> str:
    """Return the condition of a branch as text."""
    test = branch.condition
    return ELSE if test is None else f'{test.variable} {test.operator} "{test.value}"'


def _does(step: Step) -> str:
    if step.tool_call is not None:
        return "tool"
    if step.is_branching:
        return "branch"
    return "elicit" if step.elicitation is not None and not (step.content or step.prompt_ref) else "model"
