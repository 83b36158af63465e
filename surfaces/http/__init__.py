"""HTTP: the runtime for whoever speaks no NATS."""
