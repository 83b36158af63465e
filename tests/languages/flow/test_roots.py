"""The page's table of bindings, by place of an expression, equals that of the language."""

import re

from callboard.languages.flow.bindings import AMBIENT, Roots, at_arm, at_call, at_match, at_phase, at_step
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "languages" / "flow.md"

ANY = {"any"}


def rows() -> list[dict[str, set[str]]]:
    """Return the lines of the table, each as members by root."""
    found = re.search(r"^\| place \|.*\n\|[-| ]+\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    cells = [row.strip("|").split("|")[1] for row in found[1].splitlines()]
    return [dict(map(_root, cell.split(";"))) for cell in cells]


def _root(text: str) -> tuple[str, set[str]]:
    root, _, members = text.partition(":")
    return root.strip(" `"), {member.strip(" `") for member in members.split(",")}


def beyond(there: Roots, around: Roots) -> dict[str, set[str]]:
    """Return the members that a place can read and the place around it cannot."""
    members = {root: ANY if held is None else set(held) - (around.get(root) or set()) for root, held in there.items()}
    return {root: more for root, more in members.items() if more and (more != ANY or root not in around)}


def test_the_page_lists_the_bindings_of_every_place() -> None:
    step, called = at_step(), at_call(at_step(), gathered=False)
    entered = at_phase(step, "onEntry")
    assert rows() == [
        beyond(AMBIENT, {}),
        beyond(step, AMBIENT),
        beyond(at_step(product="result"), step),
        beyond(at_step(product="results"), step),
        beyond(at_match(), step),
        beyond(called, step),
        beyond(at_call(step, gathered=True), called),
        beyond(at_arm(called, "provider"), called),
        beyond(at_arm(called, "flow"), called),
        beyond(entered, step),
        beyond(at_phase(step, "onAlways"), entered),
    ]


def test_the_middleware_of_a_flow_cannot_read_a_step() -> None:
    assert beyond(at_phase(AMBIENT, "onSuccess"), AMBIENT) == {"middleware": {"input", "metadata", "result"}}
