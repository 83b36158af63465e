"""The settings of an identity provider: the table ``oidc`` of the configuration.

In the environment, ``CALLBOARD_OIDC`` is the same table in JSON.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callboard.bus.events import Problem

EXPECTED = "a table with `issuer` and `audience`, and perhaps `jwks_url` and the names of claims"

# In the clear only where nobody listens.
Url = Annotated[str, Field(pattern=r"^(https://[^\s@]+|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/[^\s@]*)?)$")]
Claim = Annotated[str, Field(min_length=1)]


class OidcSettings(BaseModel):
    """Whose tokens are taken. ``jwks_url`` is where its keys are; else its own document says so.

    ``subject_claim`` names a person in the log, ``scopes_claim`` has ``callboard:read`` and the like, and
    ``tenants_claim``, if one is named, the tenants that a token is for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Url
    audience: Annotated[str, Field(min_length=1)]
    jwks_url: Url | None = None
    subject_claim: Claim = "sub"
    scopes_claim: Claim = "scope"
    tenants_claim: str = ""

    def __str__(self) -> str:
        return f"{self.issuer} for {self.audience}"


def read_oidc(
    given: Any, _env: Mapping[str, str], source: str
) -> tuple[OidcSettings | None, list[Problem], list[Problem]]:
    """Read the table, or its JSON; return the settings, or None, with what is wrong, and what looks wrong."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            return None, [Problem("config.value", f"oidc: is no JSON: {error}", source, expected=EXPECTED)], []
    try:
        return OidcSettings.model_validate(given), [], []
    except ValidationError as error:
        problems = [
            Problem(
                "config.value", ".".join(["oidc", *map(str, one["loc"])]) + f": {one['msg']}", source, expected=EXPECTED
            )
            for one in error.errors(include_url=False)
        ]
        return None, problems, []
