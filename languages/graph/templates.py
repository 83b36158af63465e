"""Templates: texts in which ``{{ expression }}`` stands for its value, at any depth of objects and lists.

What is between the braces and is no expression stays as it is; so does ``{{$placeholder}}``, which stands for a value
that is still to be filled in.
"""

import re

from callboard.bus.effects import JSON
from callboard.languages.graph.expressions import ExpressionInvalid, Scope, evaluate, parse, text_of

PLACEHOLDER = "{{$placeholder}}"

_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def rendered(value: JSON, scope: Scope) -> JSON:
    """Return a value with all templates in it filled in; names of members are left alone."""
    match value:
        case str():
            return rendered_text(value, scope)
        case list():
            return [rendered(item, scope) for item in value]
        case dict():
            return {name: rendered(member, scope) for name, member in value.items()}
        case _:
            return value


def rendered_text(text: str, scope: Scope) -> str:
    """Fill a text in; null is empty."""

    def filled(match: re.Match[str]) -> str:
        try:
            return text_of(evaluate(parse(match[1]), scope))
        except ExpressionInvalid:
            return match[0]

    return _PLACE.sub(filled, text) if "{{" in text else text


def is_placeholder(value: JSON) -> bool:
    """Whether a value is still to be filled in."""
    return value is None or value == "" or (isinstance(value, str) and value.strip() == PLACEHOLDER)
