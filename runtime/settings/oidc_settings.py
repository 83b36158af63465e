"""The settings of an identity provider: the table ``oidc`` of the configuration.

In the environment, ``CALLBOARD_OIDC`` is the same table in JSON.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from callboard.lib.installed import is_installed
from callboard.runtime.settings.tables import Reading, Table

# Unencrypted only on the loopback.
Url = Annotated[str, Field(pattern=r"^(https://[^\s@]+|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/[^\s@]*)?)$")]
Claim = Annotated[str, Field(min_length=1)]


class OidcSettings(BaseModel):
    """The identity provider. ``jwks_url`` is the address of its keys; by default, its discovery document names it.

    ``subject_claim`` has a person's name for the log, ``scopes_claim`` scopes such as ``callboard:read``, and
    ``tenants_claim``, if it is set, the tenants for which a token is valid. ``roles_claim``, if it is set, has the
    person's roles, which questions may demand of the person who answers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    issuer: Url
    audience: Annotated[str, Field(min_length=1)]
    jwks_url: Url | None = None
    subject_claim: Claim = "sub"
    scopes_claim: Claim = "scope"
    tenants_claim: str = ""
    roles_claim: str = ""

    @model_validator(mode="after")
    def _can_check(self) -> Self:
        if not is_installed("jwt"):
            raise ValueError("tokens cannot be checked without pyjwt: install it with pip install 'callboard[oidc]'")
        return self

    def __str__(self) -> str:
        return f"{self.issuer} for {self.audience}"


_SHAPE = TypeAdapter(OidcSettings)


def _read(given: Any, reading: Reading) -> OidcSettings | None:
    return reading.validate(_SHAPE, given)


OIDC = Table("a table with `issuer` and `audience`, optionally `jwks_url` and the names of claims", _read)
