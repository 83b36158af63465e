"""The page that compares adapters names existing tests, and the pages of adapters name the tested examples."""

import re

import pytest

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


@pytest.mark.parametrize("name", ["claude_agent", "langgraph", "openai_agents", "pydantic_ai"])
def test_the_tested_examples_are_on_the_page_of_the_adapter(name: str) -> None:
    page = (ROOT / "docs/adapters" / f"{name.replace('_', '-')}.md").read_text()
    source = (ROOT / "tests/maintenance/sdk_examples" / f"{name}.py").read_text()
    files = set(re.findall(r'file="(?:docs/docs/|examples/)?(.+?)"', source))
    assert len(files) >= 10
    assert [file for file in sorted(files) if f"| `{file}" not in page] == []
