"""Topics: what one reader follows at once, as filters over the log that no event matches twice.

``runs`` is how all runs begin and end, ``questions`` what people are asked, ``run:ID`` all of one run. One stream tells
them all, in the order of the log, so that one place says how far a reader has come.
"""

import re
from collections.abc import Sequence

from callboard.bus.events import TYPES
from callboard.bus.subjects import Subjects

TOPICS_MAX = 32
"""Topics of one reader."""

OF_ALL = {"runs": "run.>", "questions": "human.>"}
"""Topics of all runs, by the types that they have."""

ONE = "run:"

FAMILIES = sorted({f"{head}.>" if dot else head for head, dot, _ in (name.partition(".") for name in TYPES)})
"""Filters that share all types of events among them."""


def runs_of(topics: Sequence[str]) -> list[str]:
    """The runs that are followed whole."""
    return list(dict.fromkeys(topic.removeprefix(ONE) for topic in topics if topic.startswith(ONE)))


_TYPE = re.compile(r"(?:(?:[a-z_]+|\*)\.)*(?:[a-z_]+|\*|>)")
TYPE_CHARS_MAX = 80


def type_filter(type: str) -> str:
    """Return the filter of types of events that is meant: ``run.end``, ``run.>``, ``*.end``.

    :raises ValueError: if they cannot
    """
    if len(type) > TYPE_CHARS_MAX or not _TYPE.fullmatch(type):
        raise ValueError(
            f"{type[:TYPE_CHARS_MAX]!r} is no type of events, such as run.end, or run.> for all that begin so"
        )
    return type


def filters_of(topics: Sequence[str], subjects: Subjects, tenant: str) -> list[str]:
    """Return the filters of topics.

    :raises ValueError: if one is none, if there are none or too many, or if a run cannot be called so
    """
    if not topics or len(topics) > TOPICS_MAX:
        raise ValueError(f"{len(topics)} topics: at least 1, at most {TOPICS_MAX}")
    if strangers := [topic for topic in topics if topic not in OF_ALL and not topic.startswith(ONE)]:
        raise ValueError(f"there is no topic {strangers[0][:80]!r}; there are {', '.join(OF_ALL)} and {ONE}ID")
    shared = [kind for topic, kind in OF_ALL.items() if topic in topics]
    own = [family for family in FAMILIES if family not in shared] if shared else [">"]
    everywhere = [subjects.events(tenant, event_type=kind) for kind in shared]
    return everywhere + [subjects.events(tenant, run, event_type=kind) for run in runs_of(topics) for kind in own]
