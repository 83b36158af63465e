"""The event log on NATS JetStream: the connection, commits, reading, queues, keys, archives and purges."""
