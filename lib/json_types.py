"""The types of JSON values."""

from typing import Any

JSON = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

JsonSchema = dict[str, Any]
"""A JSON Schema (draft 2020-12) object."""
