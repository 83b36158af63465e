"""The embedded nats-server: its program, its data directory and its limits."""
