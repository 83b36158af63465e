"""Event filters: patterns of event types, in the syntax of NATS subjects."""


def matches(pattern: str, event_type: str) -> bool:
    """Whether an event type matches a NATS filter: ``*`` for one word, ``>`` for the rest."""
    wanted, found = pattern.split("."), event_type.split(".")
    for position, word in enumerate(wanted):
        if word == ">":
            return position < len(found)
        if position >= len(found) or word not in ("*", found[position]):
            return False
    return len(wanted) == len(found)
