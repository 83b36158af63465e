"""Titles: what a comment calls the definition that it is in."""

import re

TITLE_CHARS_MAX = 72
"""How much of a comment's first sentence makes a title."""

_SENTENCE_END = re.compile(r"[.:;!?](?=\s|$)|\n")


def title_of(comment: str) -> str:
    """Return the first sentence of a comment, cut at a word if it is long."""
    sentence = " ".join(_SENTENCE_END.split(comment.strip(), maxsplit=1)[0].split())
    if len(sentence) <= TITLE_CHARS_MAX:
        return sentence
    return f"{sentence[:TITLE_CHARS_MAX].rpartition(' ')[0] or sentence[:TITLE_CHARS_MAX]}…"
