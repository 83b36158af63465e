"""The settings of the store of texts: the table ``vectors`` of the configuration.

In the environment, ``CALLBOARD_VECTORS`` is the same table in JSON.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, model_validator

from callboard.runtime.settings.tables import Reading, Table

SCHEMES = {"qdrant": ("http://", "https://"), "pgvector": ("postgresql://", "postgres://")}
"""Prefixes of a store's address."""


class VectorSettings(BaseModel):
    """The store of memories' texts and their vectors. ``key`` is the key or password itself, or ``${VARIABLE}``."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    store: Literal["jetstream", "qdrant", "pgvector"] = "jetstream"
    url: Annotated[str, Field(pattern=r"^([a-z]+://([^\s:/@]+@)?[^\s@]+)?$")] = ""
    key: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _fits(self) -> "VectorSettings":
        schemes = SCHEMES.get(self.store)
        if schemes is None and (self.url or self.key.get_secret_value()):
            raise ValueError(f"{self.store} takes neither url nor key, since it is part of the NATS server")
        if schemes is not None and not self.url.startswith(schemes):
            raise ValueError(f"the url of {self.store} must begin with {' or '.join(schemes)}")
        if "password=" in self.url or ("@" in self.url and self.store != "pgvector"):
            raise ValueError("the url must not contain a secret: set it as key")
        return self

    def __str__(self) -> str:
        return f"{self.store} {self.url}".strip()


_SHAPE = TypeAdapter(VectorSettings)


def _read(given: Any, reading: Reading) -> VectorSettings | None:
    return reading.validate(_SHAPE, reading.with_secret(given, "key", "are used without a key"))


VECTORS = Table("a table with `store` and, unless that is jetstream, `url`, optionally `key`", _read)
