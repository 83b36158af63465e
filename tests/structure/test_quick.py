"""The files of `make quick` exist: pytest runs nothing if one of them does not."""

import re

from tests.support.places import ROOT


def test_the_files_of_quick_exist() -> None:
    listed = re.search(r"^QUICK := .*?\n\n", (ROOT / "Makefile").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    names = re.findall(r"[a-z_0-9]+(?:/[a-z_0-9]+)+", listed[0])
    assert len(names) > 40
    assert [name for name in names if not (ROOT / "tests" / f"{name}.py").is_file()] == []
