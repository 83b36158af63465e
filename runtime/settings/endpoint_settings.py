"""The settings of endpoints: the table ``endpoints`` of the configuration, by the names that models give as provider.

In the environment, ``CALLBOARD_ENDPOINTS`` is the same table in JSON.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter

from callboard.actors.models.catalog import API, PROVIDERS, Endpoint
from callboard.runtime.settings.tables import DEFERRED, Reading, Table


class EndpointSettings(BaseModel):
    """One endpoint. ``key`` is the key itself, or ``${VARIABLE}`` for the value of a variable."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    api: API
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]
    key: SecretStr = SecretStr("")
    model: str = ""

    def endpoint(self) -> Endpoint:
        """Return the endpoint for the catalog of models."""
        return Endpoint(self.api, self.base_url, self.key.get_secret_value(), self.model)

    def __str__(self) -> str:
        return f"{self.api} {self.base_url}"


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]

_SHAPE = TypeAdapter(dict[Name, EndpointSettings], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, EndpointSettings] | None:
    found = reading.validate(_SHAPE, reading.with_secrets(given, "key", "is used without a key"))
    for name in sorted((found or {}).keys() & PROVIDERS.keys()):
        reading.wrong("is the name of a provider; choose another one", name)
    return found


ENDPOINTS = Table("a table of endpoints by name, each with `api` and `base_url`, optionally `key` and `model`", _read)
