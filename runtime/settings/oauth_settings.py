"""The settings of the applications through which accounts are connected (OAuth 2): the table ``oauth``, by provider.

In the environment, ``CALLBOARD_OAUTH`` is the same table in JSON.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter

from callboard.runtime.settings.oidc_settings import Url
from callboard.runtime.settings.tables import DEFERRED, Reading, Table

Provider = Literal["github", "google_calendar", "notion", "slack"]


class OAuthSettings(BaseModel):
    """One application. Addresses that are left out default to those of the provider.

    ``redirect_url`` is where the provider redirects people, if it does not allow an address of their own machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    client_id: Annotated[str, Field(min_length=1)]
    client_secret: SecretStr = SecretStr("")
    authorize_url: Url | None = None
    token_url: Url | None = None
    redirect_url: Url | None = None
    scopes: str | None = None

    def __str__(self) -> str:
        return self.client_id


_SHAPE = TypeAdapter(dict[Provider, OAuthSettings], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[Provider, OAuthSettings] | None:
    return reading.validate(_SHAPE, reading.with_secrets(given, "client_secret", "has no client_secret"))


OAUTH = Table("a table of applications by provider, each with `client_id`, optionally `client_secret`", _read)
