"""Calls of steps, noted by workflows of tests whose module is loaded more than once."""

from typing import Any

CALLS: list[tuple[str, Any]] = []
"""The name of each step that was called, with its argument."""
