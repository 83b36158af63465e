"""OpenTelemetry's standard switches, as the environment has them: what is exported, where to, and how.

``OTEL_SDK_DISABLED``; ``OTEL_TRACES_EXPORTER``, ``OTEL_METRICS_EXPORTER`` and ``OTEL_LOGS_EXPORTER``; the endpoints and
protocols of ``OTEL_EXPORTER_OTLP_*``, for all signals or for one. The rest of them the exporters read themselves.
"""

from collections.abc import Mapping
from typing import Literal

from callboard.bus.errors import CallboardError

Signal = Literal["TRACES", "METRICS", "LOGS"]
"""What is exported, as it is called in variables."""

SIGNALS: tuple[Signal, ...] = ("TRACES", "METRICS", "LOGS")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENDPOINT_DEFAULT = "http://localhost:4318"
"""Where OTLP over HTTP goes if nothing else is said (OpenTelemetry's own default)."""

DISABLED = "OTEL_SDK_DISABLED"
SPOKEN = "http/protobuf"
"""The protocol that our exporters speak; the library for gRPC is larger than all that a worker needs besides."""


class ProtocolRefused(CallboardError):
    """The environment asks for a protocol of OTLP that is not spoken here."""

    def __init__(self, variable: str, protocol: str) -> None:
        super().__init__(
            "config.otlp",
            f"OTLP is not exported by {protocol}, only by {SPOKEN}",
            variable,
            f"Set {variable}={SPOKEN} and the endpoint that takes it, usually port 4318 instead of 4317; "
            "or switch the export off with CALLBOARD_OTEL=false.",
        )


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

    :raises ProtocolRefused: if one may not
    """
    for signal in SIGNALS:
        if not wants(env, signal):
            continue
        for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if protocol := env.get(variable):
                if protocol != SPOKEN:
                    raise ProtocolRefused(variable, protocol)
                break


def _endpoint_of(signal: Signal) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
