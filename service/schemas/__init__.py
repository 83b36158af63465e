"""Schemas: the messages of the bus and the formats of files as JSON Schema, for other programs and editors."""
