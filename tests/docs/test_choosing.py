"""The table in `choosing-a-language.md` agrees with the pages of the languages.

Each need has a pattern of words that describe it on a page. A page matches if the table names a way for its language,
and does not match if the table says no.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from callboard.languages.kit import kits

DOCS = Path(__file__).parents[2] / "docs"

PAGES = {
    "workflow": ("languages/workflow.md", "guide/skills.md", "schemas/workflow.json"),
    "flow": ("languages/flow.md", "reference/providers.md", "schemas/flow.json"),
}
"""The pages of a language that has more than one; its schema describes what the page leaves to the specification."""

NEEDS = {
    "a model decides the next step": r"\"edges\":|generate\(",
    "an expression decides the next step": r"`IF`|\"Match\"|^ *(```)?if ",
    "steps that are repeated": r"\"max_iterations\":|`LOOP`|\"next\":|^ +(while|for) .*:$",
    "steps at the same time": r"`parallel`|\"Gather\"|asyncio\.gather",
    "steps without a model": r"@tool|HTTP_REQUEST|\"Pass\"|@step",
    "a question to a person": r"@elicit|HUMAN_IN_THE_LOOP|`human`|\bask\(",
    "tools for the model (MCP servers, Python functions)": r"^skills:|\"skills\":|TOOL nodes|model/v1|servers=",
    "retries": r"\"retry\":|`retry`|Retry|`retry_attempts`|retries=",
    "checks of each answer": r"\"eval\":|output_schema|model/v1|generate\(",
    "waiting for a time or a signal": r"`DELAY`|\"Sleep\"|asyncio\.sleep",
    "clean-up after a failure": r"Finally|`finally`|^ +finally:",
    "memory that outlives a run": r"memory outlives|\bsession\(",
    "services such as Slack or Notion": r"EXTERNAL_ACTION|\bskills?\b.*(slack|Slack)|http/v1|@step",
    "another definition as a step": r"definition/v1|\bchild\(",
}


@cache
def pages_of(language: str) -> str:
    names = PAGES.get(language, (f"languages/{language}.md",))
    return "\n".join((DOCS / name).read_text(encoding="utf-8") for name in names)


def table() -> dict[str, dict[str, str]]:
    """The cells of the table: by need, by language."""
    page = (DOCS / "guide" / "choosing-a-language.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    begin = next(index for index, row in enumerate(rows) if row[0] == "you need")
    languages = rows[begin][1:]
    return {row[0]: dict(zip(languages, row[1:], strict=True)) for row in rows[begin + 1 :] if row[0] != "---"}


def test_every_language_and_every_need_is_in_the_table() -> None:
    assert table().keys() == NEEDS.keys()
    for cells in table().values():
        assert cells.keys() == kits().keys()


@pytest.mark.parametrize("need", NEEDS)
def test_the_table_agrees_with_the_pages(need: str) -> None:
    named = {language for language, cell in table()[need].items() if not re.match(r"no\b", cell)}
    described = {language for language in kits() if re.search(NEEDS[need], pages_of(language), re.MULTILINE)}
    assert named == described


def test_the_words_in_the_table_are_on_the_pages() -> None:
    for need, cells in table().items():
        for language, cell in cells.items():
            for word in re.findall(r"`([^`]+)`", cell):
                name = re.split(r"[(=…]", word)[0].strip("@ ")
                assert name in pages_of(language), f"{need}: {language} has no {name!r}"
