"""The settings of an identity provider: the table ``oidc`` of the configuration.

In the environment, ``CALLBOARD_OIDC`` is the same table in JSON.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from callboard.runtime.settings.tables import Reading, Table

# In the clear only where nobody listens.
Url = Annotated[str, Field(pattern=r"^(https://[^\s@]+|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/[^\s@]*)?)$")]
Claim = Annotated[str, Field(min_length=1)]


class OidcSettings(BaseModel):
    """Whose tokens are taken. ``jwks_url`` is where its keys are; else its own document says so.

    ``subject_claim`` names a person in the log, ``scopes_claim`` has ``callboard:read`` and the like, and
    ``tenants_claim``, if one is named, the tenants that a token is for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    issuer: Url
    audience: Annotated[str, Field(min_length=1)]
    jwks_url: Url | None = None
    subject_claim: Claim = "sub"
    scopes_claim: Claim = "scope"
    tenants_claim: str = ""

    def __str__(self) -> str:
        return f"{self.issuer} for {self.audience}"


_SHAPE = TypeAdapter(OidcSettings)


def _read(given: Any, reading: Reading) -> OidcSettings | None:
    return reading.shaped(_SHAPE, given)


OIDC = Table("a table with `issuer` and `audience`, and perhaps `jwks_url` and the names of claims", _read)
