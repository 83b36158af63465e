"""The deployment keeps its own rules: imports point down, languages are pure, modules say what they are and emit."""

import re
from pathlib import Path

from callboard.bus import events
from callboard.bus.commands import TELLS
from callboard.languages.kit import kits
from tests.support.modules import module, paths
from tests.support.places import ROOT

PARTS = {"lib", "bus", "actors", "languages", "projections"}
CORE = PARTS | {"runtime", "features", "service"}
FLOORS = {
    "lib": {"lib"},
    "bus": {"lib", "bus"},
    "actors": {"lib", "bus", "actors"},
    "languages": {"lib", "bus", "languages"},
    "adapters": {"lib", "bus", "languages", "adapters"},
    "projections": {"lib", "bus", "projections"},
    "runtime": PARTS | {"runtime"},
    "features": PARTS | {"runtime", "features"},
    "service": CORE,
    "surfaces": CORE | {"surfaces"},
    "callboard": CORE | {"surfaces"},
}
"""What each folder may import of the deployment."""

IMPURE = {"anyio", "asyncio", "nats", "httpx2", "os", "socket", "subprocess", "threading", "time", "random", "secrets"}

MODULES = paths()


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, wherever in it."""
    found = module(path)
    assert not found.relative, f"{_name(path)}: relative import"
    return found.imported | found.sources


def _languages() -> list[Path]:
    return [path for path in MODULES if path.relative_to(ROOT).parts[0] == "languages"]


def test_imports_point_down() -> None:
    for path in MODULES:
        floor = path.relative_to(ROOT).parts[0]
        ours = {name.split(".")[1] for name in _imports(path) if name.startswith("callboard.")}
        assert ours & set(FLOORS) <= FLOORS[floor], _name(path)
        assert floor == "callboard" or ours <= set(FLOORS), f"{_name(path)} goes through the front door"
        bare = {name.split(".")[0] for name in _imports(path)} & (set(FLOORS) - {"callboard"})
        assert not bare, f"{_name(path)}: import {bare} as callboard.…"


WITH_ROOMS = ("runtime", "features", "service", "surfaces")


def _rooms() -> dict[str, set[str]]:
    """Which rooms of these packages each room imports, itself left out."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        parts = path.relative_to(ROOT).parts
        if parts[0] in WITH_ROOMS and len(parts) > 2:
            own = "/".join(parts[:2])
            names = [name.split(".")[1:3] for name in _imports(path) if name.startswith("callboard.")]
            used = {"/".join(name) for name in names if name[0] in WITH_ROOMS and len(name) > 1}
            found.setdefault(own, set()).update(used - {own})
    return found


def test_packages_have_no_import_cycle() -> None:
    left = _rooms()
    assert len(left) > 10
    while free := {room for room, used in left.items() if not used & left.keys()}:
        left = {room: used for room, used in left.items() if room not in free}
    assert not left, f"these import each other in a circle: {left}"


def _files() -> dict[str, set[str]]:
    """Which files each file imports, also within functions, but not those that only a type checker imports."""
    names = {".".join(path.with_suffix("").relative_to(ROOT).parts).removesuffix(".__init__"): path for path in MODULES}
    found: dict[str, set[str]] = {}
    for path in MODULES:
        wanted = {name.removeprefix("callboard.") for name in module(path).needed}
        there = {names.get(name) or names.get(name.rpartition(".")[0]) for name in wanted}
        found[_name(path)] = {_name(one) for one in there if one is not None}
    return found


def _reached(files: dict[str, set[str]], start: str) -> set[str]:
    found, left = set[str](), [start]
    while left:
        new = files[left.pop()] - found
        found |= new
        left += new
    return found


def test_files_make_no_circle() -> None:
    files = _files()
    assert sum(map(len, files.values())) > 5_000
    reached = {name: _reached(files, name) for name in files}
    circles = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in files if name in reached[name]
    }
    assert not circles, f"these import each other in a circle: {[sorted(one) for one in circles]}"


def test_operations_do_not_import_the_command_line() -> None:
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] in ("runtime", "features", "service"):
            assert not {"click", "rich"} & {name.split(".")[0] for name in _imports(path)}, _name(path)


HAVE_IMPURE = {
    "languages/python": {"asyncio"},
    "languages/python/outside.py": {"random"},
    "languages/python/interruption.py": {"time"},
    "languages/python/guard.py": {"os", "time", "random", "threading"},
    "languages/python/clocks.py": {"time"},
    "languages/python/machine.py": {"os", "random"},
}
"""What of these a language may import, and why: workflows in Python are made of asyncio's tasks, futures and locks,
which perform no I/O, on a loop of the stage's; outside of a workflow its names mean Python's own; a guard
keeps the clock, chance and files of the machine out of workflows; the interruption of a workflow measures CPU time."""


