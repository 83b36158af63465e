"""OpenTelemetry spans and metrics of runs."""
