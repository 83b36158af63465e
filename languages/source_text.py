"""Reading a definition's text, which is JSON or YAML."""

from callboard.bus.events import Problem
from callboard.languages.json_text import read_json
from callboard.languages.problems import Tree
from callboard.languages.yaml12 import read_yaml
from callboard.lib.text_bytes import plain_text


def read_document(text: str) -> Tree | list[Problem]:
    """Read a document: text that begins with ``{`` is JSON, everything else YAML. Problems have the code ``PARSE``."""
    text = plain_text(text)
    return read_json(text) if text.lstrip().startswith("{") else read_yaml(text)
