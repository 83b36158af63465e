"""``callboard cel``: the value of one expression of the flow language."""

import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.output import print_answer, say
from callboard.surfaces.cli.settings import json_option

if TYPE_CHECKING:
    from callboard.languages.cel.program import CelProgram


@click.command("cel")
@click.argument("expression")
@click.option(
    "--bindings", "-b", metavar="JSON|@FILE|-", help="The values that the expression may read, by root; - reads stdin."
)
@click.option("--explain", is_flag=True, help="Also report on stderr what the expression reads and calls.")
@json_option
def cel(expression: str, bindings: str | None, explain: bool, as_json: bool) -> None:
    """Evaluate a CEL EXPRESSION as a flow would, and print its value as JSON. Needs no server.

    The expression may be enclosed in the braces of a flow's document. Without --bindings it can only use constants.
    now() and wallTime() return the current time. Put `--` before an expression that begins with a minus.

    \b
    callboard cel '1 + 2'
    callboard cel '{{ vars.items.filter(i, i.price > 10.0) }}' --bindings @state.json
    callboard cel -- '-3 + 5'
    """
    from callboard.bus.errors import CallboardError
    from callboard.languages.cel.errors import EvaluationError, Unrepresentable
    from callboard.service.operations.results import compact

    given = _parse_bindings(bindings)
    program = compile_expression(expression)
    try:
        value = program.evaluate(given, Present())
    except (EvaluationError, Unrepresentable) as error:
        code = NOT_JSON if isinstance(error, Unrepresentable) else NO_VALUE
        raise CallboardError(code, str(error), expression.strip(), _suggest_remedy(program, given, error)) from error
    if explain and not as_json:
        say(_explain(program, given), err=True)
    reads = {"roots": sorted(program.roots), "unknown_functions": sorted(program.unknown_functions)}
    print_answer({"value": value, **(reads if explain else {})}, compact(value), as_json=as_json)


NO_VALUE, NOT_JSON = "System.ExpressionEvaluationError", "System.UnrepresentableValue"
"""The failures of a flow: of an expression without a value, and of a value that JSON cannot hold."""

CONVERT = "Convert it inside the expression: string(…), int(…), durationToIso8601(…)."
ASK_BEFORE = "Test with has(…) for a field that may be absent."
CONVERT_NUMBERS = "Convert numbers with int(…) or double(…): every number of the bindings is a double."
LOOK_UP = "docs/languages/cel.md lists the functions."

ABSENT = ("no such key", "cannot read")
NUMBER = "double"
"""Words in messages about an absent field, and about a number of the wrong type."""


class Present:
    """A clock whose `now` is read once; `wall_time` is the current time."""

    def __init__(self) -> None:
        self._instant = dt.datetime.now(dt.UTC)

    def now(self) -> dt.datetime:
        return self._instant

    def wall_time(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)


def _suggest_remedy(program: "CelProgram", bindings: dict[str, Any], error: Exception) -> str:
    """Return a remedy; empty if the message is enough."""
    from callboard.languages.cel.errors import Unrepresentable

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


def compile_expression(given: str) -> "CelProgram":
    """Compile an expression, with or without the braces of a document around it.

    :raises RequestRefused: if the text is not an expression
    """
    from callboard.bus.events import Problem
    from callboard.languages.cel.errors import CelSyntaxError
    from callboard.languages.cel.program import compile
    from callboard.languages.cel.template_strings import OPENING, expression_body
    from callboard.runtime.client.errors import RequestRefused

    text = given.strip()
    body = expression_body(text)
    try:
        return compile(text if body is None else body)
    except CelSyntaxError as error:
        before = len(OPENING) if body is not None and error.line == 1 else 0
        problem = Problem("EXPRESSION", error.message, line=error.line, column=error.column + before, expected="CEL")
        raise RequestRefused("expression", [problem], source=text) from error


def _parse_bindings(given: str | None) -> dict[str, Any]:
    import msgspec

    from callboard.service.files.start_messages import input_of

    found = {} if given is None else input_of(given, "--bindings")
    if not isinstance(found, dict):
        raise click.BadParameter('expected an object such as {"vars": {"n": 1}}', param_hint="--bindings")
    # Numbers and texts get the types that a run reads from its log.
    return msgspec.json.decode(msgspec.json.encode(found))


def _explain(program: "CelProgram", bindings: dict[str, Any]) -> str:
    reads = [f"{root}{'' if root in bindings else ' (not bound)'}" for root in sorted(program.roots)]
    lines = [f"reads: {', '.join(reads) or 'nothing'}"]
    if program.unknown_functions:
        lines.append(f"calls unknown functions: {', '.join(sorted(program.unknown_functions))}")
    return "\n".join(lines)
