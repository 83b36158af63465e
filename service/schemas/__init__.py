"""Schemas: what is said over the bus and written in files, as JSON Schema, for programs and editors of others."""
