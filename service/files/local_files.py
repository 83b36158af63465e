"""Reads text files and documents of this machine, with errors that name the file and the reason."""

from pathlib import Path
from typing import Any

from callboard.bus.errors import CallboardError
from callboard.languages.problems import Tree, kind_of
from callboard.languages.source_text import read_document
from callboard.lib.text_bytes import NotText, read_text
from callboard.runtime.client.errors import RequestRefused


def text_of(path: Path) -> str:
    """Read a text file.

    :raises CallboardError: ``file.unreadable``
    """
    try:
        return read_text(path)
    except (OSError, NotText) as error:
        raise CallboardError("file.unreadable", f"the file cannot be read: {why(error)}", str(path)) from error


def why(error: OSError | NotText) -> str:
    """Return the reason why a file cannot be read, without its name, which the message already contains."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def document_of(path: Path, what: str, shape: type[dict[Any, Any]] | type[list[Any]]) -> Any:
    """Read a YAML or JSON file that contains an object or a list.

    :raises CallboardError: ``file.unreadable``
    :raises RequestRefused: if the file does not contain such a document
    """
    source = text_of(path)
    tree = read_document(source)
    if not isinstance(tree, Tree):
        raise RequestRefused(what, tree, str(path), source)
    if not isinstance(tree.value, shape):
        expected = "a list" if shape is list else "an object"
        problem = tree.problem("SCHEMA", f"the {what} are {kind_of(tree.value)}", expected=expected)
        raise RequestRefused(what, [problem], str(path), source)
    return tree.value
