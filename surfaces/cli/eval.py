"""``callboard eval``: the value of one expression of the flow language."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import json_option


@click.command("eval", epilog=exits.EXIT_CODES)
@click.argument("expression")
@click.option("--bindings", "-b", metavar="JSON|@FILE|-", help="What the expression may read, by root; - reads stdin.")
@click.option("--explain", is_flag=True, help="Say what the expression reads and calls too, on stderr.")
@json_option
@click.pass_context
def evaluate(ctx: click.Context, expression: str, bindings: str | None, explain: bool, as_json: bool) -> None:
    """Evaluate a CEL EXPRESSION as a flow would, and print its value as JSON. Needs no server.

    The expression may be in the braces of a flow's document. Without --bindings it can only use constants; now() and
    wallTime() are the current time. Put `--` before an expression that begins with a minus.

    \b
    callboard eval '1 + 2'
    callboard eval '{{ vars.items.filter(i, i.price > 10.0) }}' --bindings @state.json
    callboard eval -- '-3 + 5'
    """
    from callboard.surfaces.cli.evaluate_action import evaluate_text

    evaluate_text(expression, bindings, explain=explain, as_json=as_json)
