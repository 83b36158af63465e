"""The page of functions and the table of functions agree."""

import re

from callboard.languages.cel.functions import (
    CLOCK_FUNCTIONS,
    CONVERSIONS,
    CORE,
    ENCODERS,
    LISTS_PROFILE,
    MATH,
    MWL,
    SETS,
    STRINGS,
)
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "languages" / "cel.md").read_text(encoding="utf-8")
RECEIVERS = ("bytes", "duration", "list", "map", "string", "timestamp")
MACROS = {"sortBy"}


def name(declaration: str) -> str:
    """Return the name that expressions use for a declaration such as ``string.split(string)``."""
    path = declaration.partition("(")[0]
    receiver, _, rest = path.partition(".")
    return rest if receiver in RECEIVERS and rest else path


def test_the_page_lists_exactly_the_functions() -> None:
    tables = (CORE, CONVERSIONS, MWL, STRINGS, LISTS_PROFILE, SETS, ENCODERS, MATH)
    declared = {name(declaration) for table in tables for declaration in table} | set(CLOCK_FUNCTIONS)
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    listed = {word for row in rows for word in re.findall(r"`([A-Za-z][\w.]*)`", row)}
    assert declared - listed == set()
    assert listed - declared - MACROS - {"PT1H30M"} == set()