def test_languages_are_pure() -> None:
    assert len(_languages()) > 100
    for path in _languages():
        had = HAVE_IMPURE.get(_name(path.parent), set()) | HAVE_IMPURE.get(_name(path), set())
        assert not ({name.split(".")[0] for name in _imports(path)} & IMPURE) - had, _name(path)
        if "random" in had:
            continue
        assert not re.search(r"datetime\.now|\.utcnow\(|open\(", path.read_text()), _name(path)


ALSO_A_WORD = {"python"}
"""Names of languages that mean something else too: tools are in Python, and the version of Python is recorded."""

FRONT_DOORS = {"callboard/__init__.py"}
"""What names a language because its users write in the language that the names are in. So do adapters."""

SHARED_ROOMS = {"approvals", "cel", "skills"}
"""Folders of `languages` without a language: any of them may use these."""


def test_only_languages_name_a_language() -> None:
    """Neither by an import nor as a word that decides something; its own result is found by its name."""
    names = set(kits())
    for path in MODULES:
        parts = path.relative_to(ROOT).parts
        if parts[0] == "adapters" or _name(path) in FRONT_DOORS:
            continue
        if (parts[0] == "languages" and len(parts) > 2) or parts[:2] == ("projections", "results"):
            continue
        own = {f"callboard.{folder}.{name}" for name in names for folder in ("languages", "projections.results")}
        assert not {one for one in _imports(path) if any(f"{one}.".startswith(f"{each}.") for each in own)}, _name(path)
        assert not module(path).constants & (names - ALSO_A_WORD), _name(path)


def test_languages_do_not_import_each_other() -> None:
    rooms = {folder.name for folder in (ROOT / "languages").iterdir() if folder.is_dir()}
    for path in _languages():
        parts = path.relative_to(ROOT).parts
        own = {parts[1]} if len(parts) > 2 else set[str]()
        used = {name.split(".")[2] for name in _imports(path) if name.startswith("callboard.languages.")} & rooms
        assert used <= own | SHARED_ROOMS, _name(path)


WRITES_EVENTS = {"bus/nats/jetstream.py", "bus/log/memory.py", "bus/nats/commit.py"}
"""Where an event's subject and the guard of its run come together; everybody else goes through `append`."""


def test_only_known_modules_write_subjects_of_runs() -> None:
    # The subjects of schedules, marks, keys and command ids.
    of_others = {
        "features/schedules/store.py",
        "bus/nats/purge.py",
        "bus/nats/keys.py",
        "runtime/admission/command_routing.py",
    }
    assert {_name(path) for path in MODULES if "guarded" in module(path).called} <= WRITES_EVENTS | of_others


def test_every_module_has_a_docstring() -> None:
    for path in MODULES:
        docstring = module(path).docstring
        assert docstring, f"{_name(path)}: a module begins with what it is"
        ends_well = docstring.split("\n")[0].endswith((".", ":", "…"))
        assert ends_well or len(docstring.split("\n\n")[0]) > 60, _name(path)


def _declared(docstring: str, word: str) -> set[str] | None:
    match = re.search(rf"^{word}: (.+?)(?=\n[A-Z]\w+:|\n\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return {name.strip() for name in match[1].replace("\n", " ").split(",")} if match else None


def test_actors_emit_what_they_say() -> None:
    by_class = {payload.__name__: name for name, payload in events.TYPES.items()}
    known = {*events.TYPES, *TELLS, "start", "alarm", "wake", "usage", "hold", "release"}
    emitting = [path for path in MODULES if re.search(r"^Emits:", path.read_text(), re.MULTILINE)]
    assert emitting
    for path in emitting:
        docstring = module(path).docstring
        made = {by_class[name] for name in module(path).called & set(by_class)}
        assert _declared(docstring, "Emits") == made, _name(path)
        assert (_declared(docstring, "Consumes") or set()) <= known, _name(path)


def test_the_vocabulary_is_closed() -> None:
    """Every type has a place: fact, intent or outcome; every intent has its outcome."""
    intents = {payload for payload in events.TYPES.values() if payload.kind == "intent"}
    assert intents == set(events.OUTCOME_OF)
    assert {payload.kind for payload in events.OUTCOME_OF.values()} == {"outcome"}
