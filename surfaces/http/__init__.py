"""The HTTP interface of the runtime."""
