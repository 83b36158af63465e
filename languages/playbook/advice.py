"""Advice: warnings about a playbook beyond those of the specification.

``callboard validate`` and the verdict of a start show them; a parse result does not contain them.
"""

from collections.abc import Iterator

from callboard.bus.events import Problem
from callboard.languages.playbook.document import Playbook, Step
from callboard.languages.playbook.findings import ELICITED
from callboard.languages.playbook.patterns import PLACEHOLDER


def advice(playbook: Playbook) -> list[Problem]:
    """Return warnings about a valid playbook, by line."""
    return sorted(_Walk(playbook).findings(), key=lambda problem: problem.line or 0)


class _Walk:
    """A walk through the steps in order, which collects the names that are declared so far."""

    def __init__(self, playbook: Playbook) -> None:
        self._playbook = playbook
        self._inputs = {one.name for one in playbook.inputs}
        self._names = set(self._inputs)

    def findings(self) -> Iterator[Problem]:
        for step in self._playbook.steps:
            yield from self._step(step)
        kind = self._playbook.artifact_type
        yield from (_undeclared_problem(name, "The artifact type", None) for name in self._missing(kind))

    def _step(self, step: Step) -> Iterator[Problem]:
        if step.elicitation is not None:
            self._names.add(f"{ELICITED}{step.number}")
        yield from self._texts(step)
        before = set(self._names)
        captured: set[str] = set()
        for branch in step.branches:
            # A branch does not see the names that other branches capture.
            self._names = set(before)
            for one in branch.steps:
                if one.elicitation is not None:
                    self._names.add(f"{ELICITED}{step.number}")
                yield from self._texts(one)
                self._names |= {one.output_var} - {""}
            captured |= self._names
        if step.is_branching and not step.branches:
            yield _advice("UNCLOSED_BRANCH", f"Step {step.label} opens a branch that no ```endif``` closes", step)
        self._names |= captured | ({step.output_var} - {""})

    def _texts(self, step: Step) -> Iterator[Problem]:
        texts = [step.content]
        texts += [step.prompt_ref.prompt_id] if step.prompt_ref else []
        texts += [step.tool_call.arguments] if step.tool_call else []
        for name in dict.fromkeys(name for text in texts for name in self._missing(text)):
            yield _undeclared_problem(name, f"Step {step.label}", step)
        if step.output_var in self._inputs:
            message = f'Step {step.label} captures "{step.output_var}", but texts will read the input of that name'
            yield _advice("SHADOWED_OUTPUT", message, step)

    def _missing(self, text: str) -> Iterator[str]:
        """Yield the names in a text that nothing has declared so far, and whose placeholder has no default."""
        for match in PLACEHOLDER.finditer(text):
            if match[1] not in self._names and match[2] is None:
                yield match[1]


def _undeclared_problem(name: str, who: str, step: Step | None) -> Problem:
    message = f"{who} refers to {{{{{name}}}}}, which no input and no earlier step declares; it stays unchanged"
    return _advice("UNDECLARED_PLACEHOLDER", message, step)


def _advice(code: str, message: str, step: Step | None) -> Problem:
    return Problem(code, message, line=step.line if step else None, severity="warning")
