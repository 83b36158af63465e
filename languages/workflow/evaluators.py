"""Evaluators: the checks that run after a model has finished a node, their models and their logic.

This module decides ``value`` and ``function`` evaluators. A ``judge`` is a question to a model, which
`callboard.languages.workflow.evaluation` asks.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from callboard.languages.parts import Maybe, Part, Text, one_of, variant_by
from callboard.languages.problems import VARIANT, Complaint
from callboard.languages.workflow.checks import OutputMatch, unmet_matches, unmet_required
from callboard.lib.json_types import JSON

REASONING_CHARS_MAX = 500
"""The greatest length of the reasoning in a result."""

KINDS = ("value", "function", "judge")

_Names = Maybe[Annotated[list[Text], Field(min_length=1)]]


class Rule(Part):
    """The conditions of an evaluator, all of which must hold. Keys of the other kind are legal and have no effect."""

    output_required: _Names = None
    output_matches: Maybe[Annotated[list[OutputMatch], Field(min_length=1)]] = None
    any_tool_called: _Names = None
    all_tools_called: _Names = None
    no_tool_called: _Names = None

    @model_validator(mode="after")
    def _not_empty(self) -> "Rule":
        if not self.model_fields_set:
            raise Complaint("SCHEMA", "is empty", f"at least one of {', '.join(type(self).model_fields)}")
        return self


class ValueEvaluator(Part):
    name: Text
    kind: Annotated[Literal["value"], one_of(*KINDS)]
    rule: Rule


class FunctionEvaluator(Part):
    name: Text
    kind: Annotated[Literal["function"], one_of(*KINDS)]
    rule: Rule


def _one_word(text: str) -> str:
    if len(text.split()) != 1 or text != text.strip():
        raise Complaint("SCHEMA", f"{text!r} is not a single word", "a word without blanks")
    return text


class JudgeEvaluator(Part):
    """``pass_when`` is the word with which the judge lets the node pass."""

    name: Text
    kind: Annotated[Literal["judge"], one_of(*KINDS)]
    rubric: Text
    pass_when: Annotated[Text, AfterValidator(_one_word)] = "yes"
    model: Maybe[Text] = None


Evaluator = Annotated[
    Annotated[ValueEvaluator, Tag(f"{VARIANT}value")]
    | Annotated[FunctionEvaluator, Tag(f"{VARIANT}function")]
    | Annotated[JudgeEvaluator, Tag(f"{VARIANT}judge")],
    Discriminator(variant_by("kind", KINDS, lambda raw: "judge" if "rubric" in raw else "value")),
]


class Evaluation(Struct, frozen=True):
    """The verdict of one evaluator (the specification's EvalResult)."""

    name: str
    kind: Literal["value", "function", "judge"]
    passed: bool
    reasoning: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the evaluation as it appears in a node's result."""
        members = {"name": self.name, "kind": self.kind, "pass": self.passed}
        return members if self.reasoning is None else {**members, "reasoning": self.reasoning}

    def line(self) -> str:
        """Return the evaluation as one line of an error or of feedback."""
        return f"{self.name} ({self.kind}): {' '.join((self.reasoning or 'failed').split())}"


class ToolUsed(Struct, frozen=True):
    """A tool call as evaluators see it."""

    tool: str
    succeeded: bool


def evaluate_value(evaluator: ValueEvaluator, data: JSON) -> Evaluation:
    """Check a node's data against a rule."""
    rule = evaluator.rule
    faults = [f"output_required {fault}" for fault in unmet_required(data, rule.output_required or [])]
    faults += [f"output_matches {fault}" for fault in unmet_matches(data, rule.output_matches or [])]
    return verdict(evaluator.name, "value", faults)


def evaluate_function(
    evaluator: FunctionEvaluator, used: Sequence[ToolUsed], aliases: Mapping[str, frozenset[str]]
) -> Evaluation:
    """Check a node's tool calls against a rule; ``aliases`` maps a name to all names of the same tool."""

    def is_called(name: str, *, succeeded: bool) -> bool:
        names = aliases.get(name, frozenset({name}))
        return any(call.tool in names and (call.succeeded or not succeeded) for call in used)

    rule = evaluator.rule
    faults: list[str] = []
    if rule.any_tool_called and not any(is_called(name, succeeded=True) for name in rule.any_tool_called):
        faults.append(f"any_tool_called wants one of {_list_names(rule.any_tool_called)} to succeed")
    if rule.all_tools_called:
        missing = [name for name in rule.all_tools_called if not is_called(name, succeeded=True)]
        if missing:
            faults.append(f"all_tools_called wants all of {_list_names(rule.all_tools_called)} to succeed")
    if rule.no_tool_called:
        present = [name for name in rule.no_tool_called if is_called(name, succeeded=False)]
        if present:
            faults.append(f"no_tool_called forbids {_list_names(present)}")
    made = [call.tool if call.succeeded else f"{call.tool} (failed)" for call in used]
    return verdict(evaluator.name, "function", [f"{'; '.join(faults)}, called: {_list_names(made)}"] if faults else [])


def verdict(name: str, kind: Literal["value", "function", "judge"], faults: list[str]) -> Evaluation:
    """Make an evaluation, which passes without faults."""
    return Evaluation(name, kind, not faults, shorten("; ".join(faults)) if faults else None)


def shorten(text: str) -> str:
    """Cut a reasoning to `REASONING_CHARS_MAX` characters."""
    return text if len(text) <= REASONING_CHARS_MAX else text[: REASONING_CHARS_MAX - 1] + "…"


def _list_names(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]" if names else "none"
