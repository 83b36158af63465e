"""Each public class of the product has a unique name."""

import re
from collections import Counter

from tests.support.modules import paths

SHARED = {
    # Documents of several languages have these by the names of their specifications, and published schemas show them.
    *("Connection", "Edge", "Limits", "Node", "Retry", "Step", "ToolCall", "Workflow"),
    # Published schemas of the API over HTTP or of the tools over MCP show these, and so do those of other messages.
    *("Difference", "ListQuestions", "ListRuns", "OneCall", "OneRun", "Page", "Run", "Seen", "Told"),
    # Programs import one of the two: `callboard.Client`, and the answer of a provider in Python.
    *("Answer", "Client"),
    # An open question as an interpreter has it, and as lists of questions show it.
    "Question",
}
"""Public names of classes that are defined more than once."""

_CLASS = re.compile(r"^class ([^\W_]\w*)", re.MULTILINE)


def test_public_classes_have_unique_names() -> None:
    found = Counter(name for path in paths() for name in _CLASS.findall(path.read_text(encoding="utf-8")))
    repeated = {name for name, count in found.items() if count > 1}
    assert repeated <= SHARED, f"{sorted(repeated - SHARED)}: defined twice. Say in the name which thing it is"
    assert repeated >= SHARED, f"{sorted(SHARED - repeated)}: no longer defined twice. Remove it from SHARED"
