"""The settings of models and their prices.

``endpoints`` are by the names that models give as provider. ``model_turns_max`` is the maximum number of concurrent
turns by provider. ``prices`` override the shipped list of models' prices. ``budgets`` are limits for all runs of a
tenant or a definition together. In the environment, ``CALLBOARD_ENDPOINTS``, ``CALLBOARD_MODEL_TURNS_MAX``,
``CALLBOARD_PRICES`` and ``CALLBOARD_BUDGETS`` are the same tables in JSON.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter

from callboard.actors.models.catalog import API, PROVIDERS, Endpoint
from callboard.bus.model_names import STAND_INS, exact_name
from callboard.bus.prices import read_prices
from callboard.runtime.budgets.allowances import read_allowance
from callboard.runtime.settings.rule_settings import checked_address
from callboard.runtime.settings.tables import DEFERRED, Reading, Table


class EndpointSettings(BaseModel):
    """One endpoint. ``key`` is the key itself, or ``${VARIABLE}`` for the value of a variable."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    api: API
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$"), AfterValidator(checked_address)]
    key: SecretStr = SecretStr("")
    model: Annotated[str, Field(pattern=r"^\S*$")] = ""

    def endpoint(self) -> Endpoint:
        """Return the endpoint for the catalog of models."""
        return Endpoint(self.api, self.base_url, self.key.get_secret_value(), self.model)

    def __str__(self) -> str:
        return f"{self.api} {self.base_url}"


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]

_ENDPOINT_SHAPE = TypeAdapter(dict[Name, EndpointSettings], config=DEFERRED)


def _read_endpoints(given: Any, reading: Reading) -> dict[str, EndpointSettings] | None:
    found = reading.validate(_ENDPOINT_SHAPE, reading.with_secrets(given, "key", "is used without a key"))
    for name, endpoint in sorted((found or {}).items()):
        if name in PROVIDERS:
            reading.wrong("is the name of a provider; choose another one", name)
        if endpoint.model.startswith(f"{name}:"):
            problem = "begins with the name of the endpoint; give the name of the model alone, or rename the endpoint"
            reading.wrong(problem, name, "model")
    return found


ENDPOINTS = Table(
    "a table of endpoints by name, each with `api` and `base_url`, optionally `key` and `model`", _read_endpoints
)


_TURNS_SHAPE = TypeAdapter(
    dict[Annotated[str, Field(pattern=r"^[^\s:/]+$")], Annotated[int, Field(ge=1, strict=True)]], config=DEFERRED
)


def _read_turns(given: Any, reading: Reading) -> dict[str, int] | None:
    return reading.validate(_TURNS_SHAPE, given)


MODEL_TURNS_MAX = Table("a table by provider or endpoint, each with a whole number from 1", _read_turns)


_PRICE_SHAPE = TypeAdapter(dict[str, Any], config=DEFERRED)


def _read_prices(given: Any, reading: Reading) -> dict[str, Any] | None:
    """Return the table as it was given; None if it is invalid."""
    table = reading.validate(_PRICE_SHAPE, given)
    wrong = read_prices(table or {})[1]
    for place, why in wrong.items():
        reading.wrong(why, place)
    for name in (table or {}).keys() - wrong.keys():
        if not (":" in exact_name(name) or "*" in name or name in STAND_INS):
            reading.wrong("is not the name of a model: name its provider too, as `provider:model`", name)
    return None if reading.problems else table


PRICES = Table(
    "a table by model: a number of US dollars per million tokens, or `input`, `output` and optionally `cache_read`, "
    "`cache_write`, `since` (a date), `over` (tokens of input); or several of these in a list",
    _read_prices,
)


_BUDGET_SHAPE = TypeAdapter(dict[str, dict[str, Any]], config=DEFERRED)


def _read_budgets(given: Any, reading: Reading) -> dict[str, dict[str, Any]] | None:
    """Return the table as it was given; None if it is invalid."""
    table = reading.validate(_BUDGET_SHAPE, given)
    for name, one in (table or {}).items():
        try:
            read_allowance(name, one)
        except ValueError as error:  # also that of msgspec
            reading.wrong(str(error), name)
    return None if reading.problems else table


BUDGETS = Table(
    "a table by `tenant` or `tenant/definition`, each with `tokens`, `usd` or `turns`, optionally `per` (hour, day, "
    "month) and `then` (refuse, pause)",
    _read_budgets,
)
