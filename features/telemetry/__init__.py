"""Export of spans, metrics and logs to OpenTelemetry backends."""
