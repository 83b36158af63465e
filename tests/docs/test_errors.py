"""The page of errors and the source agree: of each family on the page all codes are there, and no others."""

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
"""What looks like a code in the source, and why it is none."""


FILES = ("json", "yaml", "yml", "toml", "conf", "log", "out")
"""What stands behind the dot of the name of a file."""


@cache
def strings() -> frozenset[str]:
    """All texts in the deployment, and what follows the word that an f-string begins with, after an asterisk."""
    deployment = [module(path) for path in paths()]
    texts = (one for each in deployment for one in each.constants if isinstance(one, str))
    return frozenset(texts).union(f"*{ending}" for each in deployment for ending in each.endings)


@cache
def codes() -> frozenset[str]:
    """What of these looks like a code, and is one."""
    return frozenset(
        text for text in strings() - {*TYPES, *NO_CODES} if CODE.fullmatch(text) and not text.endswith(FILES)
    )


@cache
def rows() -> list[list[str]]:
    """The rows of all tables of codes, as cells."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


@cache
def documented() -> list[str]:
    return [code for row in rows() for code in re.findall(r"`([^`]+)`", row[0])]


FAMILIES = {code.partition(".")[0] for code in documented() if "." in code}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_codes_of_a_family_on_the_page_are_those_in_the_source(family: str) -> None:
    used = {code for code in codes() if code.startswith(f"{family}.")}
    shown = [code for code in documented() if code.startswith(f"{family}.")]
    assert used - set(shown) == set()
    assert [code for code in shown if not in_the_source(code)] == []
    assert [code for code, count in Counter(shown).items() if count > 1] == []


def test_codes_of_no_family_are_in_the_source() -> None:
    assert [code for code in documented() if "." not in code and not in_the_source(code)] == []


def in_the_source(code: str) -> bool:
    return code in strings() or f"*.{code.partition('.')[2]}" in strings()


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    assert len(rows()) > 70
    assert all(len(row) == 3 and all(row) for row in rows())


def test_what_is_no_code_is_still_there() -> None:
    assert set(NO_CODES) <= strings()


def test_the_page_says_what_to_do_as_the_page_of_errors_does() -> None:
    assert REMEDIES.read_text(encoding="utf-8") == written(), "run `python -m tests.maintenance.remedies`"
