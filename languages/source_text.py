"""Reading a definition's text, which is JSON or YAML."""

from callboard.bus.events import Problem
from callboard.languages.json_text import read_json
from callboard.languages.problems import Tree
from callboard.lib.text_bytes import plain_text


def read_document(text: str) -> Tree | list[Problem]:
    """Read a document: text that begins with ``{`` is JSON, everything else YAML. Problems have the code ``PARSE``."""
    text = plain_text(text)
    if text.lstrip().startswith("{"):
        return read_json(text)

    from callboard.languages.yaml12 import read_yaml

    return read_yaml(text)
