"""Paths and effect keys: the addresses of everything that happens in a run.

A *path* names a node: ``investigate``, ``main/fan-out[3]/fetch``; the run itself is the empty path. An *effect key*
names one effect of one execution of a node: ``path#iteration.attempt!slot``. Keys contain neither a run id nor a
counter of a process, so that a replay on any worker, in any interleaving, finds the recorded events.

Grammar::

    path    = segment *("/" segment)
    segment = id *("[" index "]") [":" aspect *("." aspect)]
    key     = path "#" iteration "." attempt "!" slot

In an id the characters ``% / [ ] : # !``, control characters and outer blanks are percent-encoded as UTF-8; the empty
id is a bare ``%``.
"""

import re
import uuid
from typing import NamedTuple
from urllib.parse import unquote

_RESERVED = re.compile(r"[%/\[\]:#!\x00-\x1f\x7f]|^\s+|\s+$")


def encode_id(name: str) -> str:
    """Encode a name of any language as an id in a path."""
    if not name:
        return "%"
    return _RESERVED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode()), name)


def decode_id(segment: str) -> str:
    """Return the name that `encode_id` encoded as a segment's id; a following index or aspect is dropped."""
    plain = segment.split(":", 1)[0].split("[", 1)[0]
    return "" if plain == "%" else unquote(plain)


def child(path: str, segment: str) -> str:
    """Append an encoded segment to a path. Below the run itself, the result is the segment alone."""
    return f"{path}/{segment}" if path else segment


def last_id(path: str) -> str:
    """Return the decoded id of a path's last segment: the node's name for people."""
    return decode_id(path.rsplit("/", 1)[-1])


def parent(path: str) -> str:
    """Return the path one segment up; the parent of a single segment is the run."""
    return path.rpartition("/")[0]


def activation_id(run: str, path: str, iteration: int) -> str:
    """Return an id for one execution of a node, unlike any in another run: a UUID made of the three."""
    return _id_in(run, f"{path}#{iteration}")


def interaction_id(run: str, key: str) -> str:
    """Return an id for a question to a person, unlike any in another run: a UUID made of the run and the effect key."""
    return _id_in(run, key)


def _id_in(run: str, name: str) -> str:
    try:
        namespace = uuid.UUID(run)
    except ValueError:
        namespace = uuid.uuid5(uuid.NAMESPACE_URL, run)
    return str(uuid.uuid5(namespace, name))


class EffectKey(NamedTuple):
    """The parts of an effect key."""

    path: str
    iteration: int
    attempt: int
    slot: str

    def __str__(self) -> str:
        return effect_key(self.path, self.iteration, self.attempt, self.slot)


def call_key(key: str) -> str:
    """Return the key of a tool's first call, given the key of that call or of a repetition with a person's answers."""
    return _AGAIN.sub("", key)


def again_slot(slot: str, round: int) -> str:
    """Return the slot of a repeated tool call with a person's answers; ``round`` counts the repetitions from 1."""
    return f"{slot}.again.{round}"


_AGAIN = re.compile(r"\.again\.[0-9]+\Z")


def effect_key(path: str, iteration: int, attempt: int, slot: str) -> str:
    """Build the key ``path#iteration.attempt!slot``."""
    return f"{path}#{iteration}.{attempt}!{slot}"


def parse_key(key: str) -> EffectKey:
    """Parse an effect key.

    :raises ValueError: if the text does not have the form ``path#iteration.attempt!slot``
    """
    address, bang, slot = key.partition("!")
    path, hash_sign, counters = address.rpartition("#")
    iteration, dot, attempt = counters.partition(".")
    if not (bang and hash_sign and dot and iteration.isdigit() and attempt.isdigit()):
        raise ValueError(f"not an effect key: {key!r} (expected path#iteration.attempt!slot)")
    return EffectKey(path, int(iteration), int(attempt), slot)
