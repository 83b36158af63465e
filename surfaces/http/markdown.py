"""Markdown as a tree of elements, from which the page builds its own: no markup of an author reaches a browser.

A text is read as CommonMark with the tables and strikethrough of GitHub. HTML in it stays text. Links lead
to the schemes of `SCHEMES` only; of an image there is a link, so that nothing is loaded unless somebody asks for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from callboard.service.operations.operation import ApiError, OperationProvider

TEXT_CHARS_MAX = 16_384
"""Limit of one text. Longer texts are sent in pieces: what reads Markdown takes long for hostile texts."""

NESTING_MAX = 20
"""How deep quotes and lists may be nested; what is deeper stays text."""

INLINE_DEPTH_MAX = 8
"""How deep emphasis and links may be nested; what is deeper has no element of its own."""

SCHEMES = ("http", "https", "mailto")
"""Schemes of addresses to which links lead."""

ELEMENTS: Mapping[str, str] = {
    "paragraph": "p",
    "blockquote": "blockquote",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "em": "em",
    "strong": "strong",
    "s": "s",
}
"""The elements of the tokens that open and close, except headings and links."""

Node = str | list[Any]
"""A text, or an element: its name, its attributes, and its nodes."""


class MarkdownText(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``markdown``: a text of at most `TEXT_CHARS_MAX` characters."""

    text: str


class MarkdownTree(Struct, frozen=True):
    """Answer of ``markdown``: texts, and elements of the form ``[name, attributes, nodes]``.

    Names are those of HTML elements, and ``heading`` with its ``level``. Attributes are ``href`` of links, ``align`` of
    cells, ``start`` of lists and ``language`` of code.
    """

    nodes: list[Any]


class Markdown(OperationProvider):
    """Reads Markdown for the page."""

    def __init__(self) -> None:
        # One text at a time: another thread would not be faster, and would delay other requests.
        self._turn = CapacityLimiter(1)

    async def markdown(self, tenant: str, asked: MarkdownText) -> MarkdownTree:
        """Return a text in Markdown as a tree of elements."""
        if len(asked.text) > TEXT_CHARS_MAX:
            expected = f"at most {TEXT_CHARS_MAX} characters"
            raise ApiError(
                400, "api.malformed", f"the text has {len(asked.text)} characters", where="text", expected=expected
            )
        return MarkdownTree(await to_thread.run_sync(read_markdown, asked.text, limiter=self._turn))


def read_markdown(text: str) -> list[Node]:
    """Return the nodes of a text in Markdown."""
    options = {"html": False, "maxNesting": NESTING_MAX}
    tokens = MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).parse(text)
    # Items, rows and cells add to the levels of the parser.
    return _nodes(tokens, 4 * NESTING_MAX)


def _nodes(tokens: Sequence[Token], depth_max: int) -> list[Node]:
    root: list[Node] = []
    open_nodes = [root]
    for token in tokens:
        if token.nesting < 0:
            open_nodes.pop()
            continue
        # The paragraphs of a list without blank lines are hidden: their content is that of the item.
        is_plain = token.nesting > 0 and (token.hidden or len(open_nodes) > depth_max)
        inner = open_nodes[-1] if is_plain else []
        if not is_plain:
            open_nodes[-1].extend(_node(token, inner))
        if token.nesting > 0:
            open_nodes.append(inner)
    return root


def _node(token: Token, inner: list[Node]) -> list[Node]:
    """Return the nodes of a token, which has its content in ``inner`` if it is closed by a later one."""
    kind = token.type.removesuffix("_open")
    match kind:
        case "inline":
            return _nodes(token.children or [], INLINE_DEPTH_MAX)
        case "heading":
            return [["heading", {"level": int(token.tag[1:])}, inner]]
        case "link":
            address = _address(token.attrGet("href"))
            return [["a", {"href": address}, inner] if address else ["span", {}, inner]]
        case "image":
            address = _address(token.attrGet("src"))
            shown = token.content or address or "image"
            return [["a", {"href": address}, [shown]] if address else shown]
        case "fence" | "code_block":
            language = token.info.strip().partition(" ")[0]
            return [["pre", {"language": language} if language else {}, [token.content]]]
        case "code_inline":
            return [["code", {}, [token.content]]]
        case "softbreak":
            return ["\n"]
        case "hardbreak":
            return [["br", {}, []]]
        case "hr":
            return [["hr", {}, []]]
        case _ if kind in ELEMENTS:
            return [[ELEMENTS[kind], _attributes(token), inner]]
        case _:
            return [token.content]


def _attributes(token: Token) -> dict[str, Any]:
    style = str(token.attrGet("style") or "")
    start = token.attrGet("start")
    return {
        **({"align": style.removeprefix("text-align:")} if style.startswith("text-align:") else {}),
        **({"start": start} if isinstance(start, int) else {}),
    }


def _address(written: str | int | float | None) -> str | None:
    """Return an address if a link may lead to it."""
    address = str(written or "")
    try:
        scheme = urlsplit(address).scheme
    except ValueError:
        return None
    return address if scheme in SCHEMES else None
