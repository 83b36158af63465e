"""The API: the service on NATS, and the client for programs."""
