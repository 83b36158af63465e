"""Preloads: the first request of a view, announced in the document, so that browsers send it while the script loads.

The address must be exactly the one that the view requests (`views/runs.js`, `views/run.js`). If it needs more than
letters and digits, nothing is announced.
"""

import re

RUNS = 200
"""Number of runs that the list requests at once."""

EVENTS = 499
"""Events in the first request of a run's view; with one more, which shows whether there are more, it is one read."""

FILTERS = ("q", "status", "definition", "since", "order")
"""Parameters of the list's address, in the order in which the list sends them."""

COMBINED = ("tag", "error")
"""Parameters of the list's address that the list turns into a query, for which nothing is announced."""

_PLAIN = r"[A-Za-z0-9_.-]+"
_PATH = re.compile(rf"/t/(?P<tenant>{_PLAIN})/runs(?:/(?P<run>{_PLAIN}))?")
_QUERY = re.compile(rf"(?:{_PLAIN}={_PLAIN}(?:&(?!$)|$))*")


def first_asked(path: str, query: str) -> str | None:
    """Return the first API request of the view at an address, None if it cannot be derived."""
    place = _PATH.fullmatch(path)
    if place is None or not _QUERY.fullmatch(query):
        return None
    runs = f"/api/{place['tenant']}/runs"
    if place["run"] is not None:
        return f"{runs}/{place['run']}/index?after=0&limit={EVENTS}"
    given = dict(one.split("=") for one in query.split("&") if one)
    if given.keys() & {*COMBINED}:
        return None
    return f"{runs}?{''.join(f'{name}={given[name]}&' for name in FILTERS if name in given)}limit={RUNS}"
