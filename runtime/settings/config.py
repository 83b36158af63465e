"""The configuration: every setting with its default, read from a file, the environment and flags, with its source.

A flag overrides the environment, which overrides the file, which overrides the default. In the file
(``callboard.toml``) a setting has its name, in the environment ``CALLBOARD_`` and the name in capitals: ``nats_url``,
``CALLBOARD_NATS_URL``.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from callboard.actors.models.waits import WAIT_MAX_S
from callboard.bus.effects import TOOL_TIMEOUT_MAX_S, TOOL_TIMEOUT_S
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Problem
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.nats.credentials import ServerCredentials, without_secrets
from callboard.bus.prices import Prices, list_prices, read_prices
from callboard.lib.text_bytes import NotText, argument_text, read_text
from callboard.runtime.budgets.allowances import Allowance, Allowances
from callboard.runtime.settings.cold_settings import COLD, ColdRule
from callboard.runtime.settings.cores import cores
from callboard.runtime.settings.fetch_auth import FALLBACKS, FETCH_AUTH
from callboard.runtime.settings.model_settings import BUDGETS, ENDPOINTS, MODEL_TURNS_MAX, PRICES, EndpointSettings
from callboard.runtime.settings.nats_context import read_context
from callboard.runtime.settings.notify_settings import NOTIFY, NotifyRule
from callboard.runtime.settings.oauth_settings import OAUTH, OAuthSettings, Provider
from callboard.runtime.settings.oidc_settings import OIDC, OidcSettings
from callboard.runtime.settings.provider_settings import PROVIDERS, ProviderSettings
from callboard.runtime.settings.retention_settings import RETENTION, RetentionRule
from callboard.runtime.settings.tables import Table, secrets_in
from callboard.runtime.settings.tenant_settings import TENANTS, AllowedSubjects, TenantSettings
from callboard.runtime.settings.vector_settings import VECTORS, VectorSettings
from callboard.runtime.settings.webhook_settings import WEBHOOKS, WebhookSecrets

FILE_NAME = "callboard.toml"
ENV_PREFIX = "CALLBOARD_"
UNKNOWN = "config.unknown"
WORKERS_MAX = 4
"""Default limit of the worker processes of one command."""

ANTHROPIC_DEFAULT = "anthropic"
"""The default model if its API key is set: the default of this provider."""

_SECRETS = ("nats_password", "nats_token", "nats_nkey_seed", "mcp_token", "http_token", "credentials_key")
_HIDDEN = (*_SECRETS, "fetch_auth")
"""Settings whose values never appear in messages."""

_BACKENDS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_", "LOGS_"))
"""Variables that name a backend for OpenTelemetry."""

_OF_A_SERVER = (
    *("nats_user", "nats_password", "nats_token", "nats_nkey_seed", "nats_creds", "nats_ca", "nats_cert", "nats_key"),
    "nats_domain",
)
"""Settings for an external server."""

_EMBEDDED = {"nats_inbox_prefix": "_INBOX", "nats_tenant_accounts": "off"}
"""Values of further such settings with an embedded server."""

_PATHS = ("data_dir", "nats_creds", "nats_ca", "nats_cert", "nats_key", "credentials_key_file")
_FOLDERS = ("prompt_folders",)


def _words(value: Any) -> Any:
    """Split a list from the environment, where its words are separated by commas."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1)]
