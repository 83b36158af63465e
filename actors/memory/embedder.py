"""The embedding port: makes vectors of texts, near each other for similar texts; and an embedder without a model.

`Hashing` counts words and parts of words in a fixed number of places, found by a hash. It is deterministic and does not
know meanings, but it finds texts with similar wording without a model.
"""

import re
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt
from operator import mul
from typing import NamedTuple, Protocol

from anyio import to_thread

from callboard.actors.carrier import EffectFailed
from callboard.bus.effects import Failure, Usage

Vector = list[float]
"""A vector of length 1."""

PLACES = 256
PART_CHARS = 4
PART_WEIGHT = 0.5
SHORT_CHARS = 2
LITTLE_WEIGHT = 0.1
"""The weight of a part of a word, and of a word that is short or one of the fillers."""

_WORD = re.compile(r"\w+")
_FILLERS = """
about and are did does for from had has have her his how into its not our that the their them then they this was were
what when where which who why will with you your
"""
_LITTLE = frozenset(_FILLERS.split())

ALIKE = 0.3
ALIKE_STANDS_FOR = 0.7
"""Cosines of counted words are lower than a model's: the first value corresponds to the second one of a model."""


class Embeddings(NamedTuple):
    """Vectors of texts, in their order, and which model was asked for them, if one was, at what cost: ``usage`` of all
    ``requests``, ``unmetered`` if the provider reported none."""

    vectors: list[Vector]
    model: str = ""
    usage: Usage = Usage()
    requests: Sequence[Usage] = ()
    unmetered: bool = False


class EmbeddingFailed(EffectFailed):
    """A model made no vectors; ``model``, ``usage`` and ``requests`` have the cost, as in `Embeddings`."""

    def __init__(self, failure: Failure, model: str, usage: Usage, requests: Sequence[Usage] = ()) -> None:
        super().__init__(failure)
        self.model = model
        self.usage = usage
        self.requests = requests


class Embedder(Protocol):
    """Makes vectors. Vectors of embedders with different names cannot be compared."""

    name: str

    async def embed(self, texts: Sequence[str], once: str) -> Embeddings:
        """Return a vector of each text; ``once`` is the idempotency key. Raises `EffectFailed`."""
        ...

    def likeness(self, cosine: float) -> float:
        """Return how similar two texts are, from 0 to 1, where 0.7 means that they have about the same meaning."""
        ...


class Hashing:
    """Counts words, deterministically and without a model."""

    name = f"hashing-{PLACES}"

    async def embed(self, texts: Sequence[str], once: str) -> Embeddings:
        # Many or long texts take time, and all other tasks wait for the event loop.
        return Embeddings(await to_thread.run_sync(lambda: [_count_words(text) for text in texts]))

    def likeness(self, cosine: float) -> float:
        cosine = max(0.0, min(1.0, cosine))
        if cosine < ALIKE:
            return cosine / ALIKE * ALIKE_STANDS_FOR
        return ALIKE_STANDS_FOR + (cosine - ALIKE) / (1 - ALIKE) * (1 - ALIKE_STANDS_FOR)


def _count_words(text: str) -> Vector:
    places = [0.0] * PLACES
    for word in _WORD.findall(text.lower()):
        _count(places, word, LITTLE_WEIGHT if len(word) <= SHORT_CHARS or word in _LITTLE else 1.0)
        if word in _LITTLE:
            continue
        for start in range(len(word) - PART_CHARS + 1):
            _count(places, f"~{word[start : start + PART_CHARS]}", PART_WEIGHT)
    length = sqrt(sum(map(mul, places, places)))
    return [place / length for place in places] if length else places


def _count(places: Vector, feature: str, weight: float) -> None:
    number = int.from_bytes(blake2b(feature.encode("utf-8", "replace"), digest_size=4).digest())
    # Half of the features count down, so that features in the same place cancel out rather than add up.
    places[number // 2 % PLACES] += weight if number % 2 else -weight


def cosine(one: Vector, other: Vector) -> float:
    """Return how near two vectors of length 1 are."""
    return sum(map(mul, one, other))


def pack_vector(vector: Vector) -> str:
    """Return a vector as text, in single precision."""
    return b64encode(array("f", vector).tobytes()).decode()


def unpack_vector(text: str) -> Vector:
    """Return the vector of a text made by `pack_vector`."""
    return array("f", b64decode(text)).tolist()
