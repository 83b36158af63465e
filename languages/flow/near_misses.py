"""Near misses: literals of a flow that look as if something were filled in, but are passed on as they are written."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from callboard.languages.cel import program
from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.template_strings import CLOSING, OPENING, expression_body
from callboard.languages.flow.contracts.definition import DEFINITION
from callboard.languages.flow.contracts.http import HTTP
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.process import PROCESS
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.inspection import Findings, Site
from callboard.languages.problems import Location
from callboard.languages.variables import NAME, Reference, blank_out_code, find_references
from callboard.lib.json_types import JSON

TEXT_SHOWN_CHARS_MAX = 80
"""How many characters of a literal a problem shows."""

CORRECTED_CHARS_MAX = 400
"""The greatest length of a corrected form that a problem proposes, in characters."""

CLOSINGS_TRIED_MAX = 20
"""How many closing braces are tried for an opening pair."""

MISTAKEN_ROOTS = frozenset(
    {"args", "context", "env", "input", "inputs", "item", "output", "outputs", "params", "state"}
)
"""Names that expressions of other languages read; a text with one of them is probably meant as an expression."""


class _Text(Struct, frozen=True):
    """A literal, with its location and the kind of its place."""

    location: Location
    text: str
    place: str = ""
    """``foreign``: a text in another language; ``program``: what a program reads; ``prompt``: what a model reads;
    ``lent``: variables are filled in; ``variable``: the name of one; ``header``: of an HTTP request."""


def warn_of_near_misses(findings: Findings) -> None:
    """Warn of every literal that looks as if something in it were filled in."""
    contracts = {found.location: found.contract.uri for found in findings.arguments if found.contract is not None}
    for site in findings.sites:
        uri = contracts.get(site.location, "")
        for found in _find_texts(site.value, site.location, uri):
            if found.place != "foreign":
                _warn_of_expression(findings, site, found)
                _warn_of_variable(findings, site, found)
        for location, name in _find_names(site.value, site.location):
            message = f"the name {_shorten(name)!r} is taken as it is written: only values are evaluated"
            findings.warn("HALF_EXPRESSION", message, location, "a name that is written out")


# -- expressions within texts ------------------------------------------------------------------------------------------


def _warn_of_expression(findings: Findings, site: Site, found: _Text) -> None:
    pieces = list(_split_expressions(found.text))
    if found.text.strip().startswith(OPENING):
        message = f"{_shorten(found.text)!r} begins like an expression, but the braces do not span it: it is a literal"
    elif any(_reads(site, body, MISTAKEN_ROOTS) for _literal, body in pieces if body is not None):
        message = f"{_shorten(found.text)!r} is passed on as it is written: an expression spans the whole text"
    else:
        return
    findings.warn(
        "HALF_EXPRESSION", message, found.location, _correct_expression(pieces) or f"{OPENING} … {CLOSING}, no more"
    )


def _split_expressions(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the literal parts of a text, each with the expression that follows it (None at the end).

    ``${{ … }}`` is not a CEL expression, but a form of other tools.
    """
    begin = at = 0
    while (opening := text.find(OPENING, at)) >= 0:
        closing = _find_closing(text, opening)
        if closing is None:
            break
        at = closing + len(CLOSING)
        if text[:opening].endswith("$"):
            continue
        yield text[begin:opening], text[opening + len(OPENING) : closing]
        begin = at
    yield text[begin:], None


def _find_closing(text: str, opening: int) -> int | None:
    """Return the offset of the braces that close an expression; None without a valid expression."""
    closing = opening
    for _ in range(CLOSINGS_TRIED_MAX):
        closing = text.find(CLOSING, closing + 1)
        if closing < 0:
            return None
        if _compile_text(text[opening + len(OPENING) : closing]) is not None:
            return closing
    return None


def _compile_text(body: str) -> program.CelProgram | None:
    try:
        return program.compile(body) if body.strip() else None
    except CelSyntaxError:
        return None


def _reads(site: Site, body: str, more: Collection[str] = ()) -> bool:
    """Return whether an expression reads a root, a variable or one of the names in ``more``."""
    compiled = _compile_text(body)
    return compiled is not None and not compiled.roots.isdisjoint({*site.roots, *site.node.assigned, *more})


