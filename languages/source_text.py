"""Reading a definition's text, which is JSON or YAML."""

from callboard.bus.events import Problem
from callboard.languages.json_text import read_json
from callboard.languages.problems import Tree, kind_of
from callboard.lib.text_bytes import plain_text


def read_document(text: str) -> Tree | list[Problem]:
    """Read a document: text that begins with ``{`` is JSON, everything else YAML. Problems have the code ``PARSE``."""
    text = plain_text(text)
    if text.lstrip().startswith("{"):
        return read_json(text)

    from callboard.languages.yaml12 import read_yaml

    return read_yaml(text)


def read_object(text: str, what: str, fields: str) -> Tree | list[Problem]:
    """Read a document that has to be an object, such as a flow, with these fields."""
    tree = read_document(text)
    if isinstance(tree, Tree) and not isinstance(tree.value, dict):
        return [tree.problem("SCHEMA", f"expected a {what} object, got {kind_of(tree.value)}", expected=fields)]
    return tree
