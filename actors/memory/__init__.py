"""Memories: what runs keep for runs that come after them, outside of their logs."""