def _correct_expression(pieces: Sequence[tuple[str, str | None]]) -> str:
    """Return one expression with the meaning of a text; empty if it would be long, or braces remain in a literal."""
    parts: list[str] = []
    for literal, body in pieces:
        if OPENING in literal.replace("${{", ""):
            return ""
        parts += [_quote(literal)] if literal else []
        parts += [f"string({body.strip()})"] if body is not None else []
    if len(parts) == 1 and pieces[0][1] is not None:
        parts = [pieces[0][1].strip()]
    made = f"{OPENING} {' + '.join(parts)} {CLOSING}"
    return made if len(made) <= CORRECTED_CHARS_MAX else ""


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


# -- variables within texts --------------------------------------------------------------------------------------------


def _warn_of_variable(findings: Findings, site: Site, found: _Text) -> None:
    if found.place == "program":
        return
    text = blank_out_code(found.text) if found.place == "prompt" else found.text
    one = next((one for one in find_references(text) if not (found.place == "lent" and one.ours)), None)
    if one is None:
        return
    body = one.text.removeprefix("${").removesuffix("}").strip("{} ")
    if not NAME.fullmatch(body) and _reads(site, body):
        message = f"{one.text!r} is passed on as it is written: expressions have two braces and span the whole text"
        corrected = [(found.text[: one.at], body), (found.text[one.at + len(one.text) :], None)]
        findings.warn(
            "HALF_EXPRESSION", message, found.location, _correct_expression(corrected) or f"{OPENING} … {CLOSING}"
        )
        return
    message, expected = _variable_message(found, one)
    findings.warn("UNFILLED_VARIABLE", message, found.location, expected)


def _variable_message(found: _Text, one: Reference) -> tuple[str, str]:
    name = one.name or "NAME"
    match found.place:
        case "variable":
            return f"{one.text!r} is taken for the name of a variable of the worker", name
        case "lent":
            return f"{one.text!r} is passed on as it is written: variables are filled in as ${{NAME}}", f"${{{name}}}"
        case "header":
            message = f"{one.text!r} is sent as it is written: the worker adds tokens to requests itself"
            example = f'[providers.http] tokens = {{"api.example.com" = "${{{name}}}"}}'
            return message, f"no header here, and in the worker's configuration {example}"
        case _:
            message = f"{one.text!r} is passed on as it is written: no variable of an environment is filled in here"
            return message, f"a parameter of the flow, such as {OPENING} vars.{name.lower()} {CLOSING}"


# -- traversal of values ----------------------------------------------------------------------------------------------


def _find_texts(value: JSON, location: Location, uri: str = "") -> Iterator[_Text]:
    """Yield the literals of a value; ``uri`` is that of the provider if the value is its arguments."""
    match value:
        case str():
            if expression_body(value) is None:
                yield _Text(location, value)
        case list():
            for index, item in enumerate(value):
                yield from _find_texts(item, (*location, index))
        case dict():
            for name, member in value.items():
                place = _place_of(value, name, uri)
                below = _find_texts(member, (*location, name))
                yield from (_Text(one.location, one.text, place or one.place) for one in below)
        case _:
            pass


def _place_of(around: dict[str, JSON], name: str, uri: str) -> str:
    """Return the kind of place of the texts below a member; empty if it is unknown."""
    match uri, around.get("type"), name:
        case (DEFINITION.contract.uri, _, "source" | "script") | (_, _, "comment"):
            return "foreign"
        case MODEL.contract.uri | TOOL.contract.uri, _, "approve":
            # The condition of an approval is CEL too, but about the call.
            return "foreign"
        case PROCESS.contract.uri, _, "argv" | "stdin":
            return "program"
        case HTTP.contract.uri, _, "headers":
            return "header"
        case MODEL.contract.uri, _, "system" | "prompt":
            return "prompt"
        case (_, "mcp", "headers") | (_, "python", "config"):
            return "lent"
        case _, "mcp", "env":
            return "variable"
        case _:
            return ""


def _find_names(value: JSON, location: Location) -> Iterator[tuple[Location, str]]:
    """Yield the names of members that look like expressions."""
    match value:
        case dict():
            for name, member in value.items():
                if expression_body(name) is not None:
                    yield (*location, name), name
                yield from _find_names(member, (*location, name))
        case list():
            for index, item in enumerate(value):
                yield from _find_names(item, (*location, index))
        case _:
            pass


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN_CHARS_MAX else text[: TEXT_SHOWN_CHARS_MAX - 1] + "…"
