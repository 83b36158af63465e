"""Preloads: what a view of the page asks first, told to the browser with the document: it is asked while the script is
still read.

Its address is worked out here exactly as the view will ask it (`views/runs.js`, `views/run.js`), and where that takes
more than letters and digits, nothing is told.
"""

import re

RUNS = 200
"""Runs that the list asks for at once."""

EVENTS = 499
"""Events that the view of a run asks for first; with one more, to know whether there are more, they are one read."""

FILTERS = ("q", "status", "definition", "since")
"""What an address of the list may ask for, in the order in which the list asks."""

_PLAIN = r"[A-Za-z0-9_.-]+"
_PATH = re.compile(rf"/t/(?P<tenant>{_PLAIN})/runs(?:/(?P<run>{_PLAIN}))?")
_QUERY = re.compile(rf"(?:{_PLAIN}={_PLAIN}(?:&(?!$)|$))*")


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
