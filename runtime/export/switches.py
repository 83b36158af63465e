"""OpenTelemetry's standard switches, as the environment has them: what is exported, where to, and how.

``OTEL_SDK_DISABLED``; ``OTEL_TRACES_EXPORTER``, ``OTEL_METRICS_EXPORTER`` and ``OTEL_LOGS_EXPORTER``; the endpoints and
protocols of ``OTEL_EXPORTER_OTLP_*``, for all signals or for one. The rest of them the exporters read themselves.
"""

from collections.abc import Mapping
from typing import Literal

from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Problem

Signal = Literal["TRACES", "METRICS", "LOGS"]
"""What is exported, as it is called in variables."""

SIGNALS: tuple[Signal, ...] = ("TRACES", "METRICS", "LOGS")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENDPOINT_DEFAULT = "http://localhost:4318"
"""Where OTLP over HTTP goes if nothing else is said (OpenTelemetry's own default)."""

DISABLED = "OTEL_SDK_DISABLED"
SPOKEN = "http/protobuf"
"""The protocol that our exporters speak; the library for gRPC is larger than all that a worker needs besides."""


def named(env: Mapping[str, str]) -> str | None:
    """Return the variable that names a backend, for all signals or for one; None if there is none."""
    return next((name for name in (ENDPOINT, *map(_endpoint_of, SIGNALS)) if env.get(name)), None)


def endpoint_of(env: Mapping[str, str], signal: Signal) -> str:
    """Return the address of the backend of a signal."""
    return env.get(_endpoint_of(signal)) or env.get(ENDPOINT) or ENDPOINT_DEFAULT


def wants(env: Mapping[str, str], signal: Signal) -> bool:
    """Whether a signal is to be exported, where anything is.

    Spans are, where no backend is named at all; metrics go to a backend that is named for them, or for everything; logs
    only to one that is named for them, or if ``OTEL_LOGS_EXPORTER`` is ``otlp``: few backends of spans take them.
    """
    said = env.get(f"OTEL_{signal}_EXPORTER", "")
    exporters = said.replace(" ", "").split(",") if said else []
    if disabled(env) or (exporters and "otlp" not in exporters):
        return False
    own, shared = bool(env.get(_endpoint_of(signal))), bool(env.get(ENDPOINT))
    match signal:
        case "TRACES":
            return own or shared or named(env) is None
        case "METRICS":
            return own or shared
        case "LOGS":
            return own or bool(exporters)


def disabled(env: Mapping[str, str]) -> bool:
    """Whether all of OpenTelemetry is switched off."""
    return env.get(DISABLED, "").strip().lower() == "true"


def check_protocols(env: Mapping[str, str]) -> None:
    """Check that every signal that is exported may go by the protocol that we speak.

    :raises ConfigInvalid: names the variables that say something else
    """
    wrong: dict[str, str] = {}
    for signal in SIGNALS:
        variables = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        variable = next((name for name in variables if env.get(name)), None)
        if variable is not None and wants(env, signal) and env[variable] != SPOKEN:
            wrong[variable] = env[variable]
    if wrong:
        raise ConfigInvalid([_refused(*one) for one in wrong.items()])


def _refused(variable: str, protocol: str) -> Problem:
    expected = f"{SPOKEN}, and the endpoint that takes it, usually port 4318; or CALLBOARD_OTEL=false"
    return Problem("config.otlp", f"OTLP is not spoken by {protocol} here", variable, expected=expected)


def _endpoint_of(signal: Signal) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
