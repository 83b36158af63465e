"""The topics that a reader follows in one stream, as filters over the log of which an event matches at most one.

``runs`` has the start and end of all runs, ``questions`` the questions to people, ``run:ID`` all events of one run. All
topics share one stream, in the order of the log, so a single sequence is the position of the reader.
"""

import re
from collections.abc import Sequence

from callboard.bus.events import TYPES
from callboard.bus.subjects import Subjects

TOPICS_MAX = 32
"""Maximum number of topics of one reader."""

OF_ALL = {"runs": "run.>", "questions": "human.>"}
"""Topics over all runs, with the filter of their event types."""

ONE = "run:"

FAMILIES = sorted({f"{head}.>" if dot else head for head, dot, _ in (name.partition(".") for name in TYPES)})
"""Filters that together match every type of event, each exactly once."""


def runs_of(topics: Sequence[str]) -> list[str]:
    """Return the runs of which all events are followed."""
    return list(dict.fromkeys(topic.removeprefix(ONE) for topic in topics if topic.startswith(ONE)))


_TYPE = re.compile(r"(?:(?:[a-z_]+|\*)\.)*(?:[a-z_]+|\*|>)")
TYPE_CHARS_MAX = 80


def type_filter(type: str) -> str:
    """Return a valid filter of event types: ``run.end``, ``run.>``, ``*.end``.

    :raises ValueError: if the filter is invalid
    """
    if len(type) > TYPE_CHARS_MAX or not _TYPE.fullmatch(type):
        raise ValueError(
            f"invalid type of events: {type[:TYPE_CHARS_MAX]!r}; expected a type like run.end, or a prefix like run.>"
        )
    return type


def filters_of(topics: Sequence[str], subjects: Subjects, tenant: str) -> list[str]:
    """Return the filters of topics.

    :raises ValueError: if a topic or run id is invalid, or the number of topics is
    """
    if not topics or len(topics) > TOPICS_MAX:
        raise ValueError(f"{len(topics)} topics given; expected 1 to {TOPICS_MAX}")
    if unknown := [topic for topic in topics if topic not in OF_ALL and not topic.startswith(ONE)]:
        raise ValueError(f"unknown topic: {unknown[0][:80]!r}; expected {', '.join(OF_ALL)} or {ONE}ID")
    shared = [kind for topic, kind in OF_ALL.items() if topic in topics]
    own = [family for family in FAMILIES if family not in shared] if shared else [">"]
    everywhere = [subjects.events(tenant, event_type=kind) for kind in shared]
    return everywhere + [subjects.events(tenant, run, event_type=kind) for run in runs_of(topics) for kind in own]
