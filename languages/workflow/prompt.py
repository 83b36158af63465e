"""The prompts of models: the instruction of a node with its rules, background and skills, and the earlier results.

A message refers to an earlier result by its place in the log, so that the result is stored once.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.bus.effects import Former, Message, Part, Recall, Text
from callboard.languages.skills.skill import Skill
from callboard.languages.workflow.document import Node
from callboard.languages.workflow.evaluators import Evaluation
from callboard.languages.workflow.usage import Layers, effective_texts
from callboard.lib.json_types import JSON

RULES_HEADING = "## Rules — You MUST Follow These"
CONTEXT_HEADING = "## Background Context"
SEPARATOR = "\n\n---\n\n"

INLINE_CHARS_MAX = 120
"""The longest JSON of a single field that a message repeats; it refers to longer ones."""

SYSTEM = (
    "You carry out one step of a workflow. The message holds the step's instruction and, as JSON, the context: the "
    "run's input and the results of the steps before. Follow the instruction, use the tools you are given where they "
    "help, and finish with the result of this step. Say so plainly if something cannot be done."
)


def instruction_of(node_id: str, node: Node, skills: Sequence[Skill], layers: Layers, base: str) -> str:
    """Assemble a node's instruction: rules, background, the texts of skills, and last the instruction itself."""
    sections = [
        f"{heading}\n\n" + "\n\n".join(texts)
        for heading, name in ((RULES_HEADING, "rules"), (CONTEXT_HEADING, "context"))
        if (texts := effective_texts(layers, node_id, node, name))
    ]
    sections += [f"## Skill: {skill.name}\n\n{skill.instruction}" for skill in skills if skill.instruction]
    return SEPARATOR.join([*sections, base])


class NewestResult(Struct, frozen=True):
    """The newest result of a node; ``of`` (``path#iteration``) is the execution under which the log holds it."""

    of: str
    status: str
    data: dict[str, Any]
    evals: list[Evaluation] = field(default_factory=list[Evaluation])
    output_keys: list[str] | None = None

    def verdicts(self) -> dict[str, JSON]:
        """Return the evaluators' verdicts by name."""
        records = [evaluation.record() for evaluation in self.evals]
        return {record.pop("name"): record for record in records}

    def to_recorded_context(self) -> dict[str, JSON] | None:
        """Return the context for later nodes if it differs from the data, else None."""
        return self.to_context() if self.evals else None

    def to_context(self) -> dict[str, JSON]:
        """Return the context for later nodes: the data, and the verdicts as ``evals`` unless the data has that key."""
        return {"evals": self.verdicts(), **self.data} if self.evals else self.data

    def routing_parts(self) -> list[Part]:
        """Return the result for a routing question: of structured output the declared keys, null if they are missing.

        If the node did not succeed, its status and the reason are added, so that conditions can refer to them.
        """
        added: dict[str, JSON] = {"evals": self.verdicts()} if self.evals else {}
        if self.status != "success":
            added |= {"status": self.status}
            added |= {key: self.data[key] for key in ("error", "skipped_reason") if key in self.data}
        elif self.output_keys is None and not added:
            return [Recall(self.of, "/result/data")]
        shown = self.data if self.output_keys is None else self.output_keys
        return _object(_to_parts(added) | {key: self._of_key(key) for key in shown})

    def _of_key(self, key: str) -> list[Part]:
        escaped = key.replace("~", "~0").replace("/", "~1")
        return _value(self.data.get(key), self.of, f"/result/data/{escaped}")


def _to_parts(values: dict[str, JSON]) -> dict[str, list[Part]]:
    return {key: [Text(json_text(value))] for key, value in values.items()}


def task_message(instruction: str, given: JSON, last: str | None) -> Message:
    """Make the first message of a node's conversation; ``last`` is the latest node execution that has ended."""
    opening = f'## Instruction\n\n{instruction}\n\n## Context\n\n{{"input": {json_text(given)}'
    former = [Former(last)] if last is not None else []
    return Message("user", join_texts([Text(opening), *former, Text("}")]))


def routing_context(given: JSON, former: dict[str, NewestResult]) -> list[Part]:
    """Make the context of a routing question, as parts of a message."""
    members: dict[str, list[Part]] = {"input": [Text(json_text(given))]}
    return _object(members | {name: one.routing_parts() for name, one in former.items()})


def join_texts(parts: Iterable[Part]) -> list[Part]:
    """Join adjacent texts."""
    result: list[Part] = []
    for part in parts:
        if isinstance(part, Text) and result and isinstance(last := result[-1], Text):
            result[-1] = Text(last.text + part.text)
        else:
            result.append(part)
    return result


def json_text(value: JSON) -> str:
    """Return a value as compact JSON."""
    return msgspec.json.encode(value).decode()


def _value(value: JSON, of: str, at: str) -> list[Part]:
    text = json_text(value)
    return [Text(text) if len(text) <= INLINE_CHARS_MAX else Recall(of, at)]


def _object(members: dict[str, list[Part]]) -> list[Part]:
    """Make the parts of a JSON object from those of its members."""
    parts: list[Part] = [Text("{")]
    for index, (name, value) in enumerate(members.items()):
        parts += [Text(f"{', ' if index else ''}{json_text(name)}: "), *value]
    return join_texts([*parts, Text("}")])
