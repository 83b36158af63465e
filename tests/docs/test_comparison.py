"""The page that compares adapters names the tests of its lines."""

import re

from tests.support.places import ROOT

NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_the_tests_of_the_comparison_exist() -> None:
    page = (ROOT / "docs/adapters/comparison.md").read_text()
    named = NAMED.findall(page)
    assert len(named) > 20
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^(async )?def {test}\(", (ROOT / "tests/adapters" / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_each_line_about_callboard_has_a_test() -> None:
    page = (ROOT / "docs/adapters/comparison.md").read_text().partition("## Callboard")[2]
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| line"))]
    assert [line for line in lines if not NAMED.search(line)] == []
