"""Exceptions that code in a step has raised: recorded by type and arguments, and raised again in the workflow.

So the hooks and error handlers of a library get the exceptions that they get elsewhere.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from callboard.languages.python.errors import StepFailed
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON


def encode_error(error: Exception, encode: Callable[[Any], JSON] = plain_json) -> JSON:
    """Return the JSON of an exception; None if it could not be made again."""
    kind = type(error)
    try:
        again = kind(*error.args)
        found: JSON = {"type": f"{kind.__module__}:{kind.__qualname__}", "args": encode(list(error.args))}
    except Exception:
        return None
    return found if str(again) == str(error) else None


def decode_error(noted: Any, decode: Callable[[JSON], Any] = lambda value: value) -> Exception | None:
    """Make an exception of its JSON; None without JSON, or if its type is not loaded here."""
    if not isinstance(noted, dict):
        return None
    module, _, name = str(noted["type"]).partition(":")  # pyright: ignore
    # If another thread is importing the module, this waits for it: the type would be missing in half a module.
    found: Any = import_module(module) if module in sys.modules else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    return found(*decode(noted["args"]))  # pyright: ignore


def raised_in(failed: StepFailed, decode: Callable[[JSON], Any] = lambda value: value) -> Exception:
    """Return the exception that has failed a step; `StepFailed` if it cannot be made again."""
    details: Any = failed.failure.details
    error = decode_error(details.get("native") if isinstance(details, dict) else None, decode)
    if error is None:
        return failed
    error.__cause__ = failed
    return error
