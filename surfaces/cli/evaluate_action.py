"""Evaluating one expression in this process, with the engine and the rules of a flow's own expressions."""

import datetime as dt
from typing import Any

import click
import msgspec

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError, Unrepresentable
from callboard.languages.cel.program import Program, compile
from callboard.languages.cel.template_strings import OPENING, expression_body
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.results import compact
from callboard.service.operations.start_messages import input_of
from callboard.surfaces.cli.output import say

CODES: dict[type[Exception], str] = {
    EvaluationError: "System.ExpressionEvaluationError",
    Unrepresentable: "System.UnrepresentableValue",
}
"""The failures of a flow that represent an expression without a value, and for a value without a form in JSON."""

CONVERT = "Convert it inside of the expression: string(…), int(…), durationToIso8601(…)."
ASK_BEFORE = "Ask for what may be absent with has(…)."
CONVERT_NUMBERS = "Convert numbers with int(…) or double(…): every number of the bindings is a double."
LOOK_UP = "See the functions that there are in docs/languages/cel.md."

ABSENT = ("no such key", "cannot read")
NUMBER = "double"
"""Words of a message that tell of what is not there, and of the kind of number that bindings have."""


class NoValue(CallboardError):
    """An expression has no value: ``code`` is that of the failure that a flow would come to."""

    def __init__(self, code: str, message: str, expression: str, remedy: str) -> None:
        super().__init__(code, message, expression, remedy)


class _Present:
    """A clock that was read once: `now` and `wall_time` agree, as they do where no time passes."""

    def __init__(self) -> None:
        self._instant = dt.datetime.now(dt.UTC)

    def now(self) -> dt.datetime:
        return self._instant

    def wall_time(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)


def evaluate_text(given: str, bindings_text: str | None, *, explain: bool, as_json: bool) -> None:
    """Print the value of an expression.

    :raises RequestRefused: if the text is not an expression, with the place where it stops being one
    :raises NoValue: if it has no value, or none that JSON can hold
    :raises click.BadParameter: if the bindings are not object
    """
    bindings = _bindings(bindings_text)
    program = compiled(given)
    try:
        value = program.evaluate(bindings, _Present())
    except (EvaluationError, Unrepresentable) as error:
        code = CODES[type(error)]
        raise NoValue(code, str(error), given.strip(), _remedy(program, bindings, error)) from error
    if as_json:
        reads = {"roots": sorted(program.roots), "unknown_functions": sorted(program.unknown_functions)}
        say(compact({"value": value, **(reads if explain else {})}))
        return
    if explain:
        say(_explain(program, bindings), err=True)
    say(compact(value))


def _remedy(program: Program, bindings: dict[str, Any], error: Exception) -> str:
    """Say what to do; of many faults the message says it already."""
    if absent := sorted(program.roots - bindings.keys()):
        return f"Bind {' and '.join(absent)} with --bindings."
    if isinstance(error, Unrepresentable):
        return CONVERT
    if program.unknown_functions:
        return LOOK_UP
    said = str(error)
    if any(words in said for words in ABSENT):
        return ASK_BEFORE
    return CONVERT_NUMBERS if NUMBER in said else ""


def compiled(given: str) -> Program:
    """Compile an expression, with or without the braces of a document around it.

    :raises RequestRefused: if the text is not an expression
    """
    text = given.strip()
    body = expression_body(text)
    try:
        return compile(text if body is None else body)
    except CelSyntaxError as error:
        before = len(OPENING) if body is not None and error.line == 1 else 0
        problem = Problem("EXPRESSION", error.message, line=error.line, column=error.column + before, expected="CEL")
        raise RequestRefused("expression", [problem], source=text) from error


def _bindings(given: str | None) -> dict[str, Any]:
    found = {} if given is None else input_of(given, "--bindings")
    if not isinstance(found, dict):
        raise click.BadParameter('are no object, such as {"vars": {"n": 1}}', param_hint="--bindings")
    # Numbers and texts exactly as a run has them when they come out of its log.
    return msgspec.json.decode(msgspec.json.encode(found))


def _explain(program: Program, bindings: dict[str, Any]) -> str:
    reads = [f"{root}{'' if root in bindings else ' (not bound)'}" for root in sorted(program.roots)]
    lines = [f"reads: {', '.join(reads) or 'nothing'}"]
    if program.unknown_functions:
        lines.append(f"calls what does not exist: {', '.join(sorted(program.unknown_functions))}")
    return "\n".join(lines)
