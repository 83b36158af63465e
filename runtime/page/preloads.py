"""Preloads: what a view of the page needs at once, told to the browser with the document.

The modules that draw the view would else be found one behind the other, as each imports the next. What the view asks
first is asked while they are still read: so its address is worked out here exactly as the view will ask it
(`views/runs.js`, `views/run.js`), and where that takes more than letters and digits, nothing is told.
"""

import re
from collections.abc import Mapping
from posixpath import dirname, join, normpath

RUNS = 200
"""Runs that the list asks for at once."""

EVENTS = 499
"""Events that the view of a run asks for first; with one more, to know whether there are more, they are one read."""

FILTERS = ("q", "status", "definition", "since")
"""What an address of the list may ask for, in the order in which the list asks."""

ENTRY = "app.js"
LISTED = {"": "home", "inbox": "inbox", "definitions": "definitions", "start": "start", "workers": "workers"}
"""The view at an address, by what stands behind the tenant; runs have three."""

_PLAIN = r"[A-Za-z0-9_.-]+"
_PATH = re.compile(rf"/t/(?P<tenant>{_PLAIN})/runs(?:/(?P<run>{_PLAIN}))?")
_QUERY = re.compile(rf"(?:{_PLAIN}={_PLAIN}(?:&(?!$)|$))*")
_IMPORT = re.compile(r"^import (?:[^']* from )?'(\.[^']+)'", re.MULTILINE)


def first_asked(path: str, query: str) -> str | None:
    """Return what the view at an address asks first of the API, None if that cannot be told from here."""
    place = _PATH.fullmatch(path)
    if place is None or not _QUERY.fullmatch(query):
        return None
    runs = f"/api/{place['tenant']}/runs"
    if place["run"] is not None:
        return f"{runs}/{place['run']}/index?after=0&limit={EVENTS}"
    given = dict(one.split("=") for one in query.split("&") if one)
    return f"{runs}?{''.join(f'{name}={given[name]}&' for name in FILTERS if name in given)}limit={RUNS}"


def view_at(path: str) -> str:
    """Return the name of the module of the view at an address; empty if there is none."""
    names = path.split("/")[3:] or [""]
    if names[0] == "runs":
        return {1: "runs", 2: "run"}.get(len(names), "diff")
    return LISTED.get(names[0], "")


def imported(modules: Mapping[str, str], view: str) -> list[str]:
    """Return the modules that the page and one view of it import, whichever is found first first."""
    found = [name for name in (ENTRY, f"views/{view}.js") if name in modules]
    for module in found:
        for written in _IMPORT.findall(modules[module]):
            name = normpath(join(dirname(module), written))
            if name not in found:
                found.append(name)
    return found
