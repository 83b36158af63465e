"""Embedders by their names: which model makes the vectors of a memory's texts, or whether words are counted.

A node names a model with its provider (``openai/text-embedding-3-small``, ``gemini:gemini-embedding-001``, an
endpoint's likewise). If it gives no provider, as in the tables of the graph language, or no name, the worker decides:

- without a default, it counts words,
- if its default is ``<provider>:<model>``, that model is used,
- if its default is ``<provider>``, the model that the node names is used, or else the provider's default.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import sqrt
from operator import mul
from typing import Any

from anyio import to_thread

from callboard.actors.carrier import EffectFailed
from callboard.actors.memory.embedder import Embedder, EmbeddingFailed, Embeddings, Hashing, Vector
from callboard.actors.memory.store import effect_failed
from callboard.actors.models.catalog import PROVIDERS, Providers
from callboard.actors.models.embedding_models import EmbeddingModel, EmbeddingRequest
from callboard.actors.models.model import Model, ModelTurnFailed

HUB = "sentence-transformers/"
"""The prefix of names in the tables that have a slash, but no provider before it."""

DIMENSION = 1536
"""The default of the tables: with it, the model decides."""

DIMENSION_MAX = 16_000

EmbedderOf = Callable[[Mapping[str, Any]], Awaitable[Embedder]]
"""Finds the embedder of a memory by its configurations; raises `EffectFailed`."""


async def counting(_settings: Mapping[str, Any]) -> Embedder:
    """Count words, whatever a memory names."""
    return Hashing()


class Embedders:
    """The embedders of one worker. ``open`` opens a model by its name, ``default`` is the worker's own."""

    def __init__(
        self,
        open: Callable[[str], Awaitable[tuple[Model, str]]],
        *,
        default: str = "",
        providers: Providers = PROVIDERS,
    ) -> None:
        self._open = open
        self._default = default
        self._providers = providers

    async def __call__(self, settings: Mapping[str, Any]) -> Embedder:
        """Return a memory's embedder.

        :raises EffectFailed: ``model.unknown``, and what opening a provider of models raises
        """
        named = settings.get("embedding_model")
        spec = self._choose_model(named.strip() if isinstance(named, str) else "")
        if not spec:
            return Hashing()
        try:
            model, name = await self._open(spec)
        except ModelTurnFailed as error:
            raise EffectFailed(error.failure) from error
        if not isinstance(model, EmbeddingModel):
            raise effect_failed("model.unknown", f"{spec!r} embeds no texts: {model.provider} has no models that do")
        return ByModel(model, name, spec, _dimensions(settings))

    def _choose_model(self, named: str) -> str:
        """Return the model to use, as ``<provider>:<model>``; empty if words are counted."""
        if full := self._in_full(named):
            return full
        default = self._providers.get(self._default)
        if ":" in named or ("/" in named and default is None and not named.startswith(HUB)):
            raise self._unknown_model(named)
        if default is None:
            full = self._in_full(self._default)
            if self._default and not full:
                raise self._unknown_model(self._default)
            return full
        own = named or default.embedding
        if not own:
            raise effect_failed("model.unknown", f"{self._default} has no default model for embeddings: name one")
        return f"{self._default}:{own}"

    def _in_full(self, name: str) -> str:
        """Return a name with its provider in full; empty if it has no provider."""
        for mark in ":/":
            provider, _, model = name.partition(mark)
            if model and provider in self._providers:
                return f"{provider}:{model}"
        return ""

    def _unknown_model(self, name: str) -> Exception:
        known = ", ".join(name for name, one in self._providers.items() if not one.stands_in)
        return effect_failed("model.unknown", f"no provider of embeddings is named in {name!r}; there are {known}")


def _dimensions(settings: Mapping[str, Any]) -> int | None:
    asked = settings.get("vector_dimension", DIMENSION)
    if asked in (None, DIMENSION):
        return None
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 < asked <= DIMENSION_MAX:
        raise effect_failed(
            "memory.malformed", f"`vector_dimension` is a number from 1 to {DIMENSION_MAX}, not {asked!r}"
        )
    return asked


class ByModel:
    """Has a provider's model make the vectors."""

    def __init__(self, model: EmbeddingModel, model_name: str, spec: str, dimensions: int | None) -> None:
        self.name = spec if dimensions is None else f"{spec}@{dimensions}"
        self._spec = spec
        self._model = model
        self._model_name = model_name
        self._dimensions = dimensions

    async def embed(self, texts: Sequence[str], once: str) -> Embeddings:
        """Make a vector of each text.

        :raises EmbeddingFailed: ``model.…``, as turns of a model do
        """
        if not texts:
            return Embeddings([])
        request = EmbeddingRequest(
            model=self._model_name, texts=texts, idempotency_key=once, dimensions=self._dimensions
        )
        try:
            answer = await self._model.embed(request)
        except ModelTurnFailed as error:
            raise EmbeddingFailed(error.failure, self._spec, error.usage, error.requests) from error
        # Many or long vectors take time, and all other tasks wait for the event loop.
        vectors = await to_thread.run_sync(lambda: [_unit(vector) for vector in answer.vectors])
        return Embeddings(vectors, self._spec, answer.usage, answer.requests, answer.unmetered)

    def likeness(self, cosine: float) -> float:
        return max(0.0, min(1.0, cosine))


def _unit(vector: Vector) -> Vector:
    most = max(map(abs, vector))
    # Scaled first: the square of a very large or very small number overflows or underflows.
    scaled = [place / most for place in vector]
    length = sqrt(sum(map(mul, scaled, scaled)))
    return [place / length for place in scaled]
