"""The page of the rooms agrees with the deployment, and the deployment keeps its sizes."""

from dataclasses import astuple

from tests.maintenance.packages import PAGE, SIZES, imports, made, needed, sizes


def _parts(text: str) -> tuple[str, str]:
    before, _, after = text.partition(SIZES)
    return before, after


def test_the_package_diagram_is_current() -> None:
    written, is_made = PAGE.read_text(encoding="utf-8"), made()
    assert _parts(written)[0].endswith(_parts(is_made)[0]), "write it anew: python -m tests.maintenance.packages"


def test_the_documented_package_sizes_are_current() -> None:
    """Within a tenth, so that not every change has to touch the page."""
    rows = [row.strip("| ").split(" | ") for row in _parts(PAGE.read_text(encoding="utf-8"))[1].splitlines()[3:]]
    written = {name: [int(cell) for cell in cells] for name, *cells in rows}
    assert written.keys() == sizes().keys()
    for name, size in sizes().items():
        for shown, there in zip(written[name], astuple(size), strict=True):
            assert abs(shown - there) <= max(3, there / 10), (
                f"{name}: {shown} is {there} now: python -m tests.maintenance.packages"
            )


def test_no_package_has_an_import_cycle() -> None:
    left = imports()
    assert len(left) > 25
    while free := {room for room, used in left.items() if not used & left.keys()}:
        left = {room: used for room, used in left.items() if room not in free}
    assert not left, f"these import each other in a circle: {left}"


def test_a_transitive_arrow_is_left_out() -> None:
    assert needed({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": ["b"], "b": ["c"], "c": []}
