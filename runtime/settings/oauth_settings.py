"""The settings of applications that accounts are connected by (OAuth 2): the table ``oauth``, by provider.

``client_secret`` is the secret itself, or ``${VARIABLE}``. In the environment, ``CALLBOARD_OAUTH`` is the same table in
JSON.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from callboard.bus.events import Problem
from callboard.runtime.settings.endpoint_settings import variable_of
from callboard.runtime.settings.oidc_settings import Url

EXPECTED = "a table of applications by provider, each with `client_id`, and perhaps `client_secret`"

Provider = Literal["github", "google_calendar", "notion", "slack"]


class OAuthSettings(BaseModel):
    """One application. What is left out of its addresses is as the provider has it.

    ``redirect_url`` is where the provider sends people back to, if it takes no address of their own machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: Annotated[str, Field(min_length=1)]
    client_secret: SecretStr = SecretStr("")
    authorize_url: Url | None = None
    token_url: Url | None = None
    redirect_url: Url | None = None
    scopes: str | None = None

    def __str__(self) -> str:
        return self.client_id


_TABLE = TypeAdapter(dict[Provider, OAuthSettings])


def read_oauth(
    given: Any, env: Mapping[str, str], source: str
) -> tuple[dict[Provider, OAuthSettings] | None, list[Problem], list[Problem]]:
    """Read the table, or its JSON; return the settings, or None, with what is wrong, and what looks wrong.

    No message repeats a value: it may be a secret, though in the wrong place.
    """
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            return None, [Problem("config.value", f"oauth: is no JSON: {error}", source, expected=EXPECTED)], []
    warnings: list[Problem] = []
    if isinstance(given, Mapping):
        table = cast("Mapping[str, Any]", given)
        given = {name: _with_secret(name, one, env, source, warnings) for name, one in table.items()}
    try:
        return _TABLE.validate_python(given), [], warnings
    except ValidationError as error:
        problems = [
            Problem("config.value", f"{_place(details['loc'])}: {details['msg']}", source, expected=EXPECTED)
            for details in error.errors(include_url=False, include_input=False)
        ]
        return None, problems, warnings


def _with_secret(name: str, one: Any, env: Mapping[str, str], source: str, warnings: list[Problem]) -> Any:
    match one:
        case {"client_secret": str(secret), **rest} if variable := variable_of(secret):
            if not env.get(variable):
                message = f"oauth.{name} has no client_secret: {variable} is not set"
                warnings.append(Problem("config.unset", message, source, severity="warning"))
            return {**rest, "client_secret": env.get(variable, "")}
        case _:
            return one


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(["oauth", *(str(part) for part in loc if part != "[key]")])
