"""Write the picture and the table of packages in `docs/reference/packages.md`.

A room is a folder of modules. Everything below ``BEGIN`` in that page is generated; do not edit it by hand.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.modules import FOLDERS, Module, module, paths
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "packages.md"
BEGIN = "<!-- what follows is written by `python -m tests.maintenance.packages` -->\n"
SIZES = "## Sizes\n"


@cache
def deployment() -> dict[Path, Module]:
    """Every module of the deployment; templates are not part of it."""
    return {path: module(path) for path in paths() if "templates" not in path.parts}


def room_of(path: Path) -> str:
    """The room in which a file lies: `runtime/run` for `runtime/run/in_flight.py`, `bus` for `bus/log/port.py`."""
    return "/".join(path.relative_to(ROOT).parts[:-1][:2])


def _room_named(name: str, rooms: Collection[str]) -> str:
    """Return the package of a module or of its member, by its imported name."""
    parts = name.split(".")[1:]
    # The front door has the name of the deployment.
    folder, *inner = parts if parts[0] in FOLDERS else ["callboard", *parts]
    room = "/".join([folder, *inner[:1]])
    return room if room in rooms else folder


@cache
def imports() -> dict[str, set[str]]:
    """Which rooms each room imports, itself left out."""
    found: dict[str, set[str]] = {room_of(path): set() for path in deployment()}
    for path, read in deployment().items():
        ours = (name for name in read.imported if name.startswith("callboard."))
        found[room_of(path)].update(_room_named(name, found) for name in ours)
    used = {room for own, targets in found.items() for room in targets if room != own}
    # `runtime` contains only packages: it is not imported, and imports nothing.
    return {room: targets - {room} for room, targets in sorted(found.items()) if targets - {room} or room in used}


def needed(graph: dict[str, set[str]]) -> dict[str, list[str]]:
    """Leave out of a graph without circles every arrow that a longer way makes up for."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset(graph[room]).union(*map(reached, graph[room]))

    return {
        room: sorted(target for target in used if not any(target in reached(other) for other in used - {target}))
        for room, used in graph.items()
    }


def picture() -> str:
    """The graph in Mermaid, with one frame for each folder that has rooms."""
    graph = needed(imports())
    lines = ["flowchart TD"]
    for folder in reversed(FOLDERS):
        lines.append(f'  subgraph {folder}_["{folder}/"]')
        lines += [f'    {_id(room)}["{_label(room)}"]' for room in graph if room.split("/")[0] == folder]
        lines.append("  end")
    lines += [f"  {_id(room)} --> {_id(target)}" for room, targets in graph.items() for target in targets]
    return "\n".join(["```mermaid", *lines, "```", ""])


def _id(room: str) -> str:
    # `graph` and `flow` mean something to Mermaid.
    return room.replace("/", "_") + "_room"


def _label(room: str) -> str:
    return room.partition("/")[2] or f"{room}: files"


def table() -> str:
    """Each room with what it says of itself and all that it imports."""
    rows = [f"| `{room}` | {_says(room)} | {_listed(used)} |" for room, used in imports().items()]
    return "\n".join(["| room | what it is | imports |", "| --- | --- | --- |", *rows, ""])


def _says(room: str) -> str:
    found = deployment().get(ROOT / room / "__init__.py")
    return (found.docstring if found else "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _listed(used: set[str]) -> str:
    return ", ".join(f"`{room}`" for room in sorted(used)) or "nothing of the house"


@dataclass(frozen=True)
class Size:
    """How large a folder is: files, and lines of its files and functions."""

    files: int
    lines: int
    median: int
    p95: int
    largest: int
    function_p95: int
    function_largest: int

    @staticmethod
    def of(paths: Iterable[Path]) -> "Size":
        chosen = [path for path in paths if path.name != "__init__.py"]
        lines = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in chosen)
        functions = sorted(length for path in chosen for length in deployment()[path].functions)
        return Size(
            len(lines), sum(lines), _at(lines, 50), _at(lines, 95), lines[-1], _at(functions, 95), functions[-1]
        )


def _at(lengths: list[int], percent: int) -> int:
    return lengths[min(len(lengths) - 1, len(lengths) * percent // 100)]


def sizes() -> dict[str, Size]:
    """The size of each folder with its rooms, and of the deployment."""
    by_folder = {
        f"`{name}/`": [path for path in deployment() if path.relative_to(ROOT).parts[0] == name] for name in FOLDERS
    }
    return {name: Size.of(paths) for name, paths in {**by_folder, "all": deployment()}.items()}


HEAD = "| folder | files | lines | file: median | p95 | largest | function: p95 | longest |"


def sizes_table() -> str:
    rows = [
        f"| {name} | {size.files} | {size.lines} | {size.median} | {size.p95} | {size.largest} | {size.function_p95}"
        f" | {size.function_largest} |"
        for name, size in sizes().items()
    ]
    return "\n".join([HEAD, "| --- " + "| ---: " * 7 + "|", *rows, ""])


def made() -> str:
    """All that is made of the page."""
    return "\n".join([BEGIN, picture(), table(), SIZES, sizes_table()])


if __name__ == "__main__":
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(written + made(), encoding="utf-8")
