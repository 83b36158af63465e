"""The API: the service on NATS, and the client that programs talk to it with."""
