"""Remedies of errors by code, for the page; `python -m tests.maintenance.remedies` writes them.

The texts come from `docs/reference/errors.md`, without those that only refer to the error itself. Links become their
words, as the page serves no documentation.
"""

import json
import re

from tests.support.places import ROOT

ERRORS = ROOT / "docs" / "reference" / "errors.md"
REMEDIES = ROOT / "surfaces" / "page" / "static" / "remedies.json"

ROW = re.compile(r"^\| (`[a-z].*?) \| .* \| (.*) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^]]*)]\([^)]*\)")
EMPTY = re.compile(r"see the (message|problems)|nothing")


def remedies() -> dict[str, str]:
    """Return by code what the page of errors says is to be done."""
    found: dict[str, str] = {}
    for codes, cell in ROW.findall(ERRORS.read_text(encoding="utf-8")):
        told = LINK.sub(r"\1", cell).replace("`", "").strip()
        if told and not EMPTY.fullmatch(told):
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", codes), told)
    return dict(sorted(found.items()))


def written() -> str:
    """Return the file of the page."""
    return json.dumps(remedies(), ensure_ascii=False, indent=0) + "\n"


if __name__ == "__main__":
    REMEDIES.write_text(written(), encoding="utf-8")
