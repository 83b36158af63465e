"""The page of errors and the source have the same codes of each family."""

import re
from collections import Counter
from functools import cache

import pytest

from callboard.bus.events import TYPES
from tests.maintenance.remedies import REMEDIES, written
from tests.support.modules import module, paths
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")

CODE = re.compile(r"[a-z]+\.[a-z]+(_[a-z]+)*")

NO_CODES = {
    "model.delta": "a subject below cb.live",
    "tool.stderr": "an entry of the worker's log",
    "definition.hash": "a place in a start message",
    "definition.source": "likewise",
    "definition.code": "likewise",
    "options.connections": "a place in a start message",
    "options.start_from_node": "likewise",
    "state.paused_at_step": "a place in a start message",
    "state.playbook_id": "a place in a start message",
    "state.next_step": "a place in a start message",
    "service.name": "an attribute of spans",
    "service.version": "likewise",
    "server.address": "likewise",
    "server.port": "likewise",
    "fork.run": "a place in a start message",
    "definition.file": "a place in what a child run is started with",
}
"""Texts of the source that look like codes, and their meaning."""


FILES = ("json", "yaml", "yml", "toml", "conf", "log", "out")
"""Suffixes of file names."""


@cache
def strings() -> frozenset[str]:
    """All texts in the source; of an f-string, an asterisk and the text after its first word."""
    deployment = [module(path) for path in paths()]
    texts = (one for each in deployment for one in each.constants if isinstance(one, str))
    return frozenset(texts).union(f"*{ending}" for each in deployment for ending in each.endings)


@cache
def codes() -> frozenset[str]:
    """The texts that are codes."""
    return frozenset(
        text for text in strings() - {*TYPES, *NO_CODES} if CODE.fullmatch(text) and not text.endswith(FILES)
    )


@cache
def rows() -> list[list[str]]:
    """The rows of all tables of codes, as cells."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


@cache
def documented_codes() -> list[str]:
    return [code for row in rows() for code in re.findall(r"`([^`]+)`", row[0])]


FAMILIES = {code.partition(".")[0] for code in documented_codes() if "." in code}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_documented_codes_of_a_family_are_those_of_the_source(family: str) -> None:
    used = {code for code in codes() if code.startswith(f"{family}.")}
    shown = [code for code in documented_codes() if code.startswith(f"{family}.")]
    assert used - set(shown) == set()
    assert [code for code in shown if not in_the_source(code)] == []
    assert [code for code, count in Counter(shown).items() if count > 1] == []


def test_codes_of_no_family_are_in_the_source() -> None:
    assert [code for code in documented_codes() if "." not in code and not in_the_source(code)] == []


def in_the_source(code: str) -> bool:
    return code in strings() or f"*.{code.partition('.')[2]}" in strings()


def test_every_row_has_a_meaning_and_a_remedy() -> None:
    assert len(rows()) > 70
    assert all(len(row) == 3 and all(row) for row in rows())


def test_the_texts_that_only_look_like_codes_are_in_the_source() -> None:
    assert set(NO_CODES) <= strings()


def test_the_published_remedies_are_up_to_date() -> None:
    assert REMEDIES.read_text(encoding="utf-8") == written(), "run `python -m tests.maintenance.remedies`"
