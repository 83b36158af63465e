"""Templates: texts in which ``{{ expression }}`` represents its value, at any depth of objects and lists.

Braces around anything else stay as they are. So does ``{{$placeholder}}``, which marks a value that the author has yet
to fill in. A text is rendered in one pass, in time proportional to its length and that of the values.
"""

from collections.abc import Iterator

from callboard.languages.graph.expressions import ExpressionInvalid, ExpressionNames, evaluate, parse, write_value
from callboard.lib.json_types import JSON

PLACEHOLDER = "{{$placeholder}}"

_OPENING, _CLOSING = "{{", "}}"


def render(value: JSON, scope: ExpressionNames) -> JSON:
    """Return a value with all templates in it filled in; names of members are left alone."""
    scope.budget.take(1)
    match value:
        case str():
            return render_text(value, scope)
        case list():
            return [render(item, scope) for item in value]
        case dict():
            return {name: render(member, scope) for name, member in value.items()}
        case _:
            return value


def render_text(text: str, scope: ExpressionNames) -> str:
    """Return a text with its templates filled in; null becomes the empty text."""
    scope.budget.take_text(len(text))
    return "".join(_pieces(text, scope)) if _OPENING in text else text


def _pieces(text: str, scope: ExpressionNames) -> Iterator[str]:
    """Yield the pieces of a text: the text between places as it is, and places as their values."""
    at = 0
    while (opening := text.find(_OPENING, at)) >= 0:
        # A place ends at the next closing pair, even inside a string.
        closing = text.find(_CLOSING, opening + len(_OPENING))
        if closing < 0:
            break
        yield text[at:opening]
        at = closing + len(_CLOSING)
        yield _fill_place(text[opening:at], scope)
    yield text[at:]


def _fill_place(place: str, scope: ExpressionNames) -> str:
    """Return the value of a place as text, or the place itself if it does not hold an expression."""
    scope.budget.take_parsed(place)
    try:
        return write_value(evaluate(parse(place[len(_OPENING) : -len(_CLOSING)]), scope), scope.budget)
    except ExpressionInvalid:
        return place


def is_placeholder(value: JSON) -> bool:
    """Whether a value is still to be filled in."""
    return value is None or value == "" or (isinstance(value, str) and value.strip() == PLACEHOLDER)