Patterns = Annotated[tuple[Name, ...], BeforeValidator(_words)]
Folders = Annotated[tuple[Path, ...], BeforeValidator(_words)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class Config(BaseModel):
    """Every setting, validated. Units are in the names; ``explain`` returns the source of each value."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    nats_url: Name | None = Field(
        None, description="NATS server, or several separated by commas; none: an embedded one"
    )
    nats_user: Name | None = Field(None, description="user at the NATS server")
    nats_password: SecretStr | None = Field(None, description="password at the NATS server")
    nats_token: SecretStr | None = Field(None, description="token for the NATS server")
    nats_nkey_seed: SecretStr | None = Field(None, description="nkey seed for the NATS server")
    nats_creds: Path | None = Field(None, description="credentials file for the NATS server")
    nats_ca: Path | None = Field(None, description="certificate authority of the NATS server")
    nats_cert: Path | None = Field(None, description="client certificate for the NATS server")
    nats_key: Path | None = Field(None, description="key of the client certificate")
    nats_domain: Name | None = Field(None, pattern=r"^[^\s.*>]+$", description="JetStream domain to use")
    nats_tenant_accounts: Literal["auto", "on", "off"] = Field(
        "auto",
        description="send requests of runs in the account of their tenant; auto: depends on the connection's account",
    )
    nats_inbox_prefix: str = Field(
        "_INBOX", pattern=r"^[^\s*>]+$", description="prefix of the subjects for answers of the server"
    )
    nats_context: Name | None = Field(
        None, description="context of the tool `nats`, or its file, with the settings of the server"
    )
    data_dir: Path = Field(Path(".callboard"), description="where the embedded server keeps its store")
    sync: str = Field(
        "always",
        pattern=r"^(always|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$",
        description="when the embedded server syncs to disk: always, or every 100ms, 2s …",
    )
    prefix: str = Field("cb", pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", description="first token of all subjects")
    tenant: Name = Field("default", description="tenant of the runs that commands start and control")
    partitions: int = Field(
        16, ge=1, le=1024, description="partitions of the commands; fixed when the stream is created"
    )
    replicas: int = Field(1, ge=1, le=5, description="copies of the stream in a cluster; fixed when it is created")
    workers: int | None = Field(
        None, ge=1, le=64, description="worker processes of `up` and `worker`; none: as many as cores, at most 4"
    )
    runs_active_max: int = Field(1000, ge=1, description="maximum number of runs that one worker keeps in memory")
    effects_active_max: int = Field(
        256, ge=1, description="maximum number of effects that one worker carries out at once"
    )
    park_linger_s: float = Field(5.0, ge=0, le=3600, description="how long a waiting run stays in memory")
    clock_skew_max_s: float = Field(
        300.0, gt=0, le=24 * 3600, description="largest difference between a worker's clock and the server's"
    )
    ack_wait_s: Seconds = Field(30.0, description="silence after which a command goes to another worker")
    inline_bytes_max: int = Field(
        INLINE_BYTES_MAX,
        ge=1024,
        le=512 * 1024,
        description="large parts of payloads above this size are stored separately",
    )
    group_commit: Literal["auto", "on", "off"] = Field("auto", description="merge the appends of many runs")
    always_replay: bool = Field(False, description="replay every run after each outcome: a test of replay itself")
    model: Name | None = Field(None, description="default model, as provider:model")
    endpoints: dict[str, EndpointSettings] = Field(
        default_factory=dict[str, EndpointSettings],
        description="addresses that offer the API of a model provider; a table",
    )
    model_turns_max: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict[str, int],
        description="maximum number of concurrent turns of a provider in one worker; a table",
    )
    model_wait_max_s: float = Field(
        WAIT_MAX_S, ge=0, le=7 * 86_400, description="longest wait of a run for a provider that asks for one"
    )
    prices: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="prices of models that override the shipped list; a table"
    )
    budgets: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="limits for all runs of a tenant or definition together; a table"
    )
    embedding: Name | None = Field(
        None, description="model that embeds texts of memories, as provider or provider:model; none: words are counted"
    )
    vectors: VectorSettings = Field(
        VectorSettings.model_construct(), description="store for texts of memories; a table"
    )
    allow_scripts: bool = Field(False, description="accept runs with a scripted model (default with embedded server)")
    tools_allow_python: Patterns | None = Field(
        None, description="patterns of the Python functions that may serve as tools; none: all"
    )
    tools_allow_mcp_commands: Patterns | None = Field(
        None, description="patterns of the programs that may be started as MCP servers; none: all"
    )
    tools_allow_nats: AllowedSubjects | None = Field(
        None,
        description="NATS subjects for requests of runs, as a list or by tenant; none: all that are not reserved",
    )
    shared: Literal["auto", "on", "off"] = Field(
        "auto", description="whether untrusted tenants share the server: they get only the variables in `tenants`"
    )
    tenants: dict[str, TenantSettings] = Field(
        default_factory=dict[str, TenantSettings],
        description="variables that definitions of a tenant may use, and hosts they may be sent to; a table",
    )
    code: Literal["isolated", "bounded", "off"] = Field(
        "isolated", description="run code of definitions only isolated by the kernel, with limits alone, or not at all"
    )
    prompt_folders: Folders = Field((), description="folders of the prompts that definitions refer to by name")
    tool_timeout_s: float = Field(
        TOOL_TIMEOUT_S,
        gt=0,
        le=TOOL_TIMEOUT_MAX_S,
        description="timeout of a tool's call, if the tool sets none",
    )
    offline: bool = Field(False, description="fetch no sources from the web, whatever a start says")
    fetch_auth: dict[str, SecretStr] = Field(
        default_factory=dict[str, SecretStr], description="bearer tokens for sources, by host"
    )
    providers: ProviderSettings = Field(
        ProviderSettings.model_construct(),
        description="additional providers of flows, and what providers may do; a table",
    )
    mcp_token: SecretStr | None = Field(None, description="bearer token that `callboard mcp --http` expects")
    http_token: SecretStr | None = Field(None, description="bearer token of the operator of `callboard http`")
    http_listen: str = Field(
        "127.0.0.1:8723",
        pattern=r"^(off|(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5})$",
        description="where `callboard up` serves HTTP and the page (another port if it is in use), or off",
    )
    http_url: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$")] | None = Field(
        None, description="public address of `callboard http`, for links in messages; none: no links"
    )
    http_rate_per_s: float = Field(50.0, gt=0, le=100_000, description="requests per second of one API key or person")
    http_burst: int = Field(
        200, ge=1, le=1_000_000, description="requests that one API key or person may send in a burst"
    )
    oidc: OidcSettings | None = Field(None, description="identity provider whose tokens are accepted; a table")
    webhooks: dict[str, WebhookSecrets] = Field(
        default_factory=dict[str, WebhookSecrets],
        description="secrets that authenticate senders of webhooks, by definition/trigger; a table",
    )
    credentials_key: SecretStr | None = Field(None, description="key or keys that encrypt credentials")
    credentials_key_file: Path | None = Field(None, description="file with the keys that encrypt credentials")
    oauth: dict[Provider, OAuthSettings] = Field(
        default_factory=dict[Provider, OAuthSettings],
        description="applications that connect accounts; a table",
    )
    notify: dict[str, NotifyRule] = Field(
        default_factory=dict[str, NotifyRule], description="who gets which notices, as rules by name; a table"
    )
    retention: dict[str, RetentionRule] = Field(
        default_factory=dict[str, RetentionRule],
        description="which runs are removed from the log, as rules by name; none: nothing expires; a table",
    )
    retention_every_s: float = Field(
        3600.0, ge=1, le=7 * 24 * 3600, description="time between two applications of the rules of retention"
    )
    cold: ColdRule | None = Field(
        None, description="which ended runs are moved out of the stream, and where; none: they stay; a table"
    )
    otel: bool = Field(False, description="export to OpenTelemetry (default if its variables name a backend)")
    metrics_listen: Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")] | None = Field(
        None, description="address at which a worker serves its figures for Prometheus; none: not served"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level that is logged")
    log_format: Literal["console", "json"] = Field("console", description="format of the log on stderr")

    _sources: dict[str, str] = PrivateAttr(default_factory=dict[str, str])
    _warnings: list[Problem] = PrivateAttr(default_factory=list[Problem])

    @property
    def embedded(self) -> bool:
        """Whether Callboard starts the server itself."""
        return self.nats_url is None

    @property
    def warnings(self) -> list[Problem]:
        """Warnings about likely mistakes in the environment."""
        return list(self._warnings)

    def explain(self) -> list[tuple[str, str, str]]:
        """Return (name, value, source) of every setting, in order; secrets are masked."""
        return [(name, self._display(name), self._sources.get(name, "default")) for name in type(self).model_fields]

    def values(self) -> dict[str, Any]:
        """Return every setting as a JSON value, in order; secrets are masked."""
        url = without_secrets(self.nats_url) if self.nats_url is not None else None
        return {**self.model_dump(mode="json"), "nats_url": url}

    def at(self, url: str) -> Self:
        """Return a copy for a running embedded server, which needs nothing but its URL."""
        return self.model_copy(update={**dict.fromkeys(_OF_A_SERVER), "nats_url": url, **_EMBEDDED})

    def credentials(self) -> ServerCredentials:
        """Return the credentials with which `callboard.bus.nats.connection.connect` signs in to the server."""
        return ServerCredentials(
            user=self.nats_user,
            password=_secret_value(self.nats_password),
            token=_secret_value(self.nats_token),
            nkey_seed=_secret_value(self.nats_nkey_seed),
            creds_file=_text(self.nats_creds),
            ca_file=_text(self.nats_ca),
            cert_file=_text(self.nats_cert),
            key_file=_text(self.nats_key),
        )

    def cold_folder(self) -> Path:
        """Return the folder of the segments of cold storage."""
        return self.cold.folder if self.cold is not None and self.cold.folder is not None else self.data_dir / "cold"

    def price_table(self) -> Prices:
        """Return the prices of models: the configured ones, otherwise those of the shipped list."""
        return Prices(read_prices(self.prices)[0], list_prices()) if self.prices else list_prices()

    def allowances(self) -> Allowances:
        """Return the budgets of tenants and definitions, still unused."""
        return Allowances(msgspec.convert(self.budgets, dict[str, Allowance], strict=False), self.price_table())

    def worker_processes(self) -> int:
        """Return the number of worker processes of `callboard up` and `callboard worker`."""
        return self.workers or min(cores(), WORKERS_MAX)

    def fetch_tokens(self) -> dict[str, str]:
        """Return the bearer tokens of sources, by host."""
        return {host: token.get_secret_value() for host, token in self.fetch_auth.items()}

    def secrets(self) -> list[str]:
        """Return the values that must never enter an event."""
        found: list[str | None] = [*secrets_in(self)]
        found += (_secret_value(self.credentials_key) or "").replace(",", " ").split()
        for url in (self.nats_url or "").split(","):
            # In `nats://user:password@host` the password; in `nats://token@host` the token.
            parts = urlsplit(url.strip())
            found.append(parts.password or parts.username)
        return [secret for secret in found if secret]

    def with_sources(self, sources: Mapping[str, str], warnings: Sequence[Problem]) -> Self:
        """Return a copy that records the sources of its values."""
        copy = self.model_copy()
        copy._sources = dict(sources)
        copy._warnings = list(warnings)
        return copy

    def absolute(self) -> Self:
        """Return a copy with absolute paths, so that it holds in another working directory."""
        paths: dict[str, Any] = {name: value.absolute() for name, value in self if isinstance(value, Path)}
        paths["prompt_folders"] = tuple(folder.absolute() for folder in self.prompt_folders)
        return self.model_copy(update=paths)

    def _display(self, name: str) -> str:
        value = getattr(self, name)
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ", ".join(map(str, value))
        if isinstance(value, dict):
            return ", ".join(f"{key}={' '.join(one) if isinstance(one, tuple) else one}" for key, one in value.items())
        return without_secrets(str(value)) if name == "nats_url" else str(value)


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    file: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> Config:
    """Read the configuration; ``flags`` and ``arguments`` with the value None count as not given.

    ``flags`` come from the command line, ``arguments`` from a Python caller. With ``file`` None, read
    ``callboard.toml`` in ``cwd`` if it exists. Paths in the file are relative to the file.

    :raises ConfigInvalid: with every problem of every source at once
    """
    env = os.environ if env is None else env
    problems: list[Problem] = []
    said: dict[str, tuple[Any, str]] = {
        **_from_file(Path(cwd or "."), file, problems),
        **_from_env(env, problems),
        **_settings_of_caller(flags or {}, problems, lambda name: f"--{name.replace('_', '-')}"),
        **_settings_of_caller(arguments or {}, problems, lambda name: f"{name}="),
    }
    values = {**_defaults(env), **_from_others(said, env), **_from_context(said, env, problems), **said}
    warnings = strangers(env)
    for name, table in _TABLES.items():
        if name in values:
            given, source = values.pop(name)
            found, reading = table.of(name, given, env, source)
            if found is not None:
                values[name] = found, source
            problems += reading.problems
            warnings += reading.warnings
    if "nats_url" not in values:
        values.setdefault("allow_scripts", (True, "embedded server"))
    try:
        config = Config.model_validate({name: value for name, (value, _) in values.items()})
    except ValidationError as error:
        problems += [_invalid(details, values) for details in error.errors(include_url=False)]
        raise ConfigInvalid(problems) from None
    if problems:
        raise ConfigInvalid(problems)
    return config.with_sources({name: source for name, (_, source) in values.items()}, warnings)


_TABLES: Mapping[str, Table[Any]] = {
    "fetch_auth": FETCH_AUTH,
    "providers": PROVIDERS,
    "endpoints": ENDPOINTS,
    "vectors": VECTORS,
    "oidc": OIDC,
    "oauth": OAUTH,
    "webhooks": WEBHOOKS,
    "tenants": TENANTS,
    "prices": PRICES,
    "model_turns_max": MODEL_TURNS_MAX,
    "budgets": BUDGETS,
    "notify": NOTIFY,
    "retention": RETENTION,
    "cold": COLD,
}
"""Settings that are tables, with their readers."""

Values = dict[str, tuple[Any, str]]
"""Settings by name, each with its source."""


def _defaults(env: Mapping[str, str]) -> Values:
    """Return the defaults that depend on variables of other programs."""
    found: Values = {}
    if env.get("ANTHROPIC_API_KEY"):
        found["model"] = (ANTHROPIC_DEFAULT, "ANTHROPIC_API_KEY is set")
    if (backend := next((name for name in _BACKENDS if env.get(name)), None)) is not None:
        found["otel"] = (True, f"{backend} is set")
    return found


def _from_others(said: Values, env: Mapping[str, str]) -> Values:
    """Return the server in ``NATS_URL``, unless ``data_dir`` is set: that asks for an embedded server."""
    return {"nats_url": (env["NATS_URL"], "NATS_URL")} if env.get("NATS_URL") and "data_dir" not in said else {}


def _from_context(said: Values, env: Mapping[str, str], problems: list[Problem]) -> Values:
    """Return the settings of the context in ``nats_context``, or in ``NATS_CONTEXT`` unless ``data_dir`` is set."""
    others = env.get("NATS_CONTEXT") if "data_dir" not in said else None
    given, source = said.get("nats_context", (others, "NATS_CONTEXT"))
    if not isinstance(given, str) or not given:
        return {}
    found, wrong = read_context(given, env, source)
    problems += wrong
    return {name: (value, f"context {given}") for name, value in found.items()}


def _from_file(cwd: Path, given: str | Path | None, problems: list[Problem]) -> Values:
    path = cwd / (given or FILE_NAME)
    try:
        document = tomllib.loads(read_text(path))
    except FileNotFoundError:
        if given is not None:
            problems.append(Problem("config.file", "the file does not exist", str(path)))
        return {}
    except (OSError, ValueError) as error:  # syntax and encoding errors are ValueErrors that name the line
        problems.append(Problem("config.file", str(error), str(path)))
        return {}
    found: Values = {}
    for name, value in _flat(document):
        if name not in Config.model_fields:
            problems.append(_unknown_setting(name, str(path)))
        elif name in _PATHS and isinstance(value, str):
            found[name] = (path.parent / value, str(path))
        elif name in _FOLDERS and isinstance(value, list):
            found[name] = ([path.parent / str(folder) for folder in value], str(path))
        else:
            found[name] = (value, str(path))
    return found


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings by name; ``[fetch] auth``, or ``[fetch.auth]``, is the setting ``fetch_auth``."""
    for name, value in document.items():
        parts = {f"{name}_{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {}
        if parts and name not in Config.model_fields and set(parts) <= set(Config.model_fields):
            yield from parts.items()
        else:
            yield name, value


def _from_env(env: Mapping[str, str], problems: list[Problem]) -> Values:
    names = {name: f"{ENV_PREFIX}{name.upper()}" for name in Config.model_fields}
    found: Values = {}
    for name, variable in names.items():
        if text := env.get(variable):
            try:
                found[name] = (argument_text(text), variable)
            except NotText as error:
                problems.append(Problem("config.invalid", str(error), variable))
    return found


def _settings_of_caller(settings: Mapping[str, Any], problems: list[Problem], written: Callable[[str], str]) -> Values:
    """Return the settings of a caller; ``written`` returns the form in which the caller wrote a name."""
    found: Values = {}
    for name, value in settings.items():
        if name not in Config.model_fields:
            problems.append(_unknown_setting(name, written(name)))
        elif value is not None:
            found[name] = (value, written(name))
    return found


def strangers(env: Mapping[str, str]) -> list[Problem]:
    """Return a warning for each variable with Callboard's prefix that is not a setting: it may be a mistake."""
    names = [name for name in env if name.startswith(ENV_PREFIX)]
    unknown = [
        name
        for name in names
        if name.removeprefix(ENV_PREFIX).lower() not in Config.model_fields and name not in FALLBACKS
    ]
    return [
        msgspec.structs.replace(_unknown_setting(name.removeprefix(ENV_PREFIX).lower(), name), severity="warning")
        for name in sorted(unknown)
    ]


def _unknown_setting(name: str, source: str) -> Problem:
    near = difflib.get_close_matches(name, Config.model_fields, n=1)
    expected = f"{near[0]!r}" if near else f"one of {', '.join(Config.model_fields)}"
    return Problem(UNKNOWN, f"unknown setting {name!r}", source, expected=expected)


def _invalid(details: Mapping[str, Any], values: Values) -> Problem:
    name = str(details["loc"][0]) if details["loc"] else ""
    shown = "" if name in _HIDDEN else f" ({details['input']!r})"
    field = Config.model_fields.get(name)
    return Problem(
        "config.value",
        f"{name}: {details['msg'][:1].lower()}{details['msg'][1:]}{shown}",
        values[name][1] if name in values else "",
        expected=field.description if field else None,
    )


def _secret_value(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def _text(path: Path | None) -> str | None:
    return str(path) if path else None
