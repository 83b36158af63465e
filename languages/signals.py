"""Signals: whether one is what someone waits for. Pure."""

from callboard.lib.json_types import JSON


def matches_signal(data: JSON, match: JSON) -> bool:
    """Whether a signal with this data is for someone who waits for ``match``; None waits for any."""
    return match is None or has(data, match)


def has(data: JSON, wanted: JSON) -> bool:
    """Whether a value has all that is wanted of it: an object the members, recursively, anything else the equal."""
    match wanted, data:
        case dict(), dict():
            return all(name in data and has(data[name], value) for name, value in wanted.items())
        case (bool(), _) | (_, bool()):
            return wanted is data
        case _:
            return wanted == data
