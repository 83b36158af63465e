"""Memories: values that runs keep for later runs, outside of their logs."""
