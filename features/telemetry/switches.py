"""OpenTelemetry's standard environment variables that select the exported signals, the backends and the protocol.

They are ``OTEL_SDK_DISABLED``; ``OTEL_TRACES_EXPORTER``, ``OTEL_METRICS_EXPORTER`` and ``OTEL_LOGS_EXPORTER``; and the
endpoints and protocols of ``OTEL_EXPORTER_OTLP_*``, for all signals or for one. The exporters read the other variables
themselves.
"""

from collections.abc import Mapping
from typing import Literal

from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Problem
from callboard.lib.installed import is_installed

Signal = Literal["TRACES", "METRICS", "LOGS"]
"""A signal, by its name in the variables."""

SIGNALS: tuple[Signal, ...] = ("TRACES", "METRICS", "LOGS")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENDPOINT_DEFAULT = "http://localhost:4318"
"""The default endpoint of OTLP over HTTP, as OpenTelemetry defines it."""

DISABLED = "OTEL_SDK_DISABLED"
SPOKEN = "http/protobuf"
"""The only supported protocol. The gRPC library is larger than all other dependencies of a worker together."""


EXPORTER = "opentelemetry.exporter.otlp.proto.http"
"""A module of the library that exports; the extra ``otlp`` has it."""


def backend_variable(env: Mapping[str, str]) -> str | None:
    """Return the variable that names a backend, for all signals or for one; None if no backend is named."""
    return next((name for name in (ENDPOINT, *map(_endpoint_of, SIGNALS)) if env.get(name)), None)


def endpoint_of(env: Mapping[str, str], signal: Signal) -> str:
    """Return the address of the backend of a signal."""
    return env.get(_endpoint_of(signal)) or env.get(ENDPOINT) or ENDPOINT_DEFAULT


def wants(env: Mapping[str, str], signal: Signal) -> bool:
    """Return whether a signal is exported if export is on.

    Spans are exported even if no backend is named. Metrics are exported to a backend that is named for them, or for all
    signals. Logs are only exported to a backend that is named for them, or if ``OTEL_LOGS_EXPORTER`` is ``otlp``,
    because few backends for spans accept logs.
    """
    said = env.get(f"OTEL_{signal}_EXPORTER", "")
    exporters = said.replace(" ", "").split(",") if said else []
    if is_disabled(env) or (exporters and "otlp" not in exporters):
        return False
    own, shared = bool(env.get(_endpoint_of(signal))), bool(env.get(ENDPOINT))
    match signal:
        case "TRACES":
            return own or shared or backend_variable(env) is None
        case "METRICS":
            return own or shared
        case "LOGS":
            return own or bool(exporters)


def is_disabled(env: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry is switched off."""
    return env.get(DISABLED, "").strip().lower() == "true"


def check_export(env: Mapping[str, str]) -> None:
    """Check that every exported signal may use the supported protocol, and that the library for it is installed.

    :raises ConfigInvalid: for each variable that requires another protocol, or if the library is missing
    """
    wrong: dict[str, str] = {}
    for signal in SIGNALS:
        variables = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        variable = next((name for name in variables if env.get(name)), None)
        if variable is not None and wants(env, signal) and env[variable] != SPOKEN:
            wrong[variable] = env[variable]
    if wrong:
        raise ConfigInvalid([_refusal(*one) for one in wrong.items()])
    if any(wants(env, signal) for signal in SIGNALS) and not is_installed(EXPORTER):
        message = "the library that exports to OpenTelemetry is not installed"
        remedy = "the extra `otlp`: pip install 'callboard[otlp]'; or CALLBOARD_OTEL=false"
        raise ConfigInvalid([Problem("config.otlp", message, backend_variable(env) or "otel", expected=remedy)])


def _refusal(variable: str, protocol: str) -> Problem:
    expected = f"{SPOKEN}, and the endpoint that takes it, usually port 4318; or CALLBOARD_OTEL=false"
    return Problem("config.otlp", f"the OTLP protocol {protocol} is not supported", variable, expected=expected)


def _endpoint_of(signal: Signal) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
