"""The settings of the store of texts: the table ``vectors`` of the configuration.

In the environment, ``CALLBOARD_VECTORS`` is the same table in JSON.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, model_validator

from callboard.runtime.settings.tables import Reading, Table

SCHEMES = {"qdrant": ("http://", "https://"), "pgvector": ("postgresql://", "postgres://")}
"""How the address of a store begins."""


class VectorSettings(BaseModel):
    """Where texts of memories are, with their vectors. ``key`` is the key or password itself, or ``${VARIABLE}``."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    store: Literal["jetstream", "qdrant", "pgvector"] = "jetstream"
    url: Annotated[str, Field(pattern=r"^([a-z]+://([^\s:/@]+@)?[^\s@]+)?$")] = ""
    key: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _fits(self) -> "VectorSettings":
        schemes = SCHEMES.get(self.store)
        if schemes is None and (self.url or self.key.get_secret_value()):
            raise ValueError(f"{self.store} has neither url nor key: it is beside the log")
        if schemes is not None and not self.url.startswith(schemes):
            raise ValueError(f"the url of {self.store} begins with {' or '.join(schemes)}")
        if "password=" in self.url or ("@" in self.url and self.store != "pgvector"):
            raise ValueError("what is secret is not in the url: it is the key")
        return self

    def __str__(self) -> str:
        return f"{self.store} {self.url}".strip()


_SHAPE = TypeAdapter(VectorSettings)


def _read(given: Any, reading: Reading) -> VectorSettings | None:
    return reading.shaped(_SHAPE, reading.with_secret(given, "key", "are asked for without a key"))


VECTORS = Table("a table with `store` and, unless that is jetstream, `url`, and perhaps `key`", _read)
