"""Exceptions that code in a step has raised: recorded with the failure, and raised again in the workflow.

So the handlers of the workflow, and the hooks of libraries, get the exceptions that they get elsewhere.
"""

from abc import ABCMeta
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import new_class
from typing import Any

from callboard.bus.effects import Failure
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.values import plain_json
from callboard.lib.exceptions_as_json import find_class, note_error, read_noted
from callboard.lib.json_types import JSON

NOTED = "native"
"""The member of a failure's details that has the JSON of the exception."""

_OWN = ("code", "failure", "original", "type")
"""The attributes of `StepFailed`, which the class of an exception may have too."""


def _as_it_is(value: JSON) -> Any:
    return value


def encode_error(
    error: Exception,
    encode: Callable[[Any], JSON] = plain_json,
    decode: Callable[[JSON], Any] = _as_it_is,
    own: Mapping[str, Any] | None = None,
) -> JSON:
    """Return the JSON of an exception; None if it could not be made again. ``own`` is as for `decode_error`."""
    return note_error(error, encode, decode, own)


def decode_error(
    noted: Any, decode: Callable[[JSON], Any] = _as_it_is, own: Mapping[str, Any] | None = None
) -> Exception | None:
    """Make an exception of its JSON; None without JSON, or if its class is not loaded here.

    ``own`` are the globals of the module whose classes are found there.
    """
    try:
        found = read_noted(noted, decode)
        kind = find_class(found.type, own) if found is not None else None
        return None if found is None or kind is None else found.make(kind)
    except Exception:
        return None


def raised_in(failed: StepFailed, decode: Callable[[JSON], Any] = _as_it_is) -> Exception:
    """Return the exception that has failed a step; `StepFailed` if it cannot be made again."""
    error = decode_error(_noted_in(failed.failure), decode)
    if error is None:
        return failed
    error.__cause__ = failed
    return error


def step_failed(failure: Failure, own: Mapping[str, Any] | None = None) -> StepFailed:
    """Return the exception for a failed step: a `StepFailed` that is also of the class of the exception that the step
    raised, with its arguments and attributes. It is a `StepFailed` only, if no such exception can be made here.

    Name, text and traceback are the same in both cases, so code that does not know the class, in a process that has
    not loaded it, does the same.
    """
    original = decode_error(_noted_in(failure), own=own)
    if original is None or type(original).__module__.startswith("callboard."):
        return StepFailed(failure)
    try:
        found = read_noted(_noted_in(failure), _as_it_is)
        assert found is not None
        kind = _combine_classes(type(original), found.missing)
        made: Any = found.make(kind) if kind is not None else StepFailed(failure)
        StepFailed.describe(made, failure, original)
        return made
    except Exception:
        return StepFailed(failure)


def _noted_in(failure: Failure) -> Any:
    return failure.details.get(NOTED) if isinstance(failure.details, dict) else None


class _Raised(StepFailed):
    """The base of the combined classes."""

    def __init_subclass__(cls, **_more: Any) -> None:
        """Do not call that of an exception's class, which may register its subclasses."""

    def __str__(self) -> str:
        return self.failure.message

    def __repr__(self) -> str:
        return f"StepFailed({self.failure.message!r})"


@lru_cache(256)
def _combine_classes(kind: type[Exception], missing: tuple[str, ...]) -> type[StepFailed] | None:
    """Return the subclass of `StepFailed` and a class of exceptions; None if there cannot be one.

    An attribute that was not recorded raises `AttributeError` with the reason.
    """
    if type(kind) not in (type, ABCMeta) or issubclass(kind, StopIteration | StopAsyncIteration):
        return None
    # Before the members of the exception's class, which may be properties that cannot be set.
    members = {name: property(partial(_refuse_missing, kind.__name__, name)) for name in missing}
    members |= {**dict.fromkeys(_OWN), "__module__": StepFailed.__module__}

    found: Any = new_class(StepFailed.__name__, (_Raised, kind), {}, lambda space: space.update(members))
    return found


def _refuse_missing(kind: str, name: str, _error: Exception) -> Any:
    raise AttributeError(
        f"the attribute {name} of {kind} was not recorded with the failure of the step, because it has no form in "
        "JSON, or is too long: catch the exception in the step, and return the values that the workflow needs"
    )
