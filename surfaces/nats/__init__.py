"""The runtime on NATS: a micro service that answers requests, and the door for the messages of tenants."""
