"""Export: what leaves for OpenTelemetry, from the log."""
